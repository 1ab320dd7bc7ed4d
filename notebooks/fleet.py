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
# # A fleet of servers
# Servers at the sites of an SNDlib network carry its demand matrix. Dask solves the placement of each; here its workers
# are threads of this notebook. `cluster()` starts processes instead, and `cluster("tcp://HOST:8786")` uses others.

# %%
from collections import defaultdict
from importlib import resources

import matplotlib.pyplot as plt
from distributed import Client, LocalCluster
from rich.progress import Progress

from placement.fleet.cluster import solve_fleet
from placement.fleet.servers import Effort
from placement.fleet.tables import plans
from placement.studies.fleet import fleet

document = (resources.files("topohub") / "data/sndlib/germany50.json").read_text()
servers = fleet(document, 500)
with (
    LocalCluster(processes=False, dashboard_address="127.0.0.1:0") as local,
    Client(local) as client,
    Progress() as progress,
):
    task = progress.add_task("servers", total=len(servers))
    solved = solve_fleet(client, servers, Effort(60, "lagcut"), lambda done, _: progress.update(task, completed=done))
table = plans([each.row for each in solved])
print(f"{sum(each.cpu_seconds for each in solved) / len(solved) * 1000:.2f} ms of CPU per server")

# %%
rows = table.to_pylist()
left, alone = defaultdict(int), defaultdict(int)
for row in rows:
    site = row["server"].split("-")[0]
    left[site] += row["host_cost"] / 1000
    alone[site] += row["host_alone"] / 1000
print(f"host cores: {sum(alone.values()):.0f} without sNICs, {sum(left.values()):.0f} with them")

# %%
figure, (busy, sites) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
busy.scatter([row["pcie_mbps"][0] / 1000 for row in rows], [row["host_cost"] / 1000 for row in rows], s=8)
busy.set(xlabel="Gbps on the PCIe link", ylabel="host cores", title="each server")
order = sorted(alone, key=alone.__getitem__, reverse=True)
sites.plot([alone[site] for site in order], label="without sNICs")
sites.plot([left[site] for site in order], label="with sNICs")
sites.set(xlabel="site, by load", ylabel="host cores", title="each site")
sites.legend()
plt.show()
