"""Which network function a virtual port belongs to: oneswitchd does not know, nfagent does."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from unoctl.errors import PortHeldError, UnoctlError
from unoctl.model import Port
from unoctl.nf import finding
from unoctl.nf.client import Json, NfClient

Check = Callable[[Port], None]
"""Raises `PortHeldError` for a port that is left to nfagent."""

ASK_TIMEOUT_S = 5.0


def free(_: Port) -> None:
    """A check that every port passes."""


def check(
    datapath_id: str, lab: str | None, environment: Mapping[str, str], system_config: Path = finding.SYSTEM_CONFIG
) -> Check:
    """A check for the ports of a server.

    Args:
        datapath_id: of the server; an nfagent of another one is not asked.
        lab: as ``--lab`` says.
        environment: as `unoctl.nf.finding.address` reads it.
        system_config: as there.
    """

    def refuse_held(port: Port) -> None:
        try:
            holder = _holder(finding.address(None, lab, environment, system_config), datapath_id, port.number)
        except UnoctlError as error:
            # nfagent names its ports so; what it has deployed goes on without it.
            if port.name == f"nf{port.number}":
                raise PortHeldError(_held(port, f"by its name, and nfagent cannot be asked ({error})")) from error
            return
        if holder is not None:
            raise PortHeldError(_held(port, f"{holder['name']!r} of project {holder['project']!r}"))

    return refuse_held


def for_command(datapath_id: str, lab: str | None, *, force: bool) -> Check:
    """The check that a command makes; with ``--force`` none."""
    return free if force else check(datapath_id, lab, os.environ)


def _holder(api: str, datapath_id: str, number: int) -> Json | None:
    with NfClient(api, os.environ.get("NFAGENT_TOKEN"), ASK_TIMEOUT_S) as client:
        if not client.manages(datapath_id):
            return None
        holder = next((each["instance"] for each in client.ports() if each["number"] == number), None)
        return None if holder is None else client.instance(holder)


def _held(port: Port, whose: str) -> str:
    return (
        f"port {port.number} ({port.name}) belongs to a network function: {whose}; "
        "use unoctl nf delete or unoctl nf migrate, or --force to do it all the same"
    )
