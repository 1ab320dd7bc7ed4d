# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Damping under square, sine, noise and an adversary
# Moves per epoch of the damper and of solving from scratch at each epoch, with one epoch of lag.

# %%
import matplotlib.pyplot as plt

from placement.damper import Settings
from placement.studies.traffic import TRAFFICS, busy_server, damped, ewma, naive, run, threshold

problem = busy_server(10)
POLICIES = {
    "naive": naive,
    "10 % threshold": threshold,
    "EWMA": ewma,
    "damper": lambda: damped(Settings(window=15, deadline=0.05), problem),
}
outcomes = {
    (traffic, name): run(problem, made(problem), policy(), epochs=60, warm_up=15)
    for traffic, made in TRAFFICS.items()
    for name, policy in POLICIES.items()
}
for (traffic, name), outcome in outcomes.items():
    print(
        f"{traffic:10} {name:15} moves {outcome.moves:4} overloaded {outcome.overloaded:3} "
        f"host/static {outcome.host_vs_static:.3f}"
    )

# %%
figure, (moves, over) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for number, name in enumerate(POLICIES):
    places = [n + 0.2 * number for n in range(len(TRAFFICS))]
    moves.bar(places, [outcomes[traffic, name].moves for traffic in TRAFFICS], 0.18, label=name)
    over.bar(places, [outcomes[traffic, name].overloaded for traffic in TRAFFICS], 0.18)
for axes, title in ((moves, "moves"), (over, "overloaded epochs")):
    axes.set_xticks([n + 0.3 for n in range(len(TRAFFICS))], list(TRAFFICS))
    axes.set_title(title)
moves.legend()
plt.show()
