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
# # UNO Fig. 13: an asset monitor that moves under traffic
# Saved results of `bench/asset_moves --pcie`: the monitor moves between the host and an sNIC whose cores are half as
# fast, and its state is copied as over a link of 10 Gb/s, while 1,000 packets/s pass.

# %%
import json
import sys
from pathlib import Path

import placement

ROOT = Path(placement.__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".", "bench")]

from figures import uno

saved = json.loads((ROOT / "docs/figures/asset_moves.json").read_text())

# %%
uno.moves(saved)["uno-fig13"]

# %% [markdown]
# UNO serialises records of single flows, so its state grows with them. Here the state is an arena of a fixed size that
# is copied as it is, so that the time does not grow.

# %%
for flows in sorted(int(key) for key in saved if key.isdigit()):
    row = saved[str(flows)]
    print(f"{flows} flows: {row['state_bytes']:,} bytes, {row['freeze_p50_ms']} ms without service (median)")
    print(f"    of {row['sent']:,} packets:", {name: row[name] for name in ("lost", "duplicated", "reordered")})
