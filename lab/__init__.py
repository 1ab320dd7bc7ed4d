"""An emulated server with smart NICs: its switches, PCIe links, hosts and wires.

    from lab import Lab, LabSpec

    with Lab(LabSpec.demo()).start() as lab:
        lab.exec("vm1", ["ip", "addr"])

Names are imported on first use: traffic streams start inside hosts and should not wait for the rest.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.errors import LabError
    from lab.server import Lab
    from lab.spec import LabSpec

__all__ = ["Lab", "LabError", "LabSpec"]

_HOMES = {"Lab": "lab.server", "LabError": "lab.errors", "LabSpec": "lab.spec"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'lab' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
