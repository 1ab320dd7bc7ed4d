"""The common part of the two compared worlds: labs without root."""

import itertools
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.server import Lab
from lab.spec import LabSpec
from lab.unixctl import Unixctl
from lab.wires import Place, Wires
from tests.oracle import observation
from tests.oracle import openflow as of
from tests.oracle.channel import Channel, ChannelError
from tests.oracle.dialects import nicira
from tests.oracle.dialects.baseline import Baseline
from tests.oracle.dialects.openflow14 import OpenFlow14
from tests.oracle.observation import Observation
from tests.oracle.pools import HIDDEN_GROUPS, PORTS
from tests.oracle.steps import (
    BreakLink,
    Bulk,
    Check,
    Execute,
    GoHome,
    Inject,
    Interface,
    Move,
    PortMod,
    Reconnect,
    RestartOneswitchd,
    RestartSwitch,
    Resume,
    Send,
    Step,
    Timed,
)

_CLEAR_MAP = 2
_WITH_TABLE_CONFIGURATIONS = 5
_ASYNC_MASKS = (0b111, 0b111, 0b111, 0b111, 0b1111, 0b1111)
_BULK_TABLE = 9
_OTHER_ADDRESS = bytes.fromhex("020000000099")
_MARKER, _MARKER_TABLE = 0x6D61726B6572, 200
_MARKER_BYTES = _MARKER.to_bytes(8)
# Generation ids that return from near 0 to 0 without decreasing: they wrap and are compared by signed distance.
_AROUND = (1 << 62, 2 << 62, 3 << 62, 0)
_ALL_PORT_CONFIG = 0b1111111
NOTICE_S, POLL_S = 60.0, 0.005


class World:
    """A switch, its hosts' wires and a controller.

    Args:
        spec: of its lab.
        stateful: rules may keep state that all ports share.
    """

    def __init__(self, spec: LabSpec, *, stateful: bool) -> None:
        self._stack = ExitStack()
        self.lab = self._stack.enter_context(Lab(spec).start())
        self.wires = self._stack.enter_context(Wires(self.lab.state))
        self._controls: dict[str, Unixctl] = {}
        self._stack.callback(self._close_controls)
        self._open_controls()
        self.places: dict[int, Place] = {port.number: (port.switch, port.interface) for port in spec.ports}
        self._versions: dict[int, int] = {}
        self.channel = self._connect()
        self._others: dict[int, Channel] = {}
        self._paused: dict[int, list[bytes]] = {}
        self.baseline = Baseline()
        # NORMAL is possible. A cached flow learns again when its packets are counted, up to half a second late: after
        # what the next step's packets made Open vSwitch learn.
        self._learns = stateful
        self._modified: set[int] = set()
        self._down: set[int] = set()
        self._injected = False
        self._fresh = False
        self._links_changed = False

    def _path(self) -> Path:
        """Return the path of the switch's management socket."""
        raise NotImplementedError

    def _connect(self, controller: int = 0) -> Channel:
        return self._greet(Channel(self._path(), self._versions.get(controller, of.VERSION)))

    @contextmanager
    def _aside(self, version: int = of.VERSION) -> Iterator[Channel]:
        """Connect for what the oracle itself wants; nothing asynchronous comes here."""
        channel = Channel(self._path(), version)
        try:
            yield channel
        finally:
            channel.close()

    def close(self) -> None:
        """End the lab."""
        self._hang_up()
        self._stack.close()

    def _open_controls(self) -> None:
        """Connect to the control sockets of the switches, again after a restart."""
        self._close_controls()
        self._controls = {switch.name: Unixctl(Path(switch.control)) for switch in self.lab.state.switches}
        # A fragmented packet that ct() holds back, for 15 s, goes by numbers of recirculation (ipf.c, ipf_list_key),
        # which Open vSwitch uses again or not as its threads happen to run.
        for control, version in itertools.product(self._controls.values(), ("v4", "v6")):
            control.call("dpctl/ipf-set-disabled", version)

    def _close_controls(self) -> None:
        for control in self._controls.values():
            control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ---- steps

    def apply(self, step: Step) -> Observation:
        """Do a step and return its effects; `collect` adds late ones."""
        if self._links_changed:
            self._let_switches_notice()
        self._await_misses()
        self._links_changed = isinstance(step, Interface | BreakLink)
        if not isinstance(step, Inject) or self._learns:
            self._forget_flows()
        match step:
            case Send():
                if self._names_hidden(step):
                    self._paused.clear()
                channel = self._controller(step.controller)
                channel.send(b"".join(bytes.fromhex(message) for message in step.messages))
            case Timed():
                self.channel.send(b"".join(bytes.fromhex(message) for message in step.messages))
            case Bulk():
                with self._aside() as channel:
                    channel.send(bulk(step))
                    channel.barrier()
            case PortMod():
                self._modified.add(step.port)
                address = self.address(step.port) if step.right_address else _OTHER_ADDRESS
                said = None if step.properties is None else bytes.fromhex(step.properties)
                change = step.port, address, step.config, step.mask
                self.channel.send(self.channel.dialect.port_mod(step.xid, *change, properties=said))
            case Inject():
                self._injected = True
                self._paused.clear()
                for frame in step.frames:
                    self.wires.inject(self.places[step.port], bytes.fromhex(frame))
            case Move():
                for port in PORTS if step.port == 0 else (step.port,):
                    self.move(port, step.switch)
            case Execute():
                self.execute(step.port, step.switch)
            case Interface():
                self._set_interface(step.port, up=step.up)
            case Reconnect():
                self._versions[step.controller] = step.version
                self.reconnect(step.controller)
            case Resume():
                for frame in self._paused.pop(step.controller, []):
                    self._controller(step.controller).send(nicira.resume(step.xid, frame))
            case GoHome():
                self.go_home()
            case RestartOneswitchd():
                self.restart()
            case RestartSwitch():
                self.restart_switch(step.switch)
            case BreakLink():
                self.break_link(step.switch)
                self.channel.send(b"".join(bytes.fromhex(message) for message in step.messages))
                self._barriers()
                self.mend_link(step.switch)
            case Check():
                pass
        return self._observe(step)

    def _let_switches_notice(self) -> None:
        """Wait one turn of Open vSwitch's main loop, after which fast-failover groups know that a port is down."""
        for _ in range(3):  # it reads its socket in the first or second turn
            for switch in self._controls:
                self.lab.switch(switch).appctl("version")

    def _forget_flows(self) -> None:
        """Make Open vSwitch count its cached flows and forget them.

        A barrier's reply is not yet data-path effect: the caches follow a change a moment later, and so do statistics
        and flow_removed.
        """
        if self._injected:
            self.wires.purge()
        self._injected = False

    def translation_fails(self, port: int, frame: bytes) -> bool:
        """Tell whether Open vSwitch abandons a frame: too many MPLS labels or too deep a recursion."""
        return "Translation failed" in self._trace(port, frame)

    def hashes(self, port: int, frame: bytes) -> bool:
        """Tell whether Open vSwitch hashes a frame for a select group."""
        return "hash(" in self._trace(port, frame)

    def _trace(self, port: int, frame: bytes) -> str:
        switch, interface = self.places[port]
        bridge = "br0" if self.lab.state.switches[0].edge is None else "edge"
        return self._controls[switch].call("ofproto/trace", bridge, f"in_port={interface}", frame.hex())

    def move(self, port: int, switch: int) -> None:
        """Move a port; one bridge has nothing to do."""

    def execute(self, port: int, switch: int) -> None:
        """Move a port's pipeline; one bridge has nothing to do."""

    def reconnect(self, controller: int) -> None:
        """Hang up and call again."""
        self._await_removals()
        self._paused.pop(controller, None)
        if controller:
            if controller in self._others:
                self._others.pop(controller).close()
            self._others[controller] = self._connect(controller)
        else:
            self.channel.close()
            self.channel = self._connect()

    def _await_misses(self) -> None:
        """Wait until controllers of OpenFlow 1.0 get packets that meet no rule; one bridge sends them at once."""

    def go_home(self) -> None:
        """Delete everything, and lose the state that ports share."""
        with self._aside() as channel:
            channel.send(clear_messages(1))
            channel.barrier()
        self._flush()

    def _flush(self) -> None:
        for control in self._controls.values():
            control.call("fdb/flush")
            control.call("dpctl/flush-conntrack")

    def restart(self) -> None:
        """Restart the control plane; one bridge has none."""
        self._hang_up()
        self._end_control_plane()
        self.channel = self._connect()
        self._begin_roles()

    def _end_control_plane(self) -> None:
        """Do nothing: one bridge has no control plane."""

    def _begin_roles(self) -> None:
        """Reset the generation of roles to 0; a switch otherwise remembers it until it ends."""
        with self._aside() as channel:
            for generation in _AROUND:
                channel.send(of.role_request(1, of.ROLE_MASTER, generation))
            channel.send(of.role_request(1, of.ROLE_EQUAL, 0))
            channel.barrier()

    def _begin_tables(self) -> None:
        """Reset the configurations of tables."""
        with self._aside(_WITH_TABLE_CONFIGURATIONS) as channel:
            body = struct.pack("!B3xI", of.ALL_TABLES, 0)
            channel.send(channel.dialect.message(of.TABLE_MOD, 1, body))
            channel.barrier()

    def restart_switch(self, switch: int) -> None:
        """Restart a switch, but not the one bridge, which would lose its rules."""

    def break_link(self, switch: int) -> None:
        """Cut the PCIe link of an sNIC; return when the cut has been noticed."""
        raise NotImplementedError

    def mend_link(self, switch: int) -> None:
        """Undo `break_link`."""
        raise NotImplementedError

    def _hang_up(self) -> None:
        for channel in (self.channel, *self._others.values()):
            channel.close()
        self._others.clear()

    def _controller(self, number: int) -> Channel:
        """Return a controller's connection; all but the first connect when first needed."""
        if number == 0:
            return self.channel
        if number not in self._others:
            self._await_removals()
            self._others[number] = self._connect(number)
        return self._others[number]

    def _set_interface(self, port: int, *, up: bool) -> None:
        (self._down.discard if up else self._down.add)(port)
        self._set_admin_state(port, up=up)

    def _set_admin_state(self, port: int, *, up: bool) -> None:
        for switch, interface in self.interfaces_of(port):
            self._controls[switch].call("netdev-dummy/set-admin-state", interface, "up" if up else "down")
            self.lab.switch(switch).appctl("version")  # a later turn accepts a new connection, and has noticed by then

    @staticmethod
    def _names_hidden(step: Send) -> bool:
        """Tell whether hidden groups may step aside. Known difference: paused packets name the former ones."""
        hidden = [number.to_bytes(4).hex() for number in HIDDEN_GROUPS]
        return any(number in message for number in hidden for message in step.messages)

    def interfaces_of(self, port: int) -> list[Place]:
        """Return the interfaces of a port's host on all switches."""
        return [self.places[port]]

    def _observe(self, step: Step) -> Observation:
        seen = Observation()
        self._barriers()
        if isinstance(step, Send) and self._learns:
            self._flush_reports()
        frames = self.wires.settle()
        if isinstance(step, Inject | Interface | Send | Resume):
            self._barriers()  # messages caused by frames have arrived
        numbers = {place: number for number, place in self.places.items()}
        for place, some in frames.items():
            seen.frames[numbers.get(place, -1)] = [frame.hex() for frame in some]
        self.collect(seen)
        if isinstance(step, Check):
            seen.state = self.dump()
        return seen

    def _flush_reports(self) -> None:
        """Change nothing: with the next flow-mod, Open vSwitch tells of what packet-outs made it learn."""
        with self._aside() as channel:
            channel.send(of.FlowMod(of.DELETE_STRICT, _MARKER_TABLE).encode(1))
            channel.barrier()
        self._barriers()

    def _barriers(self) -> None:
        for channel in (self.channel, *self._others.values()):
            channel.barrier()

    def collect(self, seen: Observation) -> None:
        """Add late effects."""
        self._collect(seen, 0, self.channel)
        for number, channel in sorted(self._others.items()):
            self._collect(seen, number, channel)

    def _collect(self, seen: Observation, number: int, channel: Channel) -> None:
        to = f"{observation.TO_CONTROLLER}{number}: " if number else ""
        dialect = channel.dialect
        seen.replies += [to + reply for reply in observation.replies(channel.replies, dialect, self.baseline)]
        channel.replies.clear()
        for frame in channel.asynchronous:
            reports = observation.reports(frame)
            if reports is not None:
                seen.reports.update(to + report for report in reports if _MARKER_BYTES.hex() not in report)
                continue
            match dialect.sort(frame):
                case "packet-in":
                    seen.packet_ins.append(to + dialect.packet_in(frame))
                    if nicira.is_paused(frame):
                        self._paused.setdefault(number, []).append(frame)
                case "removed" if channel.is_removal_of(frame, _MARKER):
                    pass
                case "removed":
                    seen.removed[to + dialect.removed(frame)] += 1
                case _:
                    seen.port_status[to + dialect.status(frame)] += 1
        channel.asynchronous.clear()

    def await_asynchronous(self, timeout_s: float) -> None:
        """Wait for an asynchronous message or a timeout."""
        self.channel.await_asynchronous(1, timeout_s)
        for channel in self._others.values():
            channel.barrier()

    def dump(self) -> dict[str, list[str]]:
        """Return all state that a controller can read, over each version that one of them speaks."""
        found: dict[str, list[str]] = {}
        for channel in {each.dialect.version: each for each in (*self._others.values(), self.channel)}.values():
            for name, (kind, body) in channel.dialect.dumps().items():
                lines = channel.dialect.multipart_lines(channel.ask_all(kind, body), self.baseline)
                is_usual = channel.dialect.version == of.VERSION
                found[name if is_usual else f"{name} over {channel.dialect.name}"] = lines
        return found

    # ---- ports

    def address(self, port: int) -> bytes:
        """Return the MAC address that the controller sees."""
        for data in self._port_descriptions():
            if struct.unpack_from("!I", data)[0] == port:
                return data[8:14]
        return _OTHER_ADDRESS

    def _port_descriptions(self) -> Iterable[bytes]:
        with self._aside() as channel:
            body = b"".join(part[16:] for part in channel.ask_all(of.PORT_DESC))
        return (body[at : at + 64] for at in range(0, len(body), 64))

    # ---- between runs

    def reset(self) -> None:
        """Reset: no rules, groups or meters, ports as at the start, counters relative to now."""
        self.wires.purge()
        self._injected = False
        self._hang_up()
        self._versions.clear()
        self._paused.clear()
        self.channel = self._connect()
        for port in sorted(self._down):
            self._set_interface(port, up=True)
        self._begin_roles()
        self._begin_tables()
        self._reset_port_configs()
        self.channel.send(of.set_config(1, 0, 0xFFFF))
        if not self._fresh:
            self.channel.send(clear_messages(1) + _usual_numbers())
            self.channel.barrier()
            self._await_removals()
            self._clear_options()
        self._fresh = False
        self._flush()
        self.wires.settle()
        self.home()
        self.channel.barrier()
        self.channel.replies.clear()
        self.channel.asynchronous.clear()
        with self._aside(OpenFlow14.version) as channel:  # which has most counters
            self.baseline = channel.dialect.baseline(
                channel.ask_all(of.PORT_STATS, struct.pack("!I4x", of.ANY)), channel.ask_all(of.TABLES)
            )

    def _clear_options(self) -> None:
        """Remove the fields of tunnels' options, which a rule uses until all threads have forgotten it."""
        deadline = time.monotonic() + NOTICE_S
        with self._aside() as channel:
            while True:
                channel.send(nicira.tlv_map(of.VERSION, 1, _CLEAR_MAP))
                channel.barrier()
                if not channel.replies:
                    return
                channel.replies.clear()
                if time.monotonic() > deadline:
                    raise ChannelError(f"fields of tunnels' options are in use {NOTICE_S:g} s after the last rule")
                time.sleep(POLL_S)

    def _reset_port_configs(self) -> None:
        modified = sorted(self._modified & set(PORTS))
        self._modified.clear()
        if modified:
            with self._aside(1) as channel:  # which has all bits
                for port in modified:
                    channel.send(channel.dialect.port_mod(1, port, self.address(port), 0, _ALL_PORT_CONFIG))
                channel.barrier()

    def _await_removals(self) -> None:
        """Wait until deletions are reported to connected controllers, as far as anything shows it."""
        asking = self._greet(Channel(self._path()))  # the others may be slaves
        marker = of.FlowMod(table=_MARKER_TABLE, cookie=_MARKER, flags=of.SEND_FLOW_REM).encode(1)
        delete = of.FlowMod(of.DELETE, _MARKER_TABLE, cookie=_MARKER, cookie_mask=of.MASK64)
        asking.send(marker + delete.encode(1))
        self.wires.purge()
        is_reported = asking.await_removed(_MARKER, NOTICE_S)
        asking.close()
        if not is_reported:
            raise ChannelError(f"a rule was deleted, and no flow_removed came within {NOTICE_S:g} s")

    def home(self) -> None:
        """Move every port to its first home."""

    def _greet(self, channel: Channel) -> Channel:
        """Request packet-ins as a primary controller gets them."""
        dialect = channel.dialect
        channel.send(dialect.message(of.SET_CONFIG, 1, struct.pack("!HH", 0, 0xFFFF)))
        channel.send(dialect.set_async(2, _ASYNC_MASKS))
        channel.barrier()
        return channel


def clear_messages(xid: int) -> bytes:
    """Delete all rules, groups and meters."""
    flows = of.FlowMod(of.DELETE, of.ALL_TABLES).encode(xid)
    return flows + of.group_mod(xid, 2, 0, of.GROUP_ALL) + of.meter_mod(xid, 2, 0, of.METER_ALL)


def _usual_numbers() -> bytes:
    """Name the numbers to which hidden groups have stepped aside: they get their usual ones back."""
    aside = range(HIDDEN_GROUPS[0], HIDDEN_GROUPS[0] - len(HIDDEN_GROUPS), -1)
    changes = itertools.product(aside, (of.ADD, of.DELETE_GROUP))
    return b"".join(of.group_mod(1, command, 0, number) for number, command in changes)


def bulk(step: Bulk) -> bytes:
    """Return the rules of a `Bulk`, in a table that no packet reaches."""
    instructions = of.apply_actions(of.output(1) * step.actions)
    rules = [of.FlowMod(of.ADD, _BULK_TABLE, number, (), instructions) for number in range(step.rules)]
    return b"".join(rule.encode(0) for rule in rules)
