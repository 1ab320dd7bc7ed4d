"""Assembles a monitor from its parts."""

from collections.abc import Mapping

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.config import AgentConfig
from nfagent.launch import Launcher
from nfagent.launch.ssh import SshLauncher
from nfagent.monitor.monitor import ServerMonitor
from nfagent.monitor.switches import RemoteControl, SwitchProbe, local_control
from nfagent.store import Store
from nfagent.wiring import ServerWiring
from server.config import ServerConfig


def make_monitor(
    config: AgentConfig,
    server: ServerConfig,
    store: Store,
    catalog: Catalog,
    capacity: Mapping[str, Capacity],
    launchers: Mapping[str, Launcher],
    switches: ServerWiring,
) -> ServerMonitor:
    """Build the monitor of a server; it skips switches without a control socket in server.toml."""
    probes: dict[str, SwitchProbe] = {}
    remote: set[str] = set()
    for switch in server.switch:
        launcher = launchers[switch.name]
        if isinstance(launcher, SshLauncher):
            remote.add(switch.name)
        if switch.control is not None:
            probes[switch.name] = _probe(launcher, switch.control)
    return ServerMonitor(
        store, catalog, server, capacity, frozenset(remote), probes, switches.ports, config.monitor.period_s
    )


def _probe(launcher: Launcher, control: str) -> SwitchProbe:
    if isinstance(launcher, SshLauncher):
        return SwitchProbe(lambda: RemoteControl(launcher.output, control))
    return SwitchProbe(local_control(control))
