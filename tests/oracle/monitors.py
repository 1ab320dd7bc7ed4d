"""Flow monitors: requests of each version, and reports in a form for comparing two switches."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tests.oracle import openflow as of
from tests.oracle.openflow import Oxm
from tests.oracle.peer import frame

INITIAL, ADD, DELETE, MODIFY, ACTIONS, OWN = (1 << bit for bit in range(6))
CHANGES = ADD | DELETE | MODIFY
ALL = INITIAL | CHANGES | ACTIONS | OWN
_OWN_14 = 1 << 6
_NICIRA, _NXST, _NXT_CANCEL = 0x2320, 2, 21
_ONFST = 1870
_VENDOR, _STATS_10, _STATS = 0xFFFF, 16, 18
_OFPMP, _EXPERIMENTER = 16, 4
_COMMANDS = {"add": 0, "modify": 1, "delete": 2}


@dataclass(frozen=True)
class Monitor:
    """One monitor.

    Args:
        number: the controller's number for it.
        flags: as in Nicira's extension; other versions get theirs.
        out_group: only in OpenFlow 1.4.
    """

    number: int = 1
    flags: int = ALL
    out_port: int = of.ANY
    out_group: int = of.ANY
    table: int = of.ALL_TABLES
    fields: tuple[Oxm, ...] = ()

    def entry(self, version: int, command: str = "add") -> bytes:
        """Return its entry in a request."""
        if version == 1:
            nxm = _nxm(self.fields)
            head = struct.pack("!IHHHB5x", self.number, self.flags, self.out_port & 0xFFFF, len(nxm), self.table)
            return head + of.padded(nxm)
        matching = of.match(self.fields)
        if version == 4:
            length = struct.unpack_from("!H", matching, 2)[0]
            return struct.pack("!IHHIB3x", self.number, self.flags, length, self.out_port, self.table) + matching
        flags = self.flags & ~OWN | (_OWN_14 if self.flags & OWN else 0)
        head = struct.pack("!IIIH", self.number, self.out_port, self.out_group, flags)
        return head + bytes((self.table, _COMMANDS[command])) + matching


def _nxm(fields: Iterable[Oxm]) -> bytes:
    """Return the match in NXM; only on ports."""
    nxm = b""
    for name, value, _ in fields:
        assert name == "in_port"
        nxm += struct.pack("!IH", 2, value)
    return nxm


def of_entries(version: int, entries: bytes, xid: int = 7, flags: int = 0) -> bytes:
    """Return a request with these entries."""
    match version:
        case 1:
            return frame(_STATS_10, struct.pack("!HHII4x", _VENDOR, flags, _NICIRA, _NXST) + entries, 1, xid)
        case 4:
            return frame(_STATS, struct.pack("!HH4xII", _VENDOR, flags, of.ONF, _ONFST) + entries, 4, xid)
        case _:
            return frame(_STATS, struct.pack("!HH4x", _OFPMP, flags) + entries, version, xid)


def request(version: int, *monitors: Monitor, xid: int = 7) -> bytes:
    """Return a request for monitors."""
    return of_entries(version, b"".join(each.entry(version) for each in monitors), xid)


def cancel(version: int, number: int, xid: int = 8) -> bytes:
    """Return the end of a monitor."""
    match version:
        case 1:
            return frame(_EXPERIMENTER, struct.pack("!III", _NICIRA, _NXT_CANCEL, number), 1, xid)
        case 4:
            return frame(_EXPERIMENTER, struct.pack("!III", of.ONF, _ONFST, number), 4, xid)
        case _:
            return of_entries(version, Monitor(number, 0).entry(version, "delete"), xid)


def entries(message: bytes) -> list[bytes] | None:
    """Return the entries of a report; None: it is none."""
    version, kind = message[:2]
    head = {1: 24, 4: 24}.get(version, 16)
    is_vendor = message[8:10] == b"\xff\xff"
    numbers = {1: message[12:20], 4: message[16:24]}.get(version, message[8:10])
    wanted = {1: struct.pack("!II", _NICIRA, _NXST), 4: struct.pack("!II", of.ONF, _ONFST)}
    if kind != (17 if version == 1 else 19) or numbers != wanted.get(version, struct.pack("!H", _OFPMP)):
        return None
    assert is_vendor == (version in wanted)
    found, rest = [], message[head:]
    while rest:
        length = int.from_bytes(rest[:2])
        found.append(rest[:length])
        rest = rest[length:]
    return found


def shown(message: bytes) -> str:
    """Return a message byte for byte, but for the order of rules in a report, which is Open vSwitch's own."""
    listed = entries(message)
    if listed is None:
        return message.hex()
    head = message[: len(message) - sum(map(len, listed))]
    return " ".join((head.hex(), *sorted(entry.hex() for entry in listed)))
