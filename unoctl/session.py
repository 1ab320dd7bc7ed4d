"""The common start of every command: the configuration file, oneswitchd's REST, and the output."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from server import discovery
from server.config import ServerConfig
from server.discovery import Found
from server.oneswitchd.client import Client
from unoctl.render import Output


@dataclass(frozen=True)
class Choice:
    """The operator's choice of a server."""

    config: Path | None
    lab: str | None
    environment: Mapping[str, str]


class Session:
    """One run of the command. It reads the file and creates the client on first use."""

    def __init__(self, choice: Choice, output: Output) -> None:
        self._choice = choice
        self.output = output

    @property
    def lab(self) -> str | None:
        """The lab that the operator named."""
        return self._choice.lab

    @cached_property
    def found(self) -> Found:
        """Return the configuration file; print its name to stderr if the operator did not name it.

        Raises:
            ConfigError, ConfigChoiceError: see :func:`server.discovery.find`.
        """
        found = discovery.find(self._choice.config, self._choice.lab, self._choice.environment)
        if found.chosen:
            self.output.note(f"using {found.path} ({found.reason})")
        return found

    @cached_property
    def server(self) -> ServerConfig:
        """Return the server that the file describes.

        Raises:
            ConfigError: the file is invalid.
        """
        return ServerConfig.load(self.found.path)

    def client(self) -> Client:
        """Return a new connection to oneswitchd."""
        return Client.of(self.server.oneswitchd)
