"""Everything that nfagent raises; the errors of one server are `server.errors`.

    AgentError
    ├── RefusedError                    what a client asked for cannot be: a ``code``, an HTTP ``status``, a detail
    │   ├── UnauthorizedError           401
    │   ├── ForbiddenError              403: not this client's to do
    │   ├── QuotaError                  403: more than the project may have
    │   ├── UnknownError                404: there is no such thing
    │   ├── ConflictError               409: not now, or not beside what there is
    │   ├── MediaTypeError              415: not JSON
    │   ├── InvalidError                422: understood, and wrong
    │   └── UnavailableError            503: what would answer is not there
    ├── StoreError                      the store cannot be used
    ├── LaunchError                     an instance's process cannot be started, found or stopped
    ├── ControlError                    an instance's control socket
    │   ├── ControlUnreachableError     nobody answers there
    │   └── ControlRefusedError         the instance refused: its own ``code`` and detail
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
    """No token, or none that is known."""

    status = 401


class ForbiddenError(RefusedError):
    """Known, and not allowed to."""

    status = 403


class QuotaError(RefusedError):
    """More than the project may have."""

    status = 403

    def __init__(self, detail: str) -> None:
        super().__init__("quota-exceeded", detail)


class UnknownError(RefusedError):
    """There is no such thing, or none that this client may see."""

    status = 404


class ConflictError(RefusedError):
    """Does not go together with what there is."""

    status = 409


class MediaTypeError(RefusedError):
    """A body that does not say that it is JSON."""

    status = 415

    def __init__(self, detail: str) -> None:
        super().__init__("media-type-unknown", detail)


class InvalidError(RefusedError):
    """A value that cannot be.

    Attributes:
        field: dotted name of the member of the request.
    """

    status = 422

    def __init__(self, code: str, detail: str, field: str = "") -> None:
        super().__init__(code, detail)
        self.field = field


class UnavailableError(RefusedError):
    """What would answer is not there (yet)."""

    status = 503


class StoreError(AgentError):
    """The store cannot be used."""


class LaunchError(AgentError):
    """An instance's process cannot be started, found or stopped."""


class ControlError(AgentError):
    """Something about an instance's control socket."""


class ControlUnreachableError(ControlError):
    """Nobody answers at the socket, or the connection broke."""


class ControlRefusedError(ControlError):
    """The instance refused.

    Attributes:
        code: its own, as ``configuration``.
        detail: its own words.
    """

    def __init__(self, verb: str, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{verb} was refused: {detail} ({code})")


class WiringError(AgentError):
    """A virtual port could not be connected to its slot, or taken away."""
