"""A patched Open vSwitch with the dummy datapath: any user can run it, and it needs no network namespace."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

# AddressSanitizer, if the programs have it, keeps 256 MiB that were freed; tests of the memory in use let it keep less.
FRUGAL = {
    "ASAN_OPTIONS": ":".join(
        filter(None, (os.environ.get("ASAN_OPTIONS"), "quarantine_size_mb=1", "thread_local_quarantine_size_kb=64"))
    )
}


class Switch:
    """ovsdb-server and ovs-vswitchd from `programs`, the directory of an installation, with one bridge `br`."""

    def __init__(self, folder: Path, programs: Path, environment: dict[str, str] | None = None) -> None:
        self.folder, self.programs = folder, programs
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            **{name: str(folder) for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")},
            **(environment or {}),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.run("ovsdb-tool", "create", f"{folder}/conf.db", str(self.find("vswitch.ovsschema")))
        self.start_process("ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock")
        self.wait(lambda: accepts(folder / "db.sock"), "ovsdb-server to listen")
        self.vsctl("--no-wait", "init")
        self.start_vswitchd()
        self.vsctl("add-br", "br", "--", "set", "bridge", "br", "datapath_type=dummy", "fail_mode=secure")

    def find(self, name: str) -> Path:
        for place in ("sbin", "bin", "share/openvswitch", "vswitchd", "ovsdb", "utilities"):
            if (self.programs / place / name).exists():
                return self.programs / place / name
        raise FileNotFoundError(f"{self.programs} has no {name}; build it with: make ovs")

    def start_process(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            str(self.find(name)),
            *arguments,
            f"--log-file={self.folder}/{name}.log",
            f"--unixctl={self.folder}/{name}.ctl",
            "-vconsole:off",
        ]
        with (self.folder / f"{name}.err").open("ab") as errors:
            process = subprocess.Popen(command, env=self.environment, stderr=errors, stdout=errors)
        self.processes.append(process)
        return process

    def start_vswitchd(self) -> None:
        self.vswitchd = self.start_process(
            "ovs-vswitchd",
            "--enable-dummy",
            "--disable-system",
            "--disable-system-route",
            f"unix:{self.folder}/db.sock",
        )
        self.wait(lambda: accepts(self.folder / "ovs-vswitchd.ctl"), "ovs-vswitchd to listen")

    def kill_vswitchd(self) -> None:
        """Kills ovs-vswitchd, so that it can be started again."""
        self.vswitchd.kill()
        self.vswitchd.wait()
        self.processes.remove(self.vswitchd)
        for name in ("ovs-vswitchd.ctl", "br.mgmt"):
            (self.folder / name).unlink()

    def await_bridge(self) -> None:
        """Waits until a started ovs-vswitchd accepts connections for OpenFlow."""
        self.wait(lambda: accepts(self.folder / "br.mgmt"), "the bridge")

    def run(self, name: str, *arguments: str) -> str:
        command = [str(self.find(name)), *arguments]
        result = subprocess.run(command, check=False, env=self.environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, f"{command}: {result.stderr}"
        return result.stdout

    def vsctl(self, *arguments: str) -> str:
        return self.run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", *arguments).strip()

    def ofctl(self, command: str, *arguments: str) -> str:
        return self.run("ovs-ofctl", command, f"unix:{self.folder}/br.mgmt", *arguments)

    def appctl(self, *arguments: str) -> str:
        return self.run("ovs-appctl", "-t", f"{self.folder}/ovs-vswitchd.ctl", *arguments)

    def add_port(self, name: str, number: int, *settings: str) -> Path:
        """Adds a `pcie` port that listens, and returns the path of its socket."""
        path = self.folder / f"{name}.sock"
        kind = () if any(setting.startswith("type=") for setting in settings) else ("type=pcie",)
        options = (f"options:path={path}", "options:role=listen", f"ofport_request={number}")
        self.vsctl("add-port", "br", name, "--", "set", "interface", name, *kind, *options, *settings)
        self.wait(lambda: listens(path), f"{path} to listen")
        return path

    def add_tcp_port(self, name: str, number: int, *settings: str) -> int:
        """Adds a `pcie` port that listens at a free TCP port, and returns that."""
        before = len(self.tcp_ports())
        options = ("type=pcie", "options:address=127.0.0.1:0", "options:role=listen", f"ofport_request={number}")
        self.vsctl("add-port", "br", name, "--", "set", "interface", name, *options, *settings)
        self.wait(lambda: len(self.tcp_ports()) > before, f"{name} to listen")
        return self.tcp_ports()[-1]

    def tcp_ports(self) -> list[int]:
        """The TCP ports at which the switch has listened."""
        log = (self.folder / "ovs-vswitchd.log").read_text()
        return [int(port) for port in re.findall(r"listening on port (\d+)$", log, re.MULTILINE)]

    def link_state(self, port: str) -> str:
        return self.vsctl("get", "interface", port, "link_state")

    def counter(self, port: str, name: str) -> int:
        """A counter of a port, such as `rx pkts`."""
        direction, field = name.split()
        found = re.search(rf"\b{direction} .*?\b{field}=(\d+)", self.ofctl("dump-ports", port))
        assert found, f"port {port} has no counter {name}"
        return int(found[1])

    def wait(self, condition: Callable[[], bool], what: str, timeout: float = 20) -> None:
        end = time.monotonic() + timeout
        while not condition():
            for process in self.processes:
                assert process.poll() is None, f"{process.args} ended with {process.returncode}: {self.errors()}"
            assert time.monotonic() < end, f"no {what} within {timeout} s"
            time.sleep(0.01)

    def errors(self) -> str:
        return "".join(path.read_text(errors="replace")[-4000:] for path in sorted(self.folder.glob("*.err")))

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.vswitchd.pid}/fd").iterdir()))

    def mappings(self) -> int:
        """The number of mappings of memory; rings are mappings."""
        return len(Path(f"/proc/{self.vswitchd.pid}/maps").read_text().splitlines())

    def resident(self) -> int:
        """Bytes of memory in use."""
        return int(Path(f"/proc/{self.vswitchd.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """Ends the processes; fails if one of them had crashed."""
        ended = [process.args for process in self.processes if process.poll() is not None]
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
        assert not ended, f"{ended} had ended: {self.errors()}"


def accepts(path: Path) -> bool:
    """Tells whether a server accepts connections at a socket; it exists before that."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def listens(path: Path) -> bool:
    """Tells whether a server listens at a unix socket, without connecting: a `pcie` port has one peer."""
    accepts_connections = 0x10000  # __SO_ACCEPTCON, include/uapi/linux/net.h
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        _, _, _, flags, _, _, _, *name = line.split(maxsplit=7)
        if name == [str(path)]:
            return bool(int(flags, 16) & accepts_connections)
    return False
