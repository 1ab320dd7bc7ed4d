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
# # UNO Fig. 14: the latency of four deployments
# The emulation's round trips are saved results (`bench/uno`): real functions, and CPU quotas for the sNIC's cores.
# Beside them, computed here, queues in series at UNO's rates, which show why *UNO full* is slow: a function that needs
# four times the time for a packet has a full queue before it.

# %%
import json
import sys
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt

import placement

ROOT = Path(placement.__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".", "bench")]

from figures import uno
from uno_benches import functions
from uno_benches.figures import CONSTANTS

constants = tomllib.loads(CONSTANTS.read_text())
saved = json.loads((ROOT / "docs/figures/uno.json").read_text())

# %%
uno.latency(saved["figures"]["fig14"])

# %%
for row in functions.latency(saved["measured"], constants, packets=20_000):
    print(f"{row['way']} at {row['gbps']:g} Gbps: {row['round_trip_us'] / 1000:.2f} ms")

# %% [markdown]
# The knee: the round trip of *UNO full* over the time that L7FW takes for a packet on a host core, at 1 Gbps.

# %%
times = [0.5, 1.0, 1.5, 2.0, 2.3, 2.6, 3.0, 4.0, 6.0]
trips = []
for l7fw_us in times:
    other = constants | {"latency": constants["latency"] | {"l7fw_us": l7fw_us}}
    rows = {row["way"]: row for row in functions.latency(saved["measured"], other, packets=8_000)}
    trips.append(rows["UNO full"]["round_trip_us"] / 1000)
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(times, trips, "o-")
axes.axhline(79, color="red", linestyle="--", label="paper")
axes.set(xlabel="us of L7FW for a packet, on a host core", ylabel="ms of round trip, UNO full", yscale="log")
axes.legend()
plt.show()
