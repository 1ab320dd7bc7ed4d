"""Everything that can go wrong, as one tree.

::

    UnoctlError                  exit status 1
    +-- UsageError               exit status 2: the command line cannot be carried out as written
    |   +-- ConfigChoiceError    no configuration file found, or several labs to choose from
    +-- ConfigError              the configuration file cannot be read or is wrong
    +-- ToolError                an Open vSwitch tool is missing, failed or did not answer in time
    +-- ApiError
    |   +-- ApiUnreachableError  nothing listens at the REST address, or no permission
    |   +-- ApiNoAnswerError     the request arrived and was not answered: the outcome is not known
    |   +-- ApiAnswerError       the answer is not what the contract promises
    |   +-- ApiRefusedError      refused: status, code and detail of the problem+json
    +-- PlumbingError            bridges or ports could not be changed over OVSDB
    +-- TextError                the output of an Open vSwitch tool cannot be understood
    |   +-- ActionSyntaxError    ... a list of data-path actions
    +-- PacketError              bytes that are not the packet they should be
    +-- TraceError               a packet's path cannot be followed
"""


class UnoctlError(Exception):
    """Base of the tree. ``str(error)`` is one line for the operator: the thing, the value, what to do.

    Attributes:
        code: a stable word for scripts, printed with ``--format=json``.
        exit_status: what the process exits with.
    """

    code: str = "failed"
    exit_status: int = 1


class UsageError(UnoctlError):
    """The command line cannot be carried out as written."""

    code = "usage"
    exit_status = 2


class ConfigChoiceError(UsageError):
    """There is no configuration file, or more than one lab to choose from."""

    code = "config-choice"


class ConfigError(UnoctlError):
    """The configuration file cannot be read or its content is wrong."""

    code = "config"


class ToolError(UnoctlError):
    """An Open vSwitch tool is missing, failed or did not answer in time."""

    code = "tool"


class ApiError(UnoctlError):
    """Base of what can go wrong between unoctl and oneswitchd, or nfagent."""

    code = "api"


class _SilenceError(ApiError):
    """No answer; the code begins with who should have given one."""

    suffix: str

    def __init__(self, text: str, peer: str = "oneswitchd") -> None:
        super().__init__(text)
        self.code = f"{peer}-{self.suffix}"


class ApiUnreachableError(_SilenceError):
    """Nothing answers at the REST address."""

    suffix = "unreachable"


class ApiNoAnswerError(_SilenceError):
    """The request arrived but was not answered, or not in time; the outcome is not known."""

    suffix = "no-answer"


class ApiAnswerError(ApiError):
    """The answer is not of the form that was promised: docs/architecture.md, docs/openapi.json."""

    code = "api-answer"


class ApiRefusedError(ApiError):
    """The request was refused (RFC 9457).

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


class PlumbingError(UnoctlError):
    """Bridges or ports could not be changed over OVSDB."""

    code = "plumbing"


class TextError(UnoctlError):
    """The output of an Open vSwitch tool cannot be understood."""

    code = "text"


class ActionSyntaxError(TextError):
    """A list of data-path actions that does not follow the grammar."""

    code = "odp-actions"


class PacketError(UnoctlError):
    """Bytes that are not the packet they should be."""

    code = "packet"


class TraceError(UnoctlError):
    """A packet's path cannot be followed any further."""

    code = "trace"
