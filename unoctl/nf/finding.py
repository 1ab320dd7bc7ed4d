"""Selection of a command's nfagent, and of the token.

Order: ``--agent``, ``--lab NAME``, ``$NFAGENT_API``, the agent.toml that ``$NFAGENT_CONFIG`` names,
``/etc/nfagent/agent.toml``, that of the only running lab which has one. The token for TCP is ``$NFAGENT_TOKEN``.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from server.discovery import labs
from server.errors import ConfigChoiceError, ConfigError

CACERT = "NFAGENT_CACERT"
"""Environment variable: a file of certificate authorities, for ``tls:`` addresses."""

SYSTEM_CONFIG = Path("/etc/nfagent/agent.toml")
_IN_LAB = Path("nfagent") / "agent.toml"


def address(
    named: str | None, lab: str | None, environment: Mapping[str, str], system_config: Path = SYSTEM_CONFIG
) -> str:
    """Return ``unix:PATH``, ``tcp:HOST:PORT`` or ``tls:HOST:PORT``.

    Raises:
        ConfigError: agent.toml cannot be read, or names no address.
        ConfigChoiceError: no agent is known, or several labs have one.
    """
    if found := named or (None if lab else environment.get("NFAGENT_API")):
        return found
    if lab is None and (config := environment.get("NFAGENT_CONFIG")):
        return _listened(Path(config))
    running = {name: path.parent / _IN_LAB for name, path in labs(environment).items() if lab in (None, name)}
    files = {name: path for name, path in running.items() if path.exists()}
    if lab is None and system_config.exists():
        return _listened(system_config)
    if len(files) == 1:
        return _listened(*files.values())
    if files:
        raise ConfigChoiceError(f"several labs are running; choose one: {', '.join(f'--lab {name}' for name in files)}")
    looked = f"lab {lab} has none" if lab else f"nothing names one, {system_config} does not exist, and no lab has one"
    raise ConfigChoiceError(
        f"cannot find nfagent: {looked}; start one (nfagent serve, or uno-lab demo --keep), or give its address: "
        "--agent unix:/run/nfagent/nfagent.sock"
    )


def _listened(path: Path) -> str:
    """Return the first address in agent.toml: usually the unix socket."""
    try:
        listen = tomllib.loads(path.read_text()).get("api", {}).get("listen", ["unix:/run/nfagent/nfagent.sock"])
        if not isinstance(listen, list):
            raise TypeError(f"{listen!r} is not a list of addresses")
        return str(listen[0])
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name the address with --agent") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, IndexError, TypeError) as error:
        raise ConfigError(f"{path}: cannot read [api] listen ({error}); see: nfagent check") from error
