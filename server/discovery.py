"""Selection of a command's configuration file.

Order: ``--config FILE``, ``--lab NAME``, ``$ONESWITCH_CONFIG``, ``/etc/oneswitch/server.toml``, the only running lab.
A lab is a folder ``$UNO_LAB_DIR/NAME`` (default ``/tmp/uno-lab-UID/NAME``) with a ``server.toml``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from server import processes
from server.errors import ConfigChoiceError, ConfigError

SYSTEM_CONFIG = Path("/etc/oneswitch/server.toml")


@dataclass(frozen=True)
class Found:
    """A configuration file and why it was selected; ``chosen`` is true if `find` chose it, not the operator."""

    path: Path
    reason: str
    chosen: bool


def lab_root(environment: Mapping[str, str]) -> Path:
    """Return the folder of all labs."""
    configured = environment.get("UNO_LAB_DIR")
    return Path(configured) if configured else Path(f"/tmp/uno-lab-{os.geteuid()}")


def labs(environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the running labs, by name: their server.toml."""
    try:
        folders = sorted(lab_root(environment).iterdir())
    except OSError:
        return {}
    return {folder.name: folder / "server.toml" for folder in folders if _runs(folder)}


def find(
    config: Path | None,
    lab: str | None,
    environment: Mapping[str, str],
    system_config: Path = SYSTEM_CONFIG,
) -> Found:
    """Select one file.

    Raises:
        ConfigError: the named file does not exist.
        ConfigChoiceError: none is named, and no lab or several labs are running.
    """
    if config is not None:
        return Found(_existing(config, "--config"), "--config", chosen=False)
    if lab is not None:
        return _named_lab(lab, environment)
    if named := environment.get("ONESWITCH_CONFIG"):
        return Found(_existing(Path(named), "ONESWITCH_CONFIG"), "ONESWITCH_CONFIG", chosen=False)
    # An unreadable file exists, too: reading it reports the error.
    if os.path.lexists(system_config):
        return Found(system_config, "the system's configuration", chosen=False)
    return _only_lab(environment, system_config)


def _existing(path: Path, origin: str) -> Path:
    try:
        there = path.is_file()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror} (named by {origin}); run as its owner") from error
    if not there:
        raise ConfigError(f"{path}: no such file (named by {origin}); give the path of a server.toml")
    return path


def _named_lab(name: str, environment: Mapping[str, str]) -> Found:
    running = labs(environment)
    if name in running:
        return Found(running[name], f"lab {name}", chosen=False)
    raise ConfigChoiceError(f"lab '{name}' is not running under {lab_root(environment)}; {_hint(running)}")


def _only_lab(environment: Mapping[str, str], system_config: Path) -> Found:
    running = labs(environment)
    if len(running) == 1:
        ((name, path),) = running.items()
        return Found(path, f"the only running lab, {name}", chosen=True)
    if running:
        raise ConfigChoiceError(f"several labs are running; choose one: {_hint(running)}")
    raise ConfigChoiceError(
        f"no configuration: neither --config nor ONESWITCH_CONFIG is given, {system_config} does not exist, and no lab "
        f"is running under {lab_root(environment)}; write a server.toml, or start a lab with: uno-lab up"
    )


def _hint(running: Mapping[str, Path]) -> str:
    if not running:
        return "no lab is running; start one with: uno-lab up"
    return ", ".join(f"--lab {name}" for name in running)


def _runs(folder: Path) -> bool:
    """Tell whether the process in lab.json is running and is the same one; without lab.json: perhaps."""
    if not os.path.isfile(folder / "server.toml"):  # noqa: PTH113 - Path.is_file() raises where it may not look
        return False
    try:
        record = json.loads((folder / "lab.json").read_text())
        pid, start_time = int(record["pid"]), record.get("start_time")
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    started = processes.start_time(pid)
    return started is not None and start_time in (None, started)
