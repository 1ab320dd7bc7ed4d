"""``unoctl log``: oneswitchd's log levels, by module."""

from collections.abc import Sequence

from server.errors import UsageError
from server.oneswitchd.client import Client
from unoctl.render import View, table

LEVELS = ("off", "error", "warn", "info", "debug", "trace")
DEFAULT = "default"


def parse(settings: Sequence[str]) -> dict[str, str]:
    """Parse ``[MODULE=]LEVEL`` ... into module to level; without a module: ``default``.

    Raises:
        UsageError: the level is not one of the six.
    """
    levels: dict[str, str] = {}
    for setting in settings:
        module, _, level = setting.rpartition("=")
        if level not in LEVELS:
            raise UsageError(f"'{level}' is not a log level (in '{setting}'); expected one of {', '.join(LEVELS)}")
        levels[module or DEFAULT] = level
    return levels


def show(client: Client) -> View:
    """Show the current levels."""
    return _view(client.log_levels())


def change(client: Client, levels: dict[str, str]) -> View:
    """Set levels, by module; show the resulting levels.

    Raises:
        ApiRefusedError: a module that oneswitchd does not know.
    """
    return _view(client.set_log_levels(levels))


def _view(levels: dict[str, str]) -> View:
    rows = sorted(levels.items(), key=lambda item: (item[0] != DEFAULT, item[0]))
    return View(levels, table(("MODULE", "LEVEL"), rows))
