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
# # The hard region
# Solve time over T (part of the way from the minimum cut to everything on the host) and D (part of all sNIC cores needed).

# %%
import matplotlib.pyplot as plt
import numpy as np

from placement.studies.experiments import hard_region

T_PARTS, D_PARTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9), (0.05, 0.15, 0.25, 0.4, 0.6, 0.8, 1.0)
rows = hard_region(60, T_PARTS, D_PARTS, limit=0.5)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for axes, values, title in (
    (left, [np.log10(row.seconds) for row in rows], "log10 seconds"),
    (right, [row.host_part for row in rows], "host cores, part of all"),
):
    grid = np.array(values).reshape(len(T_PARTS), len(D_PARTS))
    image = axes.imshow(grid, origin="lower", aspect="auto")
    axes.set_xticks(range(len(D_PARTS)), D_PARTS)
    axes.set_yticks(range(len(T_PARTS)), T_PARTS)
    axes.set(xlabel="D", ylabel="T", title=title)
    figure.colorbar(image, ax=axes)
plt.show()
