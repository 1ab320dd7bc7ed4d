"""The machine: kernel features, tools and limits for the lab and the switches. Leaves no changes."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from server.errors import ToolError
from server.openvswitch import openflow_tools
from unoctl.doctor.findings import Finding, Topic

TOPIC = Topic("machine")
OVS_TOOLS = ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
TESTED_VERSION = (3, 1)
OLDEST_VERSION = (2, 17)
# Open vSwitch never sets SO_RCVBUF, so a port's buffer has the default of when it was added: 208 KiB lose bursts.
WANTED_RMEM = 8 << 20
TRY_TIMEOUT_S = 10
_INSTALL = "apt install openvswitch-switch"
_VERSION = re.compile(r"\(Open vSwitch\) (\d+)\.(\d+)\S*")


def namespaces() -> Iterator[Finding]:
    """Check user namespaces, which a lab without root needs."""
    problem = _attempt("unshare", "-Urnm", "--map-root-user", "true")
    if problem is None:
        yield TOPIC.ok("user namespaces", "can be created, with network namespaces in them")
    elif os.geteuid() == 0:
        yield TOPIC.warn("user namespaces", f"off ({problem}); the lab needs root", _namespace_mend())
    else:
        yield TOPIC.fail("user namespaces", f"off ({problem}); the lab would need root", _namespace_mend())


def _namespace_mend() -> str:
    for path, wanted in (
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "1"),
    ):
        value = _read(Path(path))
        if value is not None and value != wanted:
            return f"as root: sysctl -w kernel.{Path(path).name}={wanted}"
    return "as root: sysctl -w user.max_user_namespaces=15000, or run the lab as root"


def devices() -> Iterator[Finding]:
    """Check veth pairs and tap devices."""
    problem = _in_namespace("ip link add unoctl-a type veth peer name unoctl-b")
    if problem is None:
        yield TOPIC.ok("veth", "pairs can be created")
    else:
        yield TOPIC.fail("veth", f"pairs cannot be created ({problem})", "as root: modprobe veth; apt install iproute2")
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        found = (
            f"/dev/net/tun cannot be opened ({error.strerror}): bridges of type netdev need it, the lab can do without"
        )
        yield TOPIC.warn("tun", found, "as root: modprobe tun; chmod 666 /dev/net/tun")
    else:
        yield TOPIC.ok("tun", "/dev/net/tun can be opened")


def tools() -> Iterator[Finding]:
    """Check Open vSwitch's programs and their version."""
    missing = [tool for tool in OVS_TOOLS if shutil.which(tool, path=_search_path()) is None]
    if missing:
        yield TOPIC.fail("Open vSwitch", f"not on PATH: {', '.join(missing)}", _INSTALL)
        return
    try:
        text = openflow_tools.run(["ovs-vsctl", "--version"])
    except ToolError as error:
        yield TOPIC.fail("Open vSwitch", str(error), _INSTALL)
        return
    yield version_finding(text)


def version_finding(text: str) -> Finding:
    """Judge the output of ``--version`` or ``ovs-appctl version``."""
    match = _VERSION.search(text)
    if match is None:
        return TOPIC.warn(
            "Open vSwitch", f"unknown version {text.strip()[:60]!r}", "expected Open vSwitch 3.1 or newer"
        )
    version = (int(match.group(1)), int(match.group(2)))
    shown = f"version {version[0]}.{version[1]}"
    if version < OLDEST_VERSION:
        wanted = ".".join(map(str, OLDEST_VERSION))
        return TOPIC.fail("Open vSwitch", f"{shown} is older than {wanted}", f"install Open vSwitch {wanted} or newer")
    if version < TESTED_VERSION:
        return TOPIC.warn("Open vSwitch", f"{shown} is older than the tested 3.1", "install Open vSwitch 3.1 or newer")
    return TOPIC.ok("Open vSwitch", shown)


def buffers() -> Iterator[Finding]:
    """Check the socket buffers that ports get when they are added."""
    value = _read(Path("/proc/sys/net/core/rmem_default"))
    if value is None or not value.isdecimal():
        hint = "run doctor in the machine's initial network namespace, which alone has this setting"
        yield TOPIC.warn("socket buffers", "net.core.rmem_default cannot be read here", hint)
    elif int(value) < WANTED_RMEM:
        mend = f"as root, before ports are added: sysctl -w net.core.rmem_default={WANTED_RMEM}"
        yield TOPIC.warn("socket buffers", f"net.core.rmem_default is {value} bytes: bursts are lost", mend)
    else:
        yield TOPIC.ok("socket buffers", f"net.core.rmem_default is {value} bytes")


def _in_namespace(command: str) -> str | None:
    """Try a shell command in its own network namespace, as root or in a user namespace."""
    enter = ("unshare", "-n") if os.geteuid() == 0 else ("unshare", "-Urn", "--map-root-user")
    return _attempt(*enter, "sh", "-c", command)


def _attempt(*command: str) -> str | None:
    """Run a command; return None on success, else its last line."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRY_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return f"{command[0]} is not on PATH"
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {TRY_TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    words = (done.stderr or done.stdout).strip().splitlines()
    return words[-1] if words else f"exit status {done.returncode}"


def _search_path() -> str:
    """Return PATH plus sbin, which an ordinary user's PATH lacks."""
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
