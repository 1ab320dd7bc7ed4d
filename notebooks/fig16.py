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
# # UNO Fig. 15/16: host cores, sNIC cores and PCIe over T
# A ring of nine VMs with one DPI per direction between neighbours, D = 36 sNIC cores. Every plan below is proven optimal,
# and its certificate is checked without a solver before it is plotted.

# %%
import matplotlib.pyplot as plt

from placement.studies.fig16 import curve

points = curve(range(10, 101, 5))

# %%
figure, (cores, link) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
limits = [point.limit for point in points]
cores.step(limits, [point.host for point in points], where="post", label="host")
cores.step(limits, [point.snic for point in points], where="post", label="sNIC")
cores.set(xlabel="T (Gbps)", ylabel="cores", title="(a) cores")
cores.legend()
link.step(limits, [point.pcie for point in points], where="post")
link.plot(limits, limits, ":", color="grey")
link.set(xlabel="T (Gbps)", ylabel="Gbps", title="(b) PCIe")
plt.show()

# %% [markdown]
# From T = 80 Gbps on the sNIC's capacity is what binds; before, every 3.6 Gbps of PCIe buy one host core.

# %%
print(*[(point.limit, point.host, point.snic, point.pcie) for point in points if point.limit % 10 == 0], sep="\n")
