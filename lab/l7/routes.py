"""The configuration of the load balancer, and the requests that show it."""

from dataclasses import dataclass
from typing import Any

from lab.demo.site import BALANCER, WEB_VIP
from lab.server import Lab

WWW, API = "www.example.org", "api.example.org"
HEAVY, LIGHT, FOR_API = "web1", "web2", "web3"
"""The two servers of the pool ``web``, and the one of the pool ``api``."""
WEIGHT = 2
"""The weight of the heavy server; the light one has 1."""

# A killed server refuses connections at once. A live one may answer late on busy cores, and must not be taken for dead.
_PERIOD_MS, _FALL, _RISE = 1000, 3, 1


@dataclass(frozen=True)
class Ask:
    """A request, and its expected answer.

    Attributes:
        host, path: of the request.
        servers: any of them may answer; () means the load balancer itself.
        status: of the answer.
        why: the reason, in words.
    """

    host: str
    path: str
    servers: tuple[str, ...]
    status: int
    why: str


ASKS = (
    Ask(WWW, "/", (HEAVY, LIGHT), 200, "no other route matches"),
    Ask(WWW, "/api/users", (FOR_API,), 200, "the path begins with /api"),
    Ask(API, "/", (FOR_API,), 200, f"the host is {API}"),
    Ask(WWW, "/apis", (HEAVY, LIGHT), 200, "/api is a whole segment, so /apis does not begin with it"),
    Ask(WWW, "/old", (), 301, "a redirect"),
    Ask(WWW, "/ping", (), 200, "a fixed answer"),
    Ask(WWW, "/api/users", (FOR_API,), 200, "still the same connection"),
)
"""Requests for a single connection."""


def balancer_config(lab: Lab) -> dict[str, Any]:
    """Configure a listener with five routes, and two pools whose servers are checked."""
    check = {"kind": "http", "fall": _FALL, "rise": _RISE}
    check |= {"interval": f"{_PERIOD_MS}ms", "timeout": f"{_PERIOD_MS}ms"}

    def backend(name: str, weight: int = 1) -> dict[str, Any]:
        return {"name": name, "address": lab.host(name).ip, "port": 80, "weight": weight}

    routes = [
        {"name": "api-path", "path": "/api", "pool": "api"},
        {"name": "api-host", "host": [API], "pool": "api"},
        {"name": "old", "path": "/old", "redirect": {"status": 301, "location": f"http://{WWW}/"}},
        {"name": "ping", "path": "/ping", "answer": {"status": 200, "body": "pong\n"}},
        {"name": "rest", "pool": "web"},
    ]
    return {
        "interfaces": [{"addresses": [f"{BALANCER}/24"]}],
        # Half-sent heads wait for a whole move, which takes long on busy cores.
        "timeouts": {"head": "60s"},
        "listeners": [{"name": "web", "address": WEB_VIP, "port": 80, "forwarded_for": True, "routes": routes}],
        "pools": [
            {"name": "web", "health": check, "backends": [backend(HEAVY, WEIGHT), backend(LIGHT)]},
            {"name": "api", "health": check, "backends": [backend(FOR_API)]},
        ],
    }
