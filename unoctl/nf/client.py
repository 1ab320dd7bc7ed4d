"""The REST client of nfagent (docs/openapi.json). It returns answers as plain data."""

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from server.oneswitchd.rest import NFAGENT, Rest

Json = dict[str, Any]

TIMEOUT_S = 30.0
_PAGE = 500


class NfClient:
    """A connection to one nfagent.

    Args:
        api: ``unix:PATH``, ``tcp:HOST:PORT`` or ``tls:HOST:PORT``.
        token: for TCP.
        timeout_s: time limit of a request.
        cacert: file of the authorities to trust; None: those of the machine.

    Raises:
        ConfigError: ``api`` is neither. All methods raise ``ApiError``.
    """

    def __init__(
        self, api: str, token: str | None = None, timeout_s: float = TIMEOUT_S, cacert: str | None = None
    ) -> None:
        self._rest = Rest(NFAGENT, api, token, timeout_s, cacert)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rest.close()

    def kinds(self) -> list[Json]:
        """Return the kinds that can be deployed."""
        return self._get("kinds")["kinds"]

    def servers(self) -> list[Json]:
        """Return the agent's server, in a list."""
        return self._get("servers")["servers"]

    def manages(self, datapath_id: str) -> bool:
        """Tell whether this is the agent of a server."""
        return any(int(server["datapath_id"], 16) == int(datapath_id, 16) for server in self.servers())

    def faults(self) -> list[Json]:
        """Return the faults of locations and network functions, the worst first."""
        return self._get("faults")["faults"]

    def ports(self) -> list[Json]:
        """Return the virtual ports of instances."""
        return self._get("ports")["ports"]

    def instances(self) -> list[Json]:
        """Return all instances, oldest first."""
        return list(self._pages("instances", "instances"))

    def instance(self, reference: str) -> Json:
        """Return one instance, by id or name."""
        return self._get(f"instances/{quote(reference, safe='')}")

    def log(self, reference: str, after: str | None, most: int, *, previous: bool = False) -> Json:
        """Return a part of what an instance has said: the newest, the one ``after`` a position, or what was before."""
        query = {"most": most} | ({"after": after} if after else {}) | ({"previous": "true"} if previous else {})
        return self._get(f"logs/{quote(reference, safe='')}?{urlencode(query)}")

    def assets(self, identifier: str) -> list[Json]:
        """Return the hosts that an instance of kind ``assets`` knows, by its id."""
        hosts: list[Json] = []
        start: int | None = 0
        while start is not None:
            page = self._get(f"instances/{identifier}/assets?{urlencode({'start': start, 'limit': _PAGE})}")
            hosts += page["hosts"]
            start = page["next"]
        return hosts

    def asset_lines(self, identifier: str, after: int) -> list[Json]:
        """Return some of the lines after a number; none if there are none."""
        query = urlencode({"after": after, "limit": _PAGE})
        return self._get(f"instances/{identifier}/assets/lines?{query}")["lines"]

    def create(self, order: Json) -> Json:
        """Order an instance."""
        return self._rest.ask(Json, "POST", "/api/v1/instances", order)

    def amend(self, reference: str, changes: Json) -> Json:
        """Change an instance's configuration, name, labels or pin."""
        return self._rest.ask(Json, "PATCH", f"/api/v1/instances/{quote(reference, safe='')}", changes)

    def delete(self, reference: str) -> Json:
        """Request the deletion of an instance."""
        return self._rest.ask(Json, "DELETE", f"/api/v1/instances/{quote(reference, safe='')}")

    def chains(self) -> list[Json]:
        """Return all chains, by name."""
        return list(self._pages("chains", "chains"))

    def chain(self, reference: str) -> Json:
        """Return one chain, by id or name."""
        return self._get(f"chains/{quote(reference, safe='')}")

    def create_chain(self, order: Json) -> Json:
        """Order a chain."""
        return self._rest.ask(Json, "POST", "/api/v1/chains", order)

    def delete_chain(self, reference: str) -> Json:
        """Request the deletion of a chain, and of the instances that were created with it."""
        return self._rest.ask(Json, "DELETE", f"/api/v1/chains/{quote(reference, safe='')}")

    def migrate(self, reference: str, target: str | None) -> Json:
        """Request a migration."""
        order = {"instance": reference} | ({"target": target} if target else {})
        return self._rest.ask(Json, "POST", "/api/v1/migrations", order)

    def migration(self, epoch: int, wait_s: float = 0) -> Json:
        """Return a migration, at its end or after ``wait_s``, which is less than a request's time limit."""
        return self._get(f"migrations/{epoch}?{urlencode({'wait_s': wait_s})}")

    def migrations(self, instance: str | None, most: int) -> list[Json]:
        """Return migrations, newest first; ``instance``: its id."""
        query = {"limit": most} | ({"instance": instance} if instance else {})
        return self._get(f"migrations?{urlencode(query)}")["migrations"]

    def why(self, reference: str) -> Json:
        """Return the reason for an instance's location."""
        return self._get(f"placement/why/{quote(reference, safe='')}")

    def load(self) -> Json:
        """Return the newest measurement."""
        return self._get("load")

    def events(self, after: int | None = None, subject: str | None = None) -> Iterator[Json]:
        """Follow events from now on, or ``after`` an id. Empty ones come between them, the first at once."""
        given = {"after": after, "subject": subject}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        for line in self._rest.stream(f"/api/v1/events?{query}"):
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))
            elif line.startswith(":"):
                yield {}

    def _get(self, path: str) -> Json:
        return self._rest.ask(Json, "GET", f"/api/v1/{path}")

    def _pages(self, path: str, member: str) -> Iterator[Json]:
        marker: str | None = None
        while True:
            query = {"limit": _PAGE} | ({"marker": marker} if marker else {})
            page = self._get(f"{path}?{urlencode(query)}")
            yield from page[member]
            marker = page["next"]
            if marker is None:
                return
