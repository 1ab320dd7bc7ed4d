"""The server of the demonstrations of load balancers: switches, hosts, controller, agent, web servers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from lab.agent import AgentProcess
from lab.checks import require_switches
from lab.control_plane import Oneswitchd, OsKenController, free_port
from lab.http_traffic import WebServer
from lab.programs import find_example
from lab.server import Lab
from lab.spec import HYPERVISOR, HostSpec, InterfaceSpec, LabSpec, PortSpec, SwitchSpec

SNIC = "snic0"
WEBS = ("web1", "web2", "web3")
OUTSIDE, SECOND = "out1", "out2"
"""Clients behind the sNIC's wire, and behind a plain NIC of the hypervisor, served even while the sNIC is dead."""

WEB_VIP, DATA_VIP, BALANCER = "10.0.0.100", "10.0.0.101", "10.0.0.50"
SINK = "web3"
"""The receiver of the UDP service's packets."""

_FIRST_PORT = 1000
_ANSWER_BYTES = 512
_SLOTS = 2, 1


class Site:
    """All processes of a demonstration.

    Args:
        name: of the lab, and of the command that starts it.
        controller: the application of ``examples/`` in charge, and its configuration: a line each.
        console: shows the progress.
        settings: further settings of agent.toml.
        slots: number of slots on each switch, and of interfaces of each.
        prepare: called with the agent's directory before oneswitchd and the agent start, and with what is closed after
            they have ended; returns variables of their environment.

    Attributes:
        function_port: name of the first network function's virtual port.
        webs: the web servers, by host.

    Raises:
        LabError: something did not start; nothing remains of it.
    """

    function_port = f"nf{_FIRST_PORT}"

    def __init__(
        self,
        name: str,
        controller: tuple[str, Sequence[str]],
        console: Console,
        settings: dict[str, Any],
        prepare: Callable[[Path, ExitStack], Mapping[str, str]] | None = None,
        slots: tuple[int, int] = _SLOTS,
    ) -> None:
        self.name = name
        application, lines = controller
        port = free_port()
        with ExitStack() as stack:
            spec = _spec(f"tcp:127.0.0.1:{port}").with_slots(*slots)
            self.lab = stack.enter_context(Lab(spec, name).start(lambda text: _say(console, text)))
            _say(console, "starting oneswitchd, an os-ken service chain, nfagent and three web servers")
            chain = self._write_chain(lines)
            self.controller = stack.enter_context(
                OsKenController(find_example(application), self.lab.directory, port, ["--config-file", str(chain)])
            )
            directory = self.lab.directory / "nfagent"
            self._variables = prepare(directory, stack) if prepare else None
            self.oneswitchd = Oneswitchd(self.lab.server_toml, variables=self._variables)
            stack.callback(self._stop_oneswitchd)
            self.oneswitchd.wait_up(controllers=1)
            numbers = {"port_numbers": {"first": _FIRST_PORT, "last": _FIRST_PORT + 99}}
            agent = AgentProcess(self.lab, directory, numbers | settings, variables=self._variables)
            self.agent = stack.enter_context(agent)
            self.webs = {host: stack.enter_context(WebServer(self.lab, host, _ANSWER_BYTES)) for host in WEBS}
            self._stack = stack.pop_all()

    @property
    def dashboard(self) -> str:
        """Return the address of the agent's dashboard."""
        return f"{self.agent.address}/dashboard"

    def require_running(self) -> None:
        """Raise if a process has ended, except those of an sNIC without power.

        Raises:
            LabError: it has ended.
        """
        for process in (self.oneswitchd, self.controller, self.agent):
            process.require_running()
        require_switches(self.lab.state.switches[:1])

    def restart_oneswitchd(self) -> None:
        """Start oneswitchd again after it ended."""
        self.oneswitchd.stop()
        self.oneswitchd = Oneswitchd(self.lab.server_toml, variables=self._variables)

    def restart_agent(self) -> None:
        """Start nfagent again after it ended."""
        self.agent.stop()
        self.agent.start()

    def restart_web(self, host: str) -> None:
        """Start a web server again after it was closed."""
        self.webs[host] = self._stack.enter_context(WebServer(self.lab, host, _ANSWER_BYTES))

    def _stop_oneswitchd(self) -> None:
        # It may be another process than at the start.
        self.oneswitchd.stop()

    def _write_chain(self, lines: Sequence[str]) -> Path:
        """Write the configuration of the controller's application."""
        path = self.lab.directory / "chain.conf"
        path.write_text("\n".join(("[DEFAULT]", *lines, "")))
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def one_function(*vips: str) -> tuple[str, list[str]]:
    """Return the controller that leads the traffic of addresses through the first network function."""
    return "service_chain.py", [f"vips = {', '.join(vips)}", f"network_function = {Site.function_port}"]


def balancer_config(
    lab: Lab,
    webs: Sequence[str] = WEBS,
    sink: str = SINK,
    *,
    own: str = BALANCER,
    web_vip: str = WEB_VIP,
    data_vip: str = DATA_VIP,
) -> dict[str, Any]:
    """Configure HTTP to web servers and UDP to a host; it rewrites sources, so that replies return to it."""
    common = {"mode": "nat", "snat": True}

    def backends(*names: str) -> list[dict[str, str]]:
        return [{"name": name, "address": lab.host(name).ip} for name in names]

    web = {"name": "web", "address": web_vip, "port": 80, "protocol": "tcp", **common, "backends": backends(*webs)}
    data = {"name": "data", "address": data_vip, "port": 40000, "protocol": "udp", **common, "backends": backends(sink)}
    return {"interfaces": [{"addresses": [f"{own}/24"]}], "vips": [web, data]}


def _spec(controller: str) -> LabSpec:
    places = {name: InterfaceSpec(HYPERVISOR, name) for name in WEBS}
    places |= {OUTSIDE: InterfaceSpec(SNIC, "p0"), SECOND: InterfaceSpec(HYPERVISOR, "eno1")}
    hosts, ports = [], []
    for number, (name, place) in enumerate(places.items(), 1):
        hosts.append(HostSpec(name, (place,), f"10.0.0.{number}/24", f"02:00:00:00:00:{number:02x}"))
        ports.append(PortSpec(number, name, place.switch, place.name))
    switches = (SwitchSpec(HYPERVISOR), SwitchSpec(SNIC, "pf0hpf", f"pcie-{SNIC}"))
    return LabSpec(switches, tuple(hosts), tuple(ports), controllers=(controller,))


def _say(console: Console, text: str) -> None:
    console.print(f"[dim]... {text}[/dim]")
