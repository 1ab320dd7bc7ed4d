"""``uno-lab tour``: an emulated server, a controller that sees one switch, traffic, and a port that moves under it."""

import dataclasses
import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from itertools import permutations
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.checks import Check, one_switch, require_switches, run_check
from lab.control_plane import Oneswitchd, OsKenController, free_port
from lab.mobility import MovingHost, Tour
from lab.programs import find_example, typed
from lab.server import Lab
from lab.spec import HYPERVISOR, LabSpec

NAME = "tour"
MOBILE, PEER = "vm2", "out1"
SNIC = "snic0"
RATE = 1000.0
IPERF_S = 3


class Sight:
    """A started server with its one switch and controller.

    Args:
        lab: the server.
        oneswitchd: its oneswitchd.
        controller: its controller.
    """

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, controller: OsKenController) -> None:
        self._lab = lab
        self._oneswitchd = oneswitchd
        self._controller = controller
        self._hosts = [host.name for host in lab.state.hosts]

    def checks(self) -> list[Callable[[], Check]]:
        """Return the checks, in order."""
        return [self.one_switch, self.everybody_reaches_everybody, self.throughput, self.move_out, self.move_back]

    def require_running(self) -> None:
        """Raise if a process has ended.

        Raises:
            LabError: it has ended.
        """
        self._oneswitchd.require_running()
        self._controller.require_running()
        require_switches(self._lab.state.switches)

    def one_switch(self) -> Check:
        """Show one datapath to the controller, with the ports of all switches."""
        self._oneswitchd.wait_up(controllers=1)
        return one_switch(self._controller, self._lab.state)

    def everybody_reaches_everybody(self) -> Check:
        """Ping between all ordered pairs of hosts."""
        pairs = list(permutations(self._hosts, 2))
        deaf = [f"{a} -> {b}" for a, b in pairs if not self._ping(a, b)]
        detail = f"{len(pairs) - len(deaf)} of {len(pairs)} pairs" + (f"; no answer: {', '.join(deaf)}" if deaf else "")
        return Check("all-pairs ping", not deaf, detail, {"pairs": len(pairs), "reached": len(pairs) - len(deaf)})

    def throughput(self) -> Check:
        """Measure TCP from the wire of the sNIC over PCIe to a VM."""
        server = self._lab.popen(
            "vm1", ["iperf3", "--server", "--one-off", "--forceflush"], stdout=subprocess.PIPE, text=True
        )
        with server:
            try:
                _wait_for_line(server, "Server listening")
                client = ["iperf3", "--client", self._lab.host("vm1").ip, f"--time={IPERF_S}", "--json"]
                done = self._lab.exec(PEER, client, timeout_s=30, check=False)
            finally:
                server.kill()
        result = json.loads(done.stdout or "{}")
        received = result.get("end", {}).get("sum_received", {}).get("bits_per_second", 0.0) / 1e6
        detail = f"{received:.0f} Mb/s" if received else result.get("error", "iperf3 reported nothing")
        title = f"TCP {PEER} -> vm1, over the PCIe link"
        return Check(title, received > 0, detail, {"mbps": round(received)})

    def move_out(self) -> Check:
        """Move a VM's port to the sNIC under traffic."""
        return self._move(SNIC)

    def move_back(self) -> Check:
        """And back."""
        return self._move(HYPERVISOR)

    def _move(self, switch: str) -> Check:
        with MovingHost(self._lab, self._oneswitchd, MOBILE, PEER, RATE) as host:
            port = host.move(switch)
            tour = host.finish()
        still_one = len(self._controller.seen()) == 1
        holds = port.switch == switch and still_one and not (tour.lost or tour.duplicated)
        title = f"{MOBILE} moves to {switch} at {RATE:.0f} packets/s each way"
        return Check(title, holds, _summary(tour), _figures(tour))

    def _ping(self, source: str, target: str) -> bool:
        # The first packet waits for ARP and for the controller, hence two attempts.
        command = ["ping", "-q", "-c", "2", "-i", "0.2", "-W", "2", self._lab.host(target).ip]
        return self._lab.exec(source, command, timeout_s=20, check=False).returncode == 0


def run(console: Console, *, keep: bool = False, as_json: bool = False) -> bool:
    """Start everything, run the checks, and print the results; return whether all hold.

    Args:
        console: for people; on standard error when ``as_json``.
        keep: leave it all running until Ctrl-C.
        as_json: print one JSON object on standard output at the end.

    Raises:
        LabError: something did not start, or ended; with its name.
    """
    application = find_example("learning_switch.py")
    port = free_port()
    spec = LabSpec.demo(controllers=(f"tcp:127.0.0.1:{port}",))
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(spec, NAME).start(lambda text: console.print(f"[dim]... {text}[/dim]")))
        console.print("[dim]... starting oneswitchd and an os-ken learning switch[/dim]")
        controller = stack.enter_context(OsKenController(application, lab.directory, port))
        oneswitchd = stack.enter_context(Oneswitchd(lab.server_toml))
        sight = Sight(lab, oneswitchd, controller)
        results = [run_check(check, sight.require_running, console) for check in sight.checks()]
        _print_moves(console, results)
        holds = all(each.holds for each in results)
        _print_end(console, holds, lab, keep)
        if as_json:
            print(json.dumps({"holds": holds, "checks": [dataclasses.asdict(each) for each in results]}))
        if keep:
            _wait_for_interrupt(lab)
    return holds


def _summary(tour: Tour) -> str:
    return f"{tour.sent} sent, {tour.lost} lost, {tour.duplicated} duplicated, {tour.reordered} reordered"


def _figures(tour: Tour) -> dict[str, Any]:
    return {
        "sent": tour.sent,
        "lost": tour.lost,
        "duplicated": tour.duplicated,
        "reordered": tour.reordered,
        "longest_gap_ms": round(tour.longest_gap_ms, 1),
        "longest_pause_ms": round(tour.longest_pause_ms, 1),
    }


def _print_moves(console: Console, results: list[Check]) -> None:
    columns = ("sent", "lost", "duplicated", "reordered", "longest_gap_ms", "longest_pause_ms")
    titles = ("sent", "lost", "duplicated", "reordered", "longest gap", "sender paused")
    table = Table(MOBILE, box=None, header_style="bold", pad_edge=True)
    for title in titles:
        table.add_column(title, justify="right")
    for result in results:
        if "sent" in result.figures:
            values = [str(result.figures[column]) for column in columns]
            values[4:] = [f"{value} ms" for value in values[4:]]
            table.add_row(result.title.split(" at ")[0].removeprefix(f"{MOBILE} moves "), *values)
    console.print()
    console.print(table)


def _print_end(console: Console, holds: bool, lab: Lab, keep: bool) -> None:
    console.print()
    if not holds:
        console.print(f"[red]Some checks failed.[/red] Logs: {lab.directory}", soft_wrap=True)
    if keep:
        console.print("It keeps running; Ctrl-C ends it. In another terminal, try:")
        for program, line in (
            ("unoctl", "show                                      the controller's view, and the server behind it"),
            ("unoctl", "trace vm1 icmp,dl_dst=02:00:00:00:00:04   a packet's path over both switches, with its bytes"),
            ("unoctl", "dump-flows virtual                        the controller's rules; `physical`: the switches'"),
            ("uno-lab", f"exec {lab.name} vm1 ping 10.0.0.2               a command in a host"),
        ):
            console.print(f"  {typed(program)} {line}", highlight=False, soft_wrap=True)
    else:
        console.print(f"Next: `{typed('uno-lab')} tour --keep` leaves it running.")


def _wait_for_line(process: "subprocess.Popen[str]", text: str) -> None:
    """Read a program's output until a line with ``text``, or to its end."""
    for line in process.stdout or ():
        if text in line:
            return


def _wait_for_interrupt(lab: Lab) -> None:
    try:
        lab.wait()
    except KeyboardInterrupt:
        return
