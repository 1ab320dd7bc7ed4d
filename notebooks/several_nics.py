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
# # Several sNICs
# One sNIC's capacity and PCIe bandwidth divided among K, each with a port of its own. Traffic between two sNICs crosses
# two links, so dividing costs host cores.

# %%
import matplotlib.pyplot as plt

from placement.studies.experiments import several_nics

rows = several_nics(40, (1, 2, 3, 4), limit=5.0)
for row in rows:
    print(
        f"K={row.nics} host {row.host:.2f} cores (at least {row.bound:.2f}) in {row.seconds:.2f} s, proven {row.proven}"
    )

# %%
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.bar([row.nics for row in rows], [row.host for row in rows], label="host cores")
axes.plot([row.nics for row in rows], [row.bound for row in rows], "k_", markersize=20, label="bound")
axes.set(xlabel="sNICs", ylabel="host cores")
axes.legend()
plt.show()
