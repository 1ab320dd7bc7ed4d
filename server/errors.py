"""The errors of describing and querying one server, as one tree.

::

    ServerError
    +-- UsageError                  an invalid command line
    |   +-- ConfigChoiceError       no configuration file found, or several labs to choose from
    +-- ConfigError                 a configuration file cannot be read or is wrong
    |   +-- ConfigFaultError        ... at one key: names file, line and key
    +-- ToolError                   an Open vSwitch tool or daemon is missing, failed or did not answer in time
    +-- ApiError                    a REST interface
    |   +-- ApiUnreachableError     nothing listens at the address, or no permission
    |   +-- ApiNoAnswerError        the request arrived but was not answered: the outcome is unknown
    |   +-- ApiAnswerError          the answer violates the contract
    |   +-- ApiRefusedError         refused: status, code and detail of the problem+json
    +-- PlumbingError               bridges or ports of a switch, over OVSDB
    |   +-- DatabaseError           a switch's OVSDB
    |   |   +-- DatabaseUnreachableError  cannot connect, or the connection broke
    |   |   +-- DatabaseRefusedError      the database rejected a transaction
    |   |   +-- SwitchNotApplyingError    ovs-vswitchd did not apply the change in time
    |   +-- InterfaceError          Open vSwitch could not open an interface (its message is quoted)
    |   +-- OwnershipError          something of that name exists but was not created by plumbing
    +-- TextError                   the output of an Open vSwitch tool cannot be understood
        +-- ActionSyntaxError       ... a list of data-path actions

Every message names the thing, what was found, what was expected, and what to do.
"""

from pathlib import Path


class ServerError(Exception):
    """Base of the tree. ``str(error)`` is one line for the operator: the thing, the value, what to do.

    Attributes:
        code: a stable word for scripts.
        exit_status: of a command that ends because of it.
    """

    code: str = "failed"
    exit_status: int = 1


class UsageError(ServerError):
    """An invalid command line."""

    code = "usage"
    exit_status = 2


class ConfigChoiceError(UsageError):
    """There is no configuration file, or more than one lab to choose from."""

    code = "config-choice"


class ConfigError(ServerError):
    """A configuration file that cannot be read or is wrong."""

    code = "config"


class ConfigFaultError(ConfigError):
    """A fault at one place of a configuration file.

    Attributes:
        path: the file.
        line: line number from 1; None if no line is to blame (the file is missing).
        key: dotted key such as ``switch[1].link.local``; "" if no key is to blame.
        problem: the fault, and what was expected.
    """

    def __init__(self, path: Path, line: int | None, key: str, problem: str) -> None:
        self.path = path
        self.line = line
        self.key = key
        self.problem = problem
        place = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {key}: {problem}" if key else f"{place}: {problem}")


class ToolError(ServerError):
    """An Open vSwitch tool or daemon is missing, failed or did not answer in time."""

    code = "tool"


class ApiError(ServerError):
    """Base of errors of requests to oneswitchd or nfagent."""

    code = "api"


class _SilenceError(ApiError):
    """A request without an answer; the code begins with the peer's name."""

    suffix: str

    def __init__(self, text: str, peer: str = "oneswitchd") -> None:
        super().__init__(text)
        self.code = f"{peer}-{self.suffix}"


class ApiUnreachableError(_SilenceError):
    """Nothing answers at the REST address."""

    suffix = "unreachable"


class ApiNoAnswerError(_SilenceError):
    """The request arrived but was not answered, or not in time; the outcome is unknown."""

    suffix = "no-answer"


class ApiAnswerError(ApiError):
    """An answer that does not have the promised form: docs/architecture.md, docs/openapi.json."""

    code = "api-answer"


class ApiRefusedError(ApiError):
    """A refused request (RFC 9457).

    Attributes:
        status: HTTP status.
        code: the contract's word, for example ``interface-missing``.
        detail: the peer's sentence.
    """

    def __init__(self, status: int, code: str, detail: str, peer: str = "oneswitchd") -> None:
        super().__init__(f"refused by {peer} ({code}): {detail}")
        self.status = status
        self.code = code
        self.detail = detail


class PlumbingError(ServerError):
    """Base of what can go wrong with bridges and ports over OVSDB."""

    code = "plumbing"


class DatabaseError(PlumbingError):
    """Base of errors of one switch's OVSDB."""


class DatabaseUnreachableError(DatabaseError):
    """The database does not answer at its address."""


class DatabaseRefusedError(DatabaseError):
    """The database rejected a transaction."""


class SwitchNotApplyingError(DatabaseError):
    """The database accepted the change, but ovs-vswitchd did not apply it in time."""


class InterfaceError(PlumbingError):
    """Open vSwitch could not open one or more interfaces.

    Attributes:
        switch: name of the switch.
        failures: Open vSwitch's own error text, by interface name.
    """

    def __init__(self, switch: str, failures: dict[str, str]) -> None:
        self.switch = switch
        self.failures = dict(failures)
        listed = "; ".join(f"interface {name}: {text}" for name, text in sorted(failures.items()))
        super().__init__(f"switch {switch}: {listed}")


class OwnershipError(PlumbingError):
    """Something of that name exists but was not created by plumbing."""


class TextError(ServerError):
    """The output of an Open vSwitch tool cannot be understood."""

    code = "text"


class ActionSyntaxError(TextError):
    """A list of data-path actions that does not follow the grammar."""

    code = "odp-actions"
