"""A server and one bridge with the same ports, for the same commands and frames."""

import dataclasses
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lab import Lab, LabSpec
from lab.control_plane import Oneswitchd
from lab.wires import Place, Wires
from unoctl.trace.packet_text import to_bytes

# Ports 1 to 3: on the hypervisor, on snic0, on snic1.
SPEC = dataclasses.replace(LabSpec.star(2, 1, substrate="dummy"), executor="snic0")
REFERENCE = SPEC.reference()


@dataclass
class Twin:
    """A server whose ports all execute at one sNIC, and one bridge with the same ports."""

    daemon: Oneswitchd
    labs: tuple[Lab, Lab]
    wires: tuple[Wires, Wires]

    @property
    def targets(self) -> tuple[str, str]:
        return self.daemon.management, self.labs[1].state.switches[0].virt

    def ofctl(self, command: str, *arguments: str) -> tuple[str, str]:
        """Run the same ovs-ofctl command on both; return its answers."""
        ours, reference = (ofctl(command, target, *arguments) for target in self.targets)
        return ours, reference

    def send(self, port: int, frame: bytes, count: int = 1) -> dict[int, list[bytes]]:
        """Inject a frame at the same port of both; return the frames that left each port, which must be equal."""
        for spec, wires in zip((SPEC, REFERENCE), self.wires, strict=True):
            into = next((each.switch, each.interface) for each in spec.ports if each.number == port)
            for _ in range(count):
                wires.inject(into, frame)
        return self.settle()

    def settle(self) -> dict[int, list[bytes]]:
        """Return the frames that have left each port since the last time, which must be equal."""
        ours, reference = (_left(spec, wires) for spec, wires in zip((SPEC, REFERENCE), self.wires, strict=True))
        assert ours == reference
        return ours


def _left(spec: LabSpec, wires: Wires) -> dict[int, list[bytes]]:
    places: dict[Place, int] = {(each.switch, each.interface): each.number for each in spec.ports}
    wires.purge()
    return {places[place]: frames for place, frames in wires.settle().items()}


def ofctl(command: str, target: str, *arguments: str) -> str:
    """Run an ovs-ofctl command; return its output."""
    argv = ["ovs-ofctl", "-O", "OpenFlow13", command, target, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def start_twin(spec: LabSpec, **options: str) -> Iterator[Twin]:
    """Start both. ``options``: other values for keys of ``[oneswitchd]``."""
    with ExitStack() as stack:
        labs = (stack.enter_context(Lab(spec).start()), stack.enter_context(Lab(REFERENCE).start()))
        toml = labs[0].server_toml
        for key, value in options.items():
            toml.write_text(re.sub(f'^{key} = ".*"$', f'{key} = "{value}"', toml.read_text(), flags=re.MULTILINE))
        daemon = stack.enter_context(Oneswitchd(labs[0].server_toml))
        stack.enter_context(daemon.client)
        daemon.wait_up()
        wires = (stack.enter_context(labs[0].wires()), stack.enter_context(labs[1].wires()))
        yield Twin(daemon, labs, wires)


def frame(source: int, target: int, more: str = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,udp_src=4000,udp_dst=53") -> bytes:
    """Return a frame between the hosts of two ports."""
    return to_bytes(f"dl_src=02:00:00:00:00:0{source},dl_dst=02:00:00:00:00:0{target},{more}")
