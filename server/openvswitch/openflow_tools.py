"""Runs the Open vSwitch command-line tools, without interpreting their output."""

import shutil
import subprocess

from server.config import TlsConfig
from server.errors import ToolError

TIMEOUT_S = 20.0
PROTOCOL = "OpenFlow13"
PCAP_HEADER = 24
PCAP_RECORD_HEADER = 16
_REFUSED = ": server returned an error"  # of ovs-appctl; the daemon's message precedes it


def run(command: list[str], timeout_s: float = TIMEOUT_S) -> str:
    """Run a tool and return its output, as text.

    Raises:
        ToolError: see :func:`run_binary`.
    """
    return run_binary(command, timeout_s).decode(errors="replace")


def run_binary(command: list[str], timeout_s: float = TIMEOUT_S, stdin: bytes = b"") -> bytes:
    """Run a tool with ``stdin`` and return its output.

    Raises:
        ToolError: the tool is missing, failed (the text gives its reason) or did not end within ``timeout_s``.
    """
    if shutil.which(command[0]) is None:
        raise ToolError(f"{command[0]} is not on PATH; install it with: apt install openvswitch-switch")
    shown = " ".join(command)
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"no answer within {timeout_s:g} s from: {shown}") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")
        raise ToolError(f"{_reason(said) or f'exit status {done.returncode}'} (ran: {shown})")
    return done.stdout


def _reason(said: str) -> str:
    """Return the line with a tool's reason: the last one, without ovs-appctl's own after the daemon's."""
    lines = said.splitlines()
    if len(lines) > 1 and lines[-1].endswith(_REFUSED):
        lines.pop()
    return lines[-1] if lines else ""


def _secured(tls: TlsConfig | None) -> tuple[str, ...]:
    """Return the options for ``ssl:`` targets."""
    return ("-p", tls.private_key, "-c", tls.certificate, "-C", tls.ca_certificate) if tls else ()


def ofctl(*arguments: str, tls: TlsConfig | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """Run ``ovs-ofctl -O OpenFlow13 ARGUMENTS``.

    Raises:
        ToolError: see :func:`run`.
    """
    return run(["ovs-ofctl", "-O", PROTOCOL, *_secured(tls), *arguments], timeout_s)


def dump_flows(target: str, tls: TlsConfig | None = None) -> str:
    """Return ``dump-flows`` of one OpenFlow switch, with port numbers rather than names."""
    return ofctl("--no-names", "dump-flows", target, tls=tls)


def dump_ports(target: str, tls: TlsConfig | None = None) -> str:
    """Return ``dump-ports`` of one OpenFlow switch, with port numbers rather than names."""
    return ofctl("--no-names", "dump-ports", target, tls=tls)


def appctl(control: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """Run ``ovs-appctl -t CONTROL ARGUMENTS``.

    Raises:
        ToolError: see :func:`run`.
    """
    return run(["ovs-appctl", "-t", control, *arguments], timeout_s)


def show(target: str, tls: TlsConfig | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """Return ``show`` of one OpenFlow switch: its ports with numbers and names."""
    return ofctl("show", target, tls=tls, timeout_s=timeout_s)


def vsctl(remote: str, *arguments: str, tls: TlsConfig | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """Run ``ovs-vsctl --db=REMOTE ARGUMENTS``, for reading only: plumbing makes changes.

    Raises:
        ToolError: see :func:`run`.
    """
    # ovs-vsctl's own limit ends its retries with a reason; the outer one is for a hung server.
    limit = f"--timeout={max(int(timeout_s), 1)}"
    return run(["ovs-vsctl", f"--db={remote}", limit, *_secured(tls), *arguments], timeout_s + 2)


def compose_packet(flow: str) -> bytes:
    """Compose a packet from Open vSwitch's flow syntax, with correct checksums and a 64-byte payload.

    Raises:
        ToolError: the flow does not parse or is not one packet; the text says where.
    """
    # The tool prints hex for people; its pcap output has the same bytes, ready to use.
    pcap = run_binary(["ovs-ofctl", "--pcap", "compose-packet", flow])
    return pcap[PCAP_HEADER + PCAP_RECORD_HEADER :]
