"""What the views work with, and who is asking."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from flask import current_app, g

from nfagent.api.access import Access
from nfagent.api.discretion import Discretion
from nfagent.api.streams import Streams
from nfagent.config import AgentConfig
from nfagent.desired import Client, Desired
from nfagent.protocols import Decider, Monitor
from server.config import ServerConfig
from server.oneswitchd.answers import Port, Status

_KEY = "nfagent"


@dataclass(frozen=True)
class Services:
    """The agent, as far as its interface needs it.

    Attributes:
        status: asks oneswitchd; raises `ServerError`.
        ports: asks oneswitchd for the virtual ports; raises `ServerError`.
        streams: places for clients that follow events or the dashboard.
    """

    desired: Desired
    config: AgentConfig
    server: ServerConfig
    access: Access
    discretion: Discretion
    status: Callable[[], Status]
    ports: Callable[[], list[Port]]
    decider: Decider
    monitor: Monitor
    streams: Streams

    def install(self) -> dict[str, object]:
        """What belongs into a Flask application's ``extensions``."""
        return {_KEY: self}


def services() -> Services:
    """Those of the application that runs."""
    return cast("Services", current_app.extensions[_KEY])


def client() -> Client:
    """Return the sender of the current request."""
    return cast("Client", g.client)
