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
# # Rules on the switches per virtual rule (UNO 5.4)
# UNO counted 6810 physical rules for 3024 virtual ones on three switches: 2.25. A rule that names its in_port is needed
# at one switch only.

# %%
import matplotlib.pyplot as plt

from placement.studies.experiments import rule_ratio

rows = rule_ratio([n / 10 for n in range(11)])

# %%
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.plot([row.in_port_part for row in rows], [row.where_needed for row in rows], "o-", label="copied where needed")
axes.plot([row.in_port_part for row in rows], [row.everywhere for row in rows], ":", label="copied everywhere")
axes.axhline(6810 / 3024, color="grey", label="UNO")
axes.set(xlabel="part of the rules with in_port", ylabel="rules per virtual rule", ylim=0)
axes.legend()
plt.show()
