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
# # Solve time over n, per backend
# The hard regime, four graph families, one instance each; `algorithm1` is PuLP + CBC on UNO's Algorithm 1 as written. A
# hollow mark did not prove its optimum in the time it had.

# %%
import matplotlib.pyplot as plt

from placement.studies.experiments import solve_times

BACKENDS = ("lagcut", "highs", "cbc", "algorithm1")
rows = solve_times((27, 50, 100), BACKENDS, limit=1.0)

# %%
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for backend, mark in zip(BACKENDS, "osv^", strict=True):
    mine = [row for row in rows if row.backend == backend]
    line = axes.plot([r.nodes for r in mine if r.proven], [r.seconds for r in mine if r.proven], mark, label=backend)
    open_rows = [r for r in mine if not r.proven]
    axes.plot([r.nodes for r in open_rows], [r.seconds for r in open_rows], mark, mfc="none", color=line[0].get_color())
axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds")
axes.legend()
plt.show()
