"""The two worlds that are compared: one plain bridge, and oneswitchd over several switches. Labs without root."""

import struct
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from lab.unixctl import Unixctl
from lab.wires import Place, Wires
from tests.oracle import observation
from tests.oracle import openflow as of
from tests.oracle.channel import Channel, ChannelError
from tests.oracle.observation import Observation
from tests.oracle.pools import PORTS
from tests.oracle.steps import Check, Inject, Move, PortMod, Reconnect, Send, Step, Warp

_ASYNC_CONFIG = struct.pack("!6I", 0b111, 0b111, 0b111, 0b111, 0b1111, 0b1111)
_OTHER_ADDRESS = bytes.fromhex("020000000099")
_MARKER = 0x6D61726B6572
_ALL_PORT_CONFIG = 0b1100101


class World:
    """A switch, its hosts' wires and a controller.

    Args:
        spec: of its lab.
    """

    def __init__(self, spec: LabSpec) -> None:
        self._stack = ExitStack()
        self.lab = self._stack.enter_context(Lab(spec).start())
        self.wires = self._stack.enter_context(Wires(self.lab.state))
        self._controls = [
            self._stack.enter_context(_closing(Unixctl(Path(switch.control)))) for switch in self.lab.state.switches
        ]
        self.places: dict[int, Place] = {port.number: (port.switch, port.interface) for port in spec.ports}
        self.channel = self._connect()
        self.baseline = observation.Baseline()
        self._modified: set[int] = set()
        self._injected = False

    def _connect(self) -> Channel:
        raise NotImplementedError

    def close(self) -> None:
        """End the lab."""
        self.channel.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ---- steps

    def apply(self, step: Step) -> Observation:
        """Do a step and tell what came of it, but for what may come late: `collect` adds that."""
        if not isinstance(step, Inject):
            self._forget_flows()
        match step:
            case Send():
                self.channel.send(b"".join(bytes.fromhex(message) for message in step.messages))
            case PortMod():
                self._modified.add(step.port)
                address = self.address(step.port) if step.right_address else _OTHER_ADDRESS
                self.channel.send(of.port_mod(step.xid, step.port, address, step.config, step.mask))
            case Inject():
                self._injected = True
                for frame in step.frames:
                    self.wires.inject(self.places[step.port], bytes.fromhex(frame))
            case Move():
                self.move(step.port, step.switch)
            case Reconnect():
                self.reconnect()
            case Warp():
                self._warp(step.milliseconds)
            case Check():
                pass
        return self._observe(step)

    def _forget_flows(self) -> None:
        """Let Open vSwitch count what it has cached, and forget it.

        A barrier's reply is not yet data-path effect: the caches follow a change a moment later, and so do statistics
        and flow_removed.
        """
        if self._injected:
            self.wires.purge()
        self._injected = False

    def translation_fails(self, port: int, frame: bytes) -> bool:
        """Whether Open vSwitch gives up on a frame: too many MPLS labels, too deep a recursion."""
        switch, interface = self.places[port]
        control = next(c for c, s in zip(self._controls, self.lab.state.switches, strict=True) if s.name == switch)
        bridge = "br0" if self.lab.state.switches[0].edge is None else "edge"
        return "Translation failed" in control.call("ofproto/trace", bridge, f"in_port={interface}", frame.hex())

    def move(self, port: int, switch: int) -> None:
        """Move a port; one bridge has nothing to do."""

    def reconnect(self) -> None:
        """Hang up and call again."""
        self.channel.close()
        self.channel = self._connect()

    def _warp(self, milliseconds: int) -> None:
        self.wires.warp(milliseconds)
        for control in self._controls:
            control.call("revalidator/wait")

    def _observe(self, step: Step) -> Observation:
        seen = Observation()
        self.channel.barrier()
        frames = self.wires.settle()
        if isinstance(step, Inject):
            self.channel.barrier()  # what the frames made the switches say is here now
        numbers = {place: number for number, place in self.places.items()}
        for place, some in frames.items():
            seen.frames[numbers.get(place, -1)] = [frame.hex() for frame in some]
        self.collect(seen)
        if isinstance(step, Check):
            seen.state = self.dump()
        return seen

    def collect(self, seen: Observation) -> None:
        """Add what has come by now."""
        seen.replies += observation.replies(self.channel.replies, self.baseline)
        self.channel.replies.clear()
        for frame in self.channel.asynchronous:
            if frame[1] == of.PACKET_IN:
                seen.packet_ins.append(observation.packet_in(frame))
            elif frame[1] == of.FLOW_REMOVED:
                seen.removed[observation.flow_removed(frame)] += 1
            else:
                seen.port_status[observation.port_status(frame)] += 1
        self.channel.asynchronous.clear()

    def dump(self) -> dict[str, list[str]]:
        """Everything that a controller can ask for."""
        every_flow = struct.pack("!B3xII4xQQ", of.ALL_TABLES, of.ANY, of.ANY, 0, 0) + of.match(())
        every_port, every_id = struct.pack("!I4x", of.ANY), struct.pack("!I4x", of.ALL_IDS)
        every_group = struct.pack("!I4x", of.GROUP_ALL)
        asked = {
            "flows": (of.FLOW, every_flow),
            "aggregate": (of.AGGREGATE, every_flow),
            "tables": (of.TABLES, b""),
            "port counters": (of.PORT_STATS, every_port),
            "groups": (of.GROUP, every_group),
            "group descriptions": (of.GROUP_DESC, b""),
            "meters": (of.METER, every_id),
            "meter configurations": (of.METER_CONFIG, every_id),
            "ports": (of.PORT_DESC, b""),
        }
        return {
            name: observation.multipart(self.channel.ask_all(kind, body), self.baseline)
            for name, (kind, body) in asked.items()
        }

    # ---- ports

    def address(self, port: int) -> bytes:
        """The MAC address that the controller sees."""
        for data in self._port_descriptions():
            if struct.unpack_from("!I", data)[0] == port:
                return data[8:14]
        return _OTHER_ADDRESS

    def _port_descriptions(self) -> Iterable[bytes]:
        body = b"".join(part[16:] for part in self.channel.ask_all(of.PORT_DESC))
        return (body[at : at + 64] for at in range(0, len(body), 64))

    # ---- between runs

    def reset(self) -> None:
        """Back to the start: no rules, groups and meters, ports as they were, counters counted from here."""
        self.wires.purge()
        self._injected = False
        self.reconnect()
        for port in sorted(self._modified & set(PORTS)):
            self.channel.send(of.port_mod(1, port, self.address(port), 0, _ALL_PORT_CONFIG))
        self._modified.clear()
        self.channel.send(clear_messages(1))
        self.channel.send(of.set_config(1, 0, 0xFFFF))
        self._await_removals()
        self.wires.settle()
        self.home()
        self.channel.barrier()
        self.channel.replies.clear()
        self.channel.asynchronous.clear()
        self.baseline = observation.Baseline.read(
            self.channel.ask_all(of.PORT_STATS, struct.pack("!I4x", of.ANY)), self.channel.ask_all(of.TABLES)
        )

    def _await_removals(self) -> None:
        """Return when what was deleted is reported, as far as anything tells."""
        marker = of.FlowMod(table=3, priority=9, cookie=_MARKER, flags=of.SEND_FLOW_REM).encode(1)
        self.channel.send(marker + of.FlowMod(of.DELETE, 3, cookie=_MARKER, cookie_mask=of.MASK64).encode(1))
        self.wires.purge()
        if not self.channel.await_removed(_MARKER, 5):
            raise ChannelError("a rule was deleted, and no flow_removed came within 5 s")

    def home(self) -> None:
        """Every port where it was at the start."""

    def greet(self, channel: Channel) -> Channel:
        """Ask for packet-ins as a primary controller gets them."""
        channel.send(of.set_config(1, 0, 0xFFFF) + of.message(of.SET_ASYNC, 2, _ASYNC_CONFIG))
        channel.barrier()
        return channel


def clear_messages(xid: int) -> bytes:
    """Delete all rules, groups and meters."""
    flows = of.FlowMod(of.DELETE, of.ALL_TABLES).encode(xid)
    return flows + of.group_mod(xid, 2, 0, of.GROUP_ALL) + of.meter_mod(xid, 2, 0, of.METER_ALL)


class OneBridge(World):
    """One plain Open vSwitch bridge: what is right."""

    def _connect(self) -> Channel:
        address = self.lab.state.switches[0].virt
        return self.greet(Channel(Path(address.removeprefix("unix:"))))


class OneSwitch(World):
    """oneswitchd over ``switches`` switches.

    Args:
        switches: how many; the hypervisor is one of them.
        binary: None finds the installed oneswitchd.
    """

    def __init__(self, switches: int, binary: Path | None = None) -> None:
        self._binary = binary
        self._daemon: Oneswitchd | None = None
        self.spec = server(switches)
        super().__init__(self.spec)

    @property
    def daemon(self) -> Oneswitchd:
        """The running oneswitchd."""
        if self._daemon is None:
            self._daemon = self._stack.enter_context(Oneswitchd(self.lab.server_toml, self._binary))
            self._daemon.wait_up()
        return self._daemon

    def _connect(self) -> Channel:
        return self.greet(Channel(Path(self.daemon.management.removeprefix("unix:"))))

    def move(self, port: int, switch: int) -> None:
        """Move a port to the switch with this index (modulo their number)."""
        goal = self.spec.switches[switch % len(self.spec.switches)].name
        if self.places[port][0] == goal:
            return
        number = self.spec.ports[port - 1].number
        interface = next(
            each.name
            for host in self.spec.hosts
            if host.interfaces[0].name == self.spec.ports[port - 1].interface
            and host.interfaces[0].switch == self.spec.ports[port - 1].switch
            for each in host.interfaces
            if each.switch == goal
        )
        self.daemon.client.move_port(number, goal, interface, "done", 0)
        self.places[port] = (goal, interface)

    def home(self) -> None:
        names = [switch.name for switch in self.spec.switches]
        for port in self.spec.ports:
            self.move(port.number, names.index(port.switch))


def server(switches: int) -> LabSpec:
    """Six hosts, evenly over the switches, each of which can move to any switch."""
    return LabSpec.star(switches - 1, len(PORTS) // switches, mobile=True, substrate="dummy")


class _closing:  # noqa: N801 - a context manager that reads as a verb
    def __init__(self, control: Unixctl) -> None:
        self._control = control

    def __enter__(self) -> Unixctl:
        return self._control

    def __exit__(self, *_: object) -> None:
        self._control.close()
