"""Everything that nfagent raises; the errors of one server are `server.errors`.

    AgentError
    ├── RefusedError                    a refused request: a ``code``, an HTTP ``status``, a detail
    │   ├── UnauthorizedError           401
    │   ├── ForbiddenError              403: not allowed for this client
    │   ├── QuotaError                  403: above the project's quota
    │   ├── UnknownError                404: it does not exist
    │   ├── ConflictError               409: conflicts with the current state
    │   ├── MediaTypeError              415: not JSON
    │   ├── InvalidError                422: an invalid value
    │   └── UnavailableError            503: temporarily unavailable
    ├── StoreError                      the store cannot be used
    ├── LaunchError                     an instance's process cannot be started, found or stopped
    ├── ControlError                    an instance's control socket
    │   ├── ControlUnreachableError     no process answers
    │   └── ControlRefusedError         the instance refused, with its own ``code`` and detail
    └── WiringError                     a port could not be connected to its slot

Every message names the thing, what was found, what was expected, and what to do.
"""


class AgentError(Exception):
    """Base of the tree above; catch this to catch them all."""


class RefusedError(AgentError):
    """A request that cannot be fulfilled.

    Attributes:
        status: of HTTP.
        code: for programs, as ``name-taken``; does not change between releases.
        detail: for people.
    """

    status = 500

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(detail)


class UnauthorizedError(RefusedError):
    """A missing or unknown token."""

    status = 401


class ForbiddenError(RefusedError):
    """A known client without the permission."""

    status = 403


class QuotaError(RefusedError):
    """More than the project's quota."""

    status = 403

    def __init__(self, detail: str) -> None:
        super().__init__("quota-exceeded", detail)


class UnknownError(RefusedError):
    """Something that does not exist, or that this client may not see."""

    status = 404


class ConflictError(RefusedError):
    """A conflict with the current state."""

    status = 409


class MediaTypeError(RefusedError):
    """A body that is not declared as JSON."""

    status = 415

    def __init__(self, detail: str) -> None:
        super().__init__("media-type-unknown", detail)


class InvalidError(RefusedError):
    """An invalid value.

    Attributes:
        field: dotted name of the member of the request.
    """

    status = 422

    def __init__(self, code: str, detail: str, field: str = "") -> None:
        super().__init__(code, detail)
        self.field = field


class UnavailableError(RefusedError):
    """A temporarily unavailable answer."""

    status = 503


class StoreError(AgentError):
    """The store cannot be used."""


class DiskFullError(StoreError):
    """The store's disk has no room; nothing was changed."""


class LaunchError(AgentError):
    """An instance's process cannot be started, found or stopped."""


class ControlError(AgentError):
    """An error of an instance's control socket."""


class ControlUnreachableError(ControlError):
    """No process answers at the socket, or the connection broke."""


class ControlRefusedError(ControlError):
    """The instance refused.

    Attributes:
        code: the instance's code, such as ``configuration``.
        detail: the instance's message.
    """

    def __init__(self, verb: str, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{verb} was refused: {detail} ({code})")


class WiringError(AgentError):
    """A virtual port could not be connected to its slot, or disconnected."""
