"""Everything that plumbing raises.

    PlumbingError
    ├── ConfigError                     server.toml: names file, line and key
    ├── DatabaseError                   a switch's OVSDB
    │   ├── DatabaseUnreachableError    cannot be connected to, or the connection broke
    │   ├── DatabaseRefusedError        the database rejected a transaction
    │   └── SwitchNotApplyingError      ovs-vswitchd did not take the change over in time
    ├── InterfaceError                  Open vSwitch could not open an interface (its own words are quoted)
    └── OwnershipError                  something of that name exists and is not ours to change

Every message names the thing, what was found, what was expected, and what to do.
"""

from pathlib import Path


class PlumbingError(Exception):
    """Base of the tree above; catch this to catch them all."""


class ConfigError(PlumbingError):
    """A server.toml that cannot be used.

    Attributes:
        path: the file.
        line: line number from 1; None where the fault is not at one place (the file is missing).
        key: dotted key such as ``switch[1].link.local``; "" where there is none.
        problem: what is wrong with it, and what was expected.
    """

    def __init__(self, path: Path, line: int | None, key: str, problem: str) -> None:
        self.path = path
        self.line = line
        self.key = key
        self.problem = problem
        place = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {key}: {problem}" if key else f"{place}: {problem}")


class DatabaseError(PlumbingError):
    """Something about the OVSDB of one switch."""


class DatabaseUnreachableError(DatabaseError):
    """The database does not answer at its address."""


class DatabaseRefusedError(DatabaseError):
    """The database rejected a transaction."""


class SwitchNotApplyingError(DatabaseError):
    """The database took the change, but ovs-vswitchd did not apply it in time."""


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
    """Something of that name exists already and was not made by us."""
