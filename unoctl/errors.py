"""Everything that can go wrong, as one tree.

::

    UnoctlError                  exit status 1
    +-- UsageError               exit status 2: the command line cannot be carried out as written
    |   +-- ConfigChoiceError    no configuration file found, or several labs to choose from
    +-- ConfigError              the configuration file cannot be read or is wrong
    +-- ToolError                an Open vSwitch tool is missing, failed or did not answer in time
    +-- ApiError
    |   +-- ApiUnreachableError  nothing listens at the REST address, or no permission
    |   +-- ApiNoAnswerError      oneswitchd got the request and did not answer: the outcome is not known
    |   +-- ApiAnswerError       the answer is not what docs/architecture.md promises
    |   +-- ApiRefusedError      oneswitchd refused: status, code and detail of the problem+json
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
    """Base of what can go wrong between unoctl and oneswitchd."""

    code = "api"


class ApiUnreachableError(ApiError):
    """Nothing answers at the REST address."""

    code = "oneswitchd-unreachable"


class ApiNoAnswerError(ApiError):
    """oneswitchd got the request but did not answer, or not in time; the outcome is not known."""

    code = "oneswitchd-no-answer"


class ApiAnswerError(ApiError):
    """The answer is not of the form that docs/architecture.md promises."""

    code = "oneswitchd-answer"


class ApiRefusedError(ApiError):
    """oneswitchd refused the request (RFC 9457).

    Attributes:
        status: HTTP status.
        code: the contract's word, for example ``interface-missing``.
        detail: oneswitchd's sentence.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"refused by oneswitchd ({code}): {detail}")
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
