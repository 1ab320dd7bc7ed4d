"""Open vSwitch on its dummy datapath: real rules and real packets without root, namespaces or devices.

Frames go in by ``netdev-dummy/receive`` and are read back from the pcap file that each port writes (``tx_pcap``); two
switches are joined by unix stream sockets.
"""

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
SETTLE_S = 60.0


def run(*command: str | Path, stdin: str = "") -> str:
    """Run a tool; fail the test with its stderr."""
    done = subprocess.run(
        [str(word) for word in command], input=stdin, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}{done.stdout}"
    return done.stdout


class DummySwitch:
    """An ovsdb-server and an ovs-vswitchd in their own folder (with a short path, for unix sockets)."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.db = f"unix:{folder}/db.sock"
        self.control = f"{folder}/vs.ctl"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "DummySwitch":
        self.folder.mkdir(parents=True, exist_ok=True)
        database = self.folder / "conf.db"
        run("ovsdb-tool", "create", database, SCHEMA)
        self._spawn("ovsdb-server", str(database), f"--remote=punix:{self.folder}/db.sock", "--unixctl=db.ctl")
        self._await((self.folder / "db.sock").exists)
        self.vsctl("--retry", "--timeout=30", "--no-wait", "init")  # the socket exists before it listens
        self._spawn("ovs-vswitchd", self.db, "--enable-dummy", "--disable-system", "--unixctl=vs.ctl")
        self._await(Path(self.control).exists)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(SETTLE_S)

    @property
    def vswitchd_pid(self) -> int:
        return self._processes[-1].pid

    def _spawn(self, *command: str) -> None:
        absolute = [word.replace("--unixctl=", f"--unixctl={self.folder}/") for word in command]
        log = self.folder / f"{command[0]}.log"
        self._processes.append(
            subprocess.Popen(
                # A killed test leaves no processes.
                ["setpriv", "--pdeathsig", "KILL", "--", *absolute, "--no-chdir", f"--log-file={log}", "-vconsole:off"],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "OVS_RUNDIR": str(self.folder)},
                stderr=subprocess.DEVNULL,
            )
        )

    def _await(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not holds():
            assert time.monotonic() < deadline, f"{self.name}: Open vSwitch did not start"
            time.sleep(0.005)

    def vsctl(self, *arguments: str) -> str:
        return run("ovs-vsctl", f"--db={self.db}", *arguments)

    def appctl(self, *arguments: str) -> str:
        return run("ovs-appctl", "-t", self.control, *arguments)

    def target(self, bridge: str) -> str:
        return f"unix:{self.folder}/{bridge}.mgmt"

    def ofctl(self, command: str, bridge: str, *arguments: str, stdin: str = "") -> str:
        return run("ovs-ofctl", "-O", "OpenFlow13", command, self.target(bridge), *arguments, stdin=stdin)

    def no_flood(self, bridge: str, port: str) -> None:
        """Exclude a port from floods; only OpenFlow 1.0 has this bit."""
        run("ovs-ofctl", "-O", "OpenFlow10", "mod-port", self.target(bridge), port, "no-flood")

    def add_flows(self, bridge: str, flows: Iterable[str]) -> None:
        self.ofctl("add-flows", bridge, "-", stdin="\n".join(flows) + "\n")

    def pcap(self, interface: str) -> Path:
        return self.folder / f"{interface}.pcap"

    def options(self, interface: str) -> dict[str, str]:
        """Return options with which a dummy interface records what it sends."""
        return {"tx_pcap": str(self.pcap(interface))}

    def add_bridge(self, bridge: str, ports: Sequence[str]) -> None:
        """Add a bridge with dummy ports, numbered from 1."""
        command = ["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=dummy", "fail_mode=secure"]
        for number, port in enumerate(ports, start=1):
            command += ["--", "add-port", bridge, port, "--", "set", "interface", port, "type=dummy"]
            command += [f"ofport_request={number}", f"options:tx_pcap={self.pcap(port)}"]
        self.vsctl(*command)

    def forget(self) -> None:
        """Drop cached flows: those of deleted rules handle packets for some more time."""
        self.appctl("revalidator/purge")

    def receive(self, interface: str, frame: bytes) -> None:
        self.appctl("netdev-dummy/receive", interface, frame.hex())

    def sent(self, interface: str) -> list[bytes]:
        """Return every frame that the interface has sent so far."""
        path = self.pcap(interface)
        return read_pcap(path.read_bytes()) if path.exists() else []


def read_pcap(data: bytes) -> list[bytes]:
    """Return the frames of a little-endian pcap file, without a last incomplete one."""
    frames: list[bytes] = []
    offset = 24
    while offset + 16 <= len(data):
        length = int.from_bytes(data[offset + 8 : offset + 12], "little")
        if offset + 16 + length > len(data):
            break
        frames.append(data[offset + 16 : offset + 16 + length])
        offset += 16 + length
    return frames


def await_sent(ports: Sequence[tuple[DummySwitch, str]], expected: Sequence[int]) -> list[list[bytes]]:
    """Wait until each port has sent ``expected`` frames, then a moment longer for excess ones."""
    return _await(ports, lambda counts: all(got >= count for got, count in zip(counts, expected, strict=True)))


def await_one(ports: Sequence[tuple[DummySwitch, str]], total: int) -> list[list[bytes]]:
    """Wait until the ports have sent ``total`` frames together, then a moment longer for excess ones."""
    return _await(ports, lambda counts: sum(counts) >= total)


def _await(ports: Sequence[tuple[DummySwitch, str]], holds: Callable[[list[int]], bool]) -> list[list[bytes]]:
    deadline = time.monotonic() + SETTLE_S
    while not holds([len(switch.sent(name)) for switch, name in ports]) and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(0.01)
    return [switch.sent(name) for switch, name in ports]
