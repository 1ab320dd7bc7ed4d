"""Random matches, written field by field without a codec."""

import random
from collections.abc import Callable

BASIC, NXM_OF, NXM_NX, REGS, EXPERIMENTER = 0x8000, 0x0000, 0x0001, 0x8001, 0xFFFF
ONF, NSH = 0x4F4E4600, 0x005AD650

Header = tuple[int, int]


def tlv(header: Header, width: int, value: int, mask: int | None = None, experimenter: int | None = None) -> bytes:
    number, field = header
    payload = b"" if experimenter is None else experimenter.to_bytes(4, "big")
    payload += value.to_bytes(width, "big")
    if mask is not None:
        payload += mask.to_bytes(width, "big")
    return number.to_bytes(2, "big") + bytes([field << 1 | (mask is not None), len(payload)]) + payload


class Generator:
    """Generates matches that Open vSwitch mostly accepts: few values, so that pairs often collide, in every spelling.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, bits: int) -> int:
        """Return a number of a few low bits, or with the field's highest bit."""
        return self.random.choice([0, 1, 2, 3, (1 << bits) - 1, 1 << (bits - 1)]) & ((1 << bits) - 1)

    def field(self, spellings: list[tuple[Header, int]], *, bits: int | None = None, maskable: bool = True) -> bytes:
        """Return a field in one of its spellings, with its width in bytes."""
        header, width = self.random.choice(spellings)
        bits = bits or 8 * width
        value = self.number(bits)
        mask = None
        if maskable:
            everything = (1 << (8 * width)) - 1
            mask = self.random.choice([None, None, everything, 0, self.number(bits), self.number(bits)])
            value &= everything if mask is None else mask
        return tlv(header, width, value, mask)

    def some(self, *makers: Callable[[], bytes], share: float = 0.3) -> list[bytes]:
        return [make() for make in makers if self.random.random() < share]

    def port(self) -> bytes:
        number = self.random.choice([1, 2, 0xFFFE])
        if self.random.random() < 0.5:
            return tlv((NXM_OF, 0), 2, number)
        return tlv((BASIC, 0), 4, number | 0xFFFF0000 if number == 0xFFFE else number)

    def action_set_output(self) -> bytes:
        number = self.random.choice([1, 2])
        if self.random.random() < 0.5:
            return tlv((EXPERIMENTER, 43), 4, number, experimenter=ONF)
        return tlv((BASIC, 43), 4, number)

    def registers(self) -> list[bytes]:
        """Return registers and their unions without overlaps."""
        match self.random.randrange(4):
            case 0:
                return [self.field([((REGS, 0), 8)])]
            case 1:
                return [self.field([((NXM_NX, 111), 16)])]
            case _:
                return self.some(
                    lambda: self.field([((NXM_NX, 0), 4)]),
                    lambda: self.field([((NXM_NX, 1), 4)]),
                    lambda: self.field([((NXM_NX, 3), 4)]),
                )

    def metadata(self) -> list[bytes]:
        """Return fields without prerequisites in any order."""
        fields = self.some(
            self.port,
            lambda: self.field([((BASIC, 2), 8)]),
            lambda: self.field([((BASIC, 38), 8), ((NXM_NX, 16), 8)]),
            lambda: self.field([((NXM_NX, 31), 4)]),
            lambda: self.field([((NXM_NX, 33), 4)]),
            lambda: self.field([((NXM_NX, 37), 4)], maskable=False),
            lambda: self.field([((NXM_NX, 38), 2)]),
            lambda: self.field([((NXM_NX, 39), 1)]),
            lambda: self.field([((NXM_NX, 104), 2)], bits=1),
            lambda: self.field([((NXM_NX, 105), 4)], bits=8),
            lambda: self.field([((NXM_NX, 106), 2)], maskable=False),
            lambda: self.field([((NXM_NX, 107), 4)]),
            lambda: self.field([((NXM_NX, 108), 16)]),
            lambda: self.field([((NXM_NX, 109), 16)]),
            lambda: self.field([((NXM_NX, 40), 4)]),
            self.action_set_output,
            lambda: tlv((EXPERIMENTER, 12), 1, self.random.choice([0, 1, 2]), experimenter=0x2320),
            lambda: tlv((EXPERIMENTER, 11), 4, self.random.choice([0, 1, 2]), experimenter=0x2320),
            share=0.12,
        )
        if self.random.random() < 0.3:
            fields += self.registers()
        self.random.shuffle(fields)
        return fields

    def vlan(self) -> list[bytes]:
        match self.random.randrange(4):
            case 0:
                mask = self.random.choice([None, 0xFFFF, 0x1000, 0x1001, 0xE000, 0x3003, 0])
                value = self.random.choice([0, 0x1000, 0x1001, 0x3002, 0xFFFF])
                return [tlv((NXM_OF, 4), 2, value if mask is None else value & mask, mask)]
            case 1:
                mask = self.random.choice([None, 0x1FFF, 0xFFFF, 0x1000, 0x1003, 3])
                value = self.random.choice([0, 0x1000, 0x1001, 0x1FFF])
                return [tlv((BASIC, 6), 2, value if mask is None else value & mask, mask)]
            case _:
                vid = tlv((BASIC, 6), 2, self.random.choice([0x1000, 0x1001]), self.random.choice([None, 0x1FFF]))
                masked = tlv((BASIC, 6), 2, 0x1000, 0x1000)
                pcp = tlv((BASIC, 7), 1, self.random.choice([0, 1, 7]))
                return [self.random.choice([vid, masked]), pcp]

    def tos(self) -> list[bytes]:
        fields = self.some(
            lambda: self.random.choice(
                [tlv((BASIC, 8), 1, dscp := self.random.choice([0, 1, 63])), tlv((NXM_OF, 5), 1, dscp << 2)]
            ),
            lambda: self.field([((BASIC, 9), 1), ((NXM_NX, 28), 1)], bits=2, maskable=False),
            lambda: self.field([((NXM_NX, 29), 1)], maskable=False),
            lambda: tlv((NXM_NX, 26), 1, *self.random.choice([(0, None), (1, 3), (0, 2), (1, None), (0, 0xFF)])),
        )
        self.random.shuffle(fields)
        return fields

    def ethertype(self, number: int) -> bytes:
        return tlv(self.random.choice([(BASIC, 5), (NXM_OF, 3)]), 2, number)

    def protocol(self, number: int) -> bytes:
        return tlv(self.random.choice([(BASIC, 10), (NXM_OF, 6)]), 1, number)

    def arp(self) -> list[bytes]:
        return [
            self.ethertype(self.random.choice([0x0806, 0x8035])),
            *self.some(
                lambda: self.field([((BASIC, 21), 2), ((NXM_OF, 15), 2)], bits=8, maskable=False),
                lambda: self.field([((BASIC, 22), 4), ((NXM_OF, 16), 4)]),
                lambda: self.field([((BASIC, 23), 4), ((NXM_OF, 17), 4)]),
                lambda: self.field([((BASIC, 24), 6), ((NXM_NX, 17), 6)]),
                lambda: self.field([((BASIC, 25), 6), ((NXM_NX, 18), 6)]),
                share=0.5,
            ),
        ]

    def transport(self) -> list[bytes]:
        kind = self.random.choice(["none", "tcp", "udp", "sctp"])
        numbers = {"tcp": (6, 13, 9), "udp": (17, 15, 11), "sctp": (132, 17, None)}
        if kind == "none":
            return []
        number, basic, nxm = numbers[kind]
        source = [((BASIC, basic), 2)] + ([((NXM_OF, nxm), 2)] if nxm else [])
        destination = [((BASIC, basic + 1), 2)] + ([((NXM_OF, nxm + 1), 2)] if nxm else [])
        fields = self.some(lambda: self.field(source), lambda: self.field(destination), share=0.5)
        if kind == "tcp" and self.random.random() < 0.3:
            fields.append(self.field([((NXM_NX, 34), 2), ((BASIC, 42), 2)], bits=12))
        return [self.protocol(number), *fields]

    def ipv4(self) -> list[bytes]:
        addresses = self.some(
            lambda: self.field([((BASIC, 11), 4), ((NXM_OF, 7), 4)]),
            lambda: self.field([((BASIC, 12), 4), ((NXM_OF, 8), 4)]),
        )
        rest = self.transport()
        if not rest and self.random.random() < 0.3:
            rest = [
                self.protocol(1),
                *self.some(
                    lambda: self.field([((BASIC, 19), 1), ((NXM_OF, 13), 1)], maskable=False),
                    lambda: self.field([((BASIC, 20), 1), ((NXM_OF, 14), 1)], maskable=False),
                    share=0.6,
                ),
            ]
        return [self.ethertype(0x0800), *addresses, *self.tos(), *rest]

    def ipv6(self) -> list[bytes]:
        addresses = self.some(
            lambda: self.field([((BASIC, 26), 16), ((NXM_NX, 19), 16)]),
            lambda: self.field([((BASIC, 27), 16), ((NXM_NX, 20), 16)]),
            lambda: self.field([((BASIC, 28), 4), ((NXM_NX, 27), 4)], bits=20),
        )
        rest = self.transport()
        if not rest and self.random.random() < 0.5:
            kind = self.random.choice([135, 136])
            rest = [
                self.protocol(58),
                tlv(self.random.choice([(BASIC, 29), (NXM_NX, 21)]), 1, kind),
                tlv(self.random.choice([(BASIC, 30), (NXM_NX, 22)]), 1, 0),
                *self.some(
                    lambda: self.field([((BASIC, 31), 16), ((NXM_NX, 23), 16)]),
                    lambda: (
                        self.field([((BASIC, 32), 6), ((NXM_NX, 24), 6)])
                        if kind == 135
                        else self.field([((BASIC, 33), 6), ((NXM_NX, 25), 6)])
                    ),
                    lambda: tlv((0x1000, 1), 4, self.number(32)),
                    lambda: tlv((0x1000, 2), 1, self.number(8)),
                ),
            ]
        return [self.ethertype(0x86DD), *addresses, *self.tos(), *rest]

    def mpls(self) -> list[bytes]:
        return [
            self.ethertype(self.random.choice([0x8847, 0x8848])),
            *self.some(
                lambda: self.field([((BASIC, 34), 4)], bits=20, maskable=False),
                lambda: self.field([((BASIC, 35), 1)], bits=3, maskable=False),
                lambda: self.field([((BASIC, 36), 1)], bits=1, maskable=False),
                lambda: self.field([((NXM_NX, 30), 1)], maskable=False),
                share=0.5,
            ),
        ]

    def nsh(self) -> list[bytes]:
        def one(field: int, width: int, value: int, mask: int | None = None) -> bytes:
            return tlv((EXPERIMENTER, field), width, value, mask, NSH)

        return [
            self.ethertype(0x894F),
            *self.some(
                lambda: one(1, 1, 1, self.random.choice([None, 1, 3])),
                lambda: one(2, 1, self.random.choice([1, 2])),
                lambda: one(3, 1, self.number(8)),
                lambda: one(4, 4, self.number(24)),
                lambda: one(5, 1, self.number(8)),
                lambda: one(6, 4, 1, self.random.choice([None, 1, 3])),
                lambda: one(9, 4, 1, self.random.choice([None, 1, 3])),
                lambda: one(10, 1, self.number(6)),
            ),
        ]

    def layers(self) -> list[bytes]:
        fields = self.some(
            lambda: self.field([((BASIC, 3), 6), ((NXM_OF, 1), 6)]),
            lambda: self.field([((BASIC, 4), 6), ((NXM_OF, 2), 6)]),
        )
        if self.random.random() < 0.35:
            fields += self.vlan()
        kinds = [self.arp, self.ipv4, self.ipv4, self.ipv6, self.mpls, self.nsh]
        if self.random.random() < 0.6:
            fields += self.random.choice(kinds)()
        return fields

    def match(self) -> list[bytes]:
        """Return the fields of a match, prerequisites first."""
        if self.random.random() < 0.05:
            packet_type = tlv((BASIC, 44), 4, self.random.choice([0, 0, 0x1894F]))
            return [packet_type, *self.metadata()]
        parts = [self.metadata(), self.layers()]
        self.random.shuffle(parts)
        return parts[0] + parts[1]

    def related(self, fields: list[bytes]) -> list[bytes]:
        """Return a match similar to another: some fields omitted, some redrawn."""
        match self.random.randrange(3):
            case 0:
                return self.match()
            case 1:
                keep = self.random.randrange(len(fields) + 1)
                return fields[:keep]
            case _:
                return [self.respelled(field) for field in fields]

    def respelled(self, field: bytes) -> bytes:
        """Return the same field with a full mask, or with another value."""
        is_basic = field[:2] == b"\x80\x00"
        if field[2] & 1 == 0 and is_basic and self.random.random() < 0.5:
            value = field[4:]
            return field[:2] + bytes([field[2] | 1, 2 * len(value)]) + value + b"\xff" * len(value)
        if self.random.random() < 0.1:
            return field[:-1] + bytes([field[-1] ^ 1])
        return field
