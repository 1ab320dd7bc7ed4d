"""The views' access to the agent, and the client of the current request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from flask import current_app, g

from nfagent.api.access import Access
from nfagent.api.audit import Audit
from nfagent.api.discretion import Discretion
from nfagent.api.streams import Streams
from nfagent.asset_reader import AssetReader
from nfagent.bulletin import Bulletin
from nfagent.clients import Client
from nfagent.config import AgentConfig
from nfagent.desired import Desired
from nfagent.log_reader import LogReader
from nfagent.overview import Overviews
from nfagent.protocols import Decider, Monitor
from nfagent.tracing import Tracing
from server.config import ServerConfig
from server.oneswitchd.answers import Status, VirtualPort

_KEY = "nfagent"


@dataclass(frozen=True)
class Services:
    """The parts of the agent that its interface needs.

    Attributes:
        status: queries oneswitchd; raises `ServerError`.
        ports: queries oneswitchd for the virtual ports; raises `ServerError`.
        streams: places for clients that follow events or the dashboard.
        tracing: of requests; None: they are not traced.
    """

    desired: Desired
    bulletin: Bulletin
    overviews: Overviews
    config: AgentConfig
    server: ServerConfig
    access: Access
    audit: Audit
    discretion: Discretion
    status: Callable[[], Status]
    ports: Callable[[], list[VirtualPort]]
    decider: Decider
    monitor: Monitor
    logs: LogReader
    assets: AssetReader
    streams: Streams
    tracing: Tracing | None = None

    def install(self) -> dict[str, object]:
        """Return the entries for a Flask application's ``extensions``."""
        return {_KEY: self}


def services() -> Services:
    """Return those of the running application."""
    return cast("Services", current_app.extensions[_KEY])


def client() -> Client:
    """Return the sender of the current request."""
    return cast("Client", g.client)
