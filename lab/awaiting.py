"""Waiting for a lab's daemons that people have started by hand: what ``uno-lab wait`` does."""

import time
from collections.abc import Callable

from lab import breaking
from lab.errors import ControlError
from lab.server import Lab
from server.config import ServerConfig
from server.errors import ServerError
from server.oneswitchd.client import Client
from unoctl.nf.client import NfClient

ONESWITCHD, NFAGENT = "oneswitchd", "nfagent"

_GRACE_S = 3.0
"""A program that was just started may not run yet."""
_POLL_S = 0.1
_ASK_S = 2.0


def wait(lab: Lab, program: str, controllers: int, timeout_s: float) -> str:
    """Wait until oneswitchd has all switches and the wanted controllers, or nfagent answers; return the state.

    Raises:
        ControlError: it is unknown, is not running, or the time limit expired; with the reason.
    """
    asks: dict[str, Callable[[], str]] = {
        ONESWITCHD: lambda: _ask_oneswitchd(lab, controllers),
        NFAGENT: lambda: _ask_nfagent(lab),
    }
    if program not in asks:
        raise ControlError(f"unknown program {program!r}; expected one of {', '.join(asks)}")
    began, last_seen = time.monotonic(), time.monotonic()
    while True:
        try:
            return asks[program]()
        except (ServerError, ControlError) as error:
            why = str(error)
        now = time.monotonic()
        if breaking.is_running(lab, program):
            last_seen = now
        elif now - last_seen > _GRACE_S:
            raise ControlError(f"{program} is not running, so waiting for it is in vain; see its log ({why})")
        if now - began > timeout_s:
            raise ControlError(f"{program} is not ready after {timeout_s:g} s: {why}")
        time.sleep(_POLL_S)


def _ask_oneswitchd(lab: Lab, controllers: int) -> str:
    with Client.of(ServerConfig.load(lab.server_toml).oneswitchd, _ASK_S) as client:
        status = client.status()
    waited = [each.name for each in status.switches if (each.virt.state, each.edge.state) != ("up", "up")]
    if waited:
        raise ControlError(f"it waits for the switches {', '.join(waited)}")
    connected = sum(each.state == "connected" for each in status.controllers)
    if connected < controllers:
        raise ControlError(f"it has {connected} controllers, not {controllers}")
    return f"{ONESWITCHD} is ready: {len(status.switches)} switches, {connected} controllers"


def _ask_nfagent(lab: Lab) -> str:
    with NfClient(f"unix:{lab.directory}/nfagent/nfagent.sock") as agent:
        kinds = agent.kinds()
    return f"{NFAGENT} is ready: {len(kinds)} kinds of network functions"
