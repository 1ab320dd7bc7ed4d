"""``unoctl capture`` shows the packets of a virtual port where it is, also after a move, and changes nothing."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from lab.mobility import MovingHost
from lab.spec import LabSpec
from unoctl.capture.records import read_header, read_records

pytestmark = pytest.mark.namespaces

_RECORD_BYTES = 16


def _capture(one: Any, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a capture as a shell's background job, which ignores SIGINT."""
    unoctl = [sys.executable, "-m", "unoctl", "--config", str(one.lab.server_toml), "capture", *arguments]
    argv = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *unoctl]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _await(stream: IO[bytes] | None, words: str) -> None:
    """Read lines until one has these words."""
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if words.encode() in line:
            return
    raise AssertionError(b"".join(seen).decode())


def _packets(stream: IO[bytes]) -> list[bytes]:
    assert read_header(stream) is not None
    return [record[_RECORD_BYTES:] for record in read_records(stream)]


def test_a_capture_follows_a_port_that_moves(start, lab_dir: Path) -> None:
    file = lab_dir / "port.pcap"
    with start(LabSpec.demo(static_arp=True)) as one:
        one.add_flows("in_port=2,actions=output:4", "in_port=4,actions=output:2")
        rules = sorted(one.ofctl("dump-flows", "--no-stats").splitlines())
        with MovingHost(one.lab, one.oneswitchd, "vm2", "out1", rate=200) as host:
            capture = _capture(one, "vm2", "udp", "--write", str(file), "--format", "json")
            _await(capture.stderr, "vm2 at hypervisor")
            host.move("snic0")
            _await(capture.stderr, "pf0vf0 at snic0")
            # As many packets again pass there.
            with _capture(one, "vm2", "udp", "--count", "100") as live:
                assert live.stdout is not None
                assert len(_packets(live.stdout)) == 100
                assert live.stderr is not None
                said = live.stderr.read()
            assert live.returncode == 0, said
            with _capture(one, "vm2", "udp", "--format", "json", "--write", str(lab_dir / "ended.pcap")) as ended:
                _await(ended.stderr, "pf0vf0 at snic0")
                ended.terminate()
                assert ended.stdout is not None
                assert "packets" in json.load(ended.stdout)
            assert ended.returncode == 0
            tour = host.finish()
            capture.send_signal(signal.SIGINT)
            output, _ = capture.communicate()
        assert sorted(one.ofctl("dump-flows", "--no-stats").splitlines()) == rules
    assert capture.returncode == 0
    summary = json.loads(output)
    assert [place["switch"] for place in summary["places"]] == ["hypervisor", "snic0"]
    with file.open("rb") as stream:
        packets = _packets(stream)
    assert len(packets) == len(set(packets)) == summary["packets"]
    assert 100 <= len(packets) <= tour.sent
    assert (tour.lost, tour.duplicated) == (0, 0)


def test_refusals_name_the_value(demo) -> None:
    for arguments, words in (
        (("nowhere",), "unknown virtual port 'nowhere'"),
        (("vm1", "upd"), "filter 'upd'"),
        (("vm1", "--write", "/nowhere/x"), "cannot write /nowhere/x"),
        (("vm1", "--enter", "false"), "exit status 1"),
        (("vm1",), "ovs-tcpdump -i vm1"),  # a dummy device
        (("vm1", "--enter", "/no/such/program"), "cannot run /no/such/program"),
    ):
        done = _capture(demo, *arguments)
        output, said = done.communicate()
        assert done.returncode in (1, 2), said
        assert output == b""
        assert words in said.decode()
