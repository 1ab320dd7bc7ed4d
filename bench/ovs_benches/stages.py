"""Where the CPU time of a packet across two switches goes, from perf's samples of all cores: `bench/pcie --stages`."""

import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

_HZ = 2000
_SENDER = "host a"
# The first expression that matches a function of a sample's stack tells its stage.
_HOST_STAGES = ((r"softirq", "receive at switch a, in the sender's softirq"), (r"", "send"))
_SWITCH_STAGES = (
    (r"nanosleep", "sleep"),
    (r"softirq", "the next receiver, in this softirq"),
    (r"xsk_sendmsg|sendto|sendm|sendmsg", "send to a wire (kernel)"),
    (r"recvm|recvmsg", "receive from a wire (kernel)"),
    (r"poll", "poll"),
    (r"^pcie_|^netdev_pcie", "ring"),
    (r"afxdp|umem|netdev_linux|xsk_", "wire, in user space"),
    (r"^(_int_)?(malloc|free)|^cfree|^xmalloc|unlink_chunk", "allocate and free"),
    (r"^odp_|^nl_attr|^push_|^pop_|^eth_", "actions"),
    (r"", "classify, batch, the rest"),
)


def measure(
    place: Path, switches: Mapping[int, str], send: Callable[[], object], received: Callable[[], int]
) -> dict[str, int]:
    """Return nanoseconds of CPU time for each received packet, by stage, while `send` sends.

    Args:
        place: a directory for perf's samples.
        switches: the switches' names, by process.
        send: sends packets for seconds.
        received: the number of packets that have arrived.
    """
    samples = place / "perf.data"
    command = ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", str(_HZ), "-o", samples]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as perf:
        while not samples.exists() and perf.poll() is None:
            time.sleep(0.01)
        before = received()
        send()
        came = received() - before
        perf.terminate()
    if not came:
        raise RuntimeError("no packet crossed the switches")
    found = subprocess.run(
        ["perf", "script", "-i", samples, "-F", "comm,pid,tid,ip,sym"], check=True, capture_output=True, text=True
    )
    stages = Counter(filter(None, (_stage(text, switches) for text in found.stdout.split("\n\n"))))
    return {stage: round(count * 1e9 / _HZ / came) for stage, count in stages.most_common()}


def _stage(sample: str, switches: Mapping[int, str]) -> str | None:
    """Return the stage of a sample; None: it is of another process."""
    head, *frames = sample.strip().splitlines() or [""]
    process = re.match(r"(?P<command>.+?)\s+(?P<pid>\d+)/", head)
    if process is None:
        return None
    owner = switches.get(int(process["pid"]), _SENDER if process["command"] == "wires" else None)
    if owner is None:
        return None
    stack = [frame.split(maxsplit=1)[-1] for frame in frames]
    stages = _HOST_STAGES if owner == _SENDER else _SWITCH_STAGES
    for pattern, stage in stages:
        if not pattern or any(re.search(pattern, function) for function in stack):
            return f"{owner}: {stage}"
    raise AssertionError(f"no stage for {stack}")
