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
# # UNO Fig. 10 and 11: cores and energy
# The CPU times are those of the last `make figures FIGURES_ARGS="--measure uno"`, in `docs/figures/uno.json`. What the
# paper leaves open, above all its watts, is in `constants.toml`: change it here to see how much depends on it.

# %%
import json
import sys
import tomllib
from pathlib import Path

import placement

ROOT = Path(placement.__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".", "bench")]

from figures import uno
from uno_benches import functions, round_trips
from uno_benches.figures import CONSTANTS

constants = tomllib.loads(CONSTANTS.read_text())
saved = json.loads((ROOT / "docs/figures/uno.json").read_text())

# %%
uno.cores(round_trips.cores(saved["figures"]["fig14"], constants))

# %% [markdown]
# With other ratios between the cores (UNO measured 4 for L7FW, and 0.75 for SECGW with its crypto engine):

# %%
for l7fw in (1, 2, 4, 8):
    other = constants | {"snic": constants["snic"] | {"l7fw": l7fw}}
    row = round_trips.cores(saved["figures"]["fig14"], other)[-1]
    print(f"L7FW {l7fw} times slower: {row['uno_snic'] / row['host_only']:.2f} sNIC cores for each of the host")

# %%
uno.energy(functions.energy(saved["measured"], constants))

# %% [markdown]
# At which power of an sNIC core does offloading L7FW stop to save energy?

# %%
for watts in (0.5, 1.0, 2.0, 2.7, 4.0):
    other = constants | {"energy": constants["energy"] | {"snic_core": watts}}
    ratios = {row["function"]: round(row["ratio"], 2) for row in functions.energy(saved["measured"], other)}
    print(f"{watts} W for each busy sNIC core: host / sNIC = {ratios}")
