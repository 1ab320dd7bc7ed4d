"""A daemon's control socket, with the lab's own errors."""

from pathlib import Path

from lab.errors import ControlError
from server.errors import ToolError
from server.openvswitch import unixctl as plain


class Unixctl(plain.Unixctl):
    """See `server.openvswitch.unixctl.Unixctl`; raises `ControlError`."""

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(path)
        except ToolError as error:
            raise ControlError(str(error)) from error

    def call(self, command: str, *arguments: str) -> str:
        try:
            return super().call(command, *arguments)
        except ToolError as error:
            raise ControlError(str(error)) from error


def unixctl(path: Path, command: str, *arguments: str) -> str:
    """Run one command over its own connection; see `Unixctl.call`."""
    connection = Unixctl(path)
    try:
        return connection.call(command, *arguments)
    finally:
        connection.close()
