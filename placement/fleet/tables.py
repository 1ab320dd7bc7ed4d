"""Results of a fleet as Arrow tables. The caller writes them as Parquet."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from placement.fleet.servers import Row, Solved

PLANS = pa.schema(
    [
        pa.field("server", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("nfs", pa.int32(), nullable=False),
        pa.field("on_snics", pa.int32(), nullable=False),
        pa.field("host_cost", pa.int64()),
        pa.field("bound", pa.int64()),
        pa.field("certified", pa.bool_(), nullable=False),
        pa.field("host_alone", pa.int64()),
        pa.field("pcie_mbps", pa.list_(pa.int64()), nullable=False),
        pa.field("moves", pa.int32(), nullable=False),
        pa.field("placement", pa.map_(pa.string(), pa.int32()), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""One row a server, as ``Row`` describes it. Equal problems give equal bytes, on any cluster."""

WORK = pa.schema(
    [
        pa.field("server", pa.string(), nullable=False),
        pa.field("cpu_seconds", pa.float64(), nullable=False),
    ]
)
"""The cost of solving each server; unlike ``PLANS`` it differs from run to run."""


def plans(rows: Sequence[Row]) -> pa.Table:
    """Return the rows as a table."""
    return pa.table({name: [getattr(row, name) for row in rows] for name in PLANS.names}, PLANS)


def work(solved: Sequence[Solved]) -> pa.Table:
    """Return the CPU time of each server as a table."""
    return pa.table(
        {"server": [each.row.server for each in solved], "cpu_seconds": [each.cpu_seconds for each in solved]}, WORK
    )
