"""The ports of a chain's hops, in order, from nfagent's answer, for os-ken applications.

The application gets `EventChain` when the chain is there, and whenever it has changed.
"""

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from os_ken import cfg
from os_ken.base.app_manager import OSKenApp
from os_ken.controller.event import EventBase
from os_ken.lib import hub

cfg.CONF.register_opts(
    [
        cfg.StrOpt("agent", default="http://127.0.0.1:8774", help="nfagent; its token is $NFAGENT_TOKEN"),
        cfg.StrOpt("chain", default="", help="name of the chain"),
    ]
)

_PERIOD_S = 0.2
_ANSWER_S = 5.0


@dataclass(frozen=True)
class Hop:
    """A hop: its name, and its ports as numbers and names; a port of the server has only a number."""

    name: str
    numbers: tuple[int, ...]
    ports: tuple[str, ...]


class EventChain(EventBase):
    """The hops of the chain; none: there is no such chain, or not yet."""

    def __init__(self, hops: tuple[Hop, ...]) -> None:
        super().__init__()
        self.hops = hops


def follow(application: OSKenApp) -> None:
    """Ask for the chain again and again; tell the application about changes."""
    hub.spawn(_follow, application)


def _follow(application: OSKenApp) -> None:
    known: tuple[Hop, ...] = ()
    while True:
        try:
            found = ask(cfg.CONF.agent, cfg.CONF.chain)
        except OSError as error:  # the rules stay as they are
            application.logger.warning("nfagent does not say where the chain is: %s", error)
            found = known
        if found != known:
            known = found
            application.send_event(application.name, EventChain(found))
        hub.sleep(_PERIOD_S)


def ask(agent: str, chain: str) -> tuple[Hop, ...]:
    """Return the hops of a chain; none if it does not exist or is being deleted."""
    headers = {"Authorization": f"Bearer {token}"} if (token := os.environ.get("NFAGENT_TOKEN")) else {}
    request = urllib.request.Request(f"{agent}/api/v1/chains/{chain}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return ()
        raise
    return () if found["status"] == "deleting" else tuple(_hop(hop) for hop in found["hops"])


def _hop(hop: dict[str, Any]) -> Hop:
    if hop["port"] is not None:
        return Hop(f"port {hop['port']}", (hop["port"],), ())
    numbers = tuple(port["number"] for port in hop["ports"])
    return Hop(hop["name"], numbers, tuple(port["name"] for port in hop["ports"]))
