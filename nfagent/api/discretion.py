"""Filters what tenants learn about their instances: never where these run.

Messages of the agent itself name locations, slots and machines, and are for administrators. A tenant gets its own
process's message, without the names of this server's parts.
"""

import re
from collections.abc import Iterator
from typing import Any

from nfagent.clients import Client
from nfagent.config import AgentConfig, LocationConfig
from nfagent.masking import masked
from nfagent.model import Event
from nfagent.reasons import AT_ONCE, ENDED, REFUSED
from server.config import ServerConfig

GENERIC = "it is not running as intended; an administrator can see why"
_HIDDEN = "..."
# Without how it ended, which is unknown for a process on another machine: that would reveal the machine.
_ENDING = re.compile(rf"(?:{ENDED}|{AT_ONCE}).*?(; it said.*)", re.DOTALL)


class Discretion:
    """Removes what a client may not know.

    Args:
        config: agent.toml, whose locations stay hidden.
        server: server.toml, likewise.
    """

    def __init__(self, config: AgentConfig, server: ServerConfig) -> None:
        words = {word for word in (*_of_agent(config), *_of_server(server)) if word}
        # Longest first, so that a path is replaced as a whole.
        listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        self._words = re.compile(rf"(?<![A-Za-z0-9_-])(?:{listed})(?![A-Za-z0-9_-])", re.IGNORECASE)

    def reason(self, reason: str | None, *, admin: bool) -> str | None:
        """Return the reason for an instance's state, for a client."""
        if reason is None or admin:
            return reason
        if reason.startswith(REFUSED):
            return self._words.sub(_HIDDEN, reason)
        ending = _ENDING.search(reason)
        return GENERIC if ending is None else ENDED + self._words.sub(_HIDDEN, ending[1])

    def configuration(self, config: dict[str, Any], client: Client) -> dict[str, Any]:
        """Return an instance's configuration, for a client."""
        return config if client.role == "admin" else masked(config)

    def output(self, text: str, *, admin: bool) -> str:
        """Return a process's output, for a client."""
        return text if admin else self._words.sub(_HIDDEN, text)

    def event(self, event: Event, *, admin: bool) -> dict[str, Any]:
        """Return an event's content, for a client."""
        if admin or "reason" not in event.payload:
            return event.payload
        return event.payload | {"reason": self.reason(event.payload["reason"], admin=False)}


def _of_agent(config: AgentConfig) -> Iterator[str]:
    yield from (config.state, config.runtime, config.server)
    for location in config.location:
        yield from (location.switch, location.address or "")
        if location.ssh is not None:
            yield from (location.ssh.host, location.ssh.host.rpartition("@")[2], location.ssh.directory)
        yield from _of_slots(location)


def _of_slots(location: LocationConfig) -> Iterator[str]:
    for slot in location.slot:
        yield from (slot.name, slot.netns or "", *(slot.enter or ()))
        for wire in slot.wires:
            yield from (wire.edge, wire.inside)


def _of_server(server: ServerConfig) -> Iterator[str]:
    yield server.oneswitchd.api
    for switch in server.switch:
        yield from (switch.name, switch.virt, switch.edge)
        if switch.link is not None:
            yield from (switch.link.hypervisor, switch.link.local)
