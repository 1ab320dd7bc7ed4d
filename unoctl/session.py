"""What every command starts from: the configuration file, oneswitchd's REST, and where to print."""

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
    """What the operator said about which server is meant."""

    config: Path | None
    lab: str | None
    environment: Mapping[str, str]


class Session:
    """One run of the command. The file is read, and the client made, when first asked for."""

    def __init__(self, choice: Choice, output: Output) -> None:
        self._choice = choice
        self.output = output

    @property
    def lab(self) -> str | None:
        """The lab that the operator named."""
        return self._choice.lab

    @cached_property
    def found(self) -> Found:
        """The configuration file; says which on stderr where the operator did not name it.

        Raises:
            ConfigError, ConfigChoiceError: see :func:`server.discovery.find`.
        """
        found = discovery.find(self._choice.config, self._choice.lab, self._choice.environment)
        if found.chosen:
            self.output.note(f"using {found.path} ({found.reason})")
        return found

    @cached_property
    def server(self) -> ServerConfig:
        """The server that the file describes.

        Raises:
            ConfigError: the file is wrong.
        """
        return ServerConfig.load(self.found.path)

    def client(self) -> Client:
        """A new connection to oneswitchd."""
        return Client.of(self.server.oneswitchd)
