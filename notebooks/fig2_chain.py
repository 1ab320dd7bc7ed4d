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
# # UNO Fig. 2: full offload against no offload, by counting PCIe crossings
# With the sNIC as the only switch, each NF on the host costs two crossings, and the VM one more.

# %%
import matplotlib.pyplot as plt

from placement.studies.experiments import chain_model

points = chain_model(range(9))

# %%
figure, (rate, delay) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
lengths = [point.nfs for point in points]
rate.plot(lengths, [point.no_offload for point in points], "o-", label="no offload")
rate.plot(lengths, [point.full_offload for point in points], "s-", label="full offload")
rate.plot([2, 3], [6, 3], "kx", label="UNO, measured")
rate.set(xlabel="NFs in the chain", ylabel="Gbps", ylim=0)
rate.legend()
delay.plot(lengths, [point.added_us for point in points], "s-")
delay.set(xlabel="NFs in the chain", ylabel="added latency (us)", ylim=0)
plt.show()
