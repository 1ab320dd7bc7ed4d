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
# # UNO Fig. 8 and 9: switching on the sNIC, and bytes over PCIe
# Fig. 8 on two real Open vSwitch with dummy devices, with 4,096 filtering rules where the paper has 65,536: the parts
# are those of the paper, the whole is smaller, so that it takes seconds. Fig. 9 by the sizes of real ESP packets.

# %%
import sys
from pathlib import Path

import placement

sys.path[:0] = [str(Path(placement.__file__).parents[1] / folder) for folder in (".", "bench")]

from figures import uno
from uno_benches import functions, switches

RULES, FLOWS = 4096, 512
rows = [switches.filtering(part, FLOWS, rounds=2, rules=RULES) for part in (0.0, 0.5, 1.0)]

# %%
uno.switching(rows)

# %% [markdown]
# Packets whose rules are on the sNIC do not reach the hypervisor's switch, by its counters:

# %%
print(*[(row["offloaded"], row["crossed"], row["packets"], row["cpu_s"]) for row in rows], sep="\n")

# %%
crossed = functions.pcie_bytes()
uno.pcie(crossed)

# %% [markdown]
# QAT's request and response take the packet across the bus twice more. With small packets the overhead weighs more:

# %%
for size in (64, 256, 512, 1280):
    print(size, [(row["way"], round(row["over_snic"], 2)) for row in functions.pcie_bytes(size)])
