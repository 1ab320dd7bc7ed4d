"""Values and masks in ``set(...)`` actions: ``src=10.0.0.0/8``, ``ttl=63``, ``src=02:00:00:00:00:01/ff:...``."""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from server.errors import ActionSyntaxError
from server.openvswitch.odp_actions import Term


@dataclass(frozen=True)
class Masked:
    """Bits to write: ``value`` where ``mask`` is one. ``bits`` is the field's width."""

    value: int
    mask: int
    bits: int

    def onto(self, old: int) -> int:
        """The field's new value."""
        return (old & ~self.mask) | (self.value & self.mask)

    @property
    def whole(self) -> bool:
        """The field is written completely."""
        return self.mask == (1 << self.bits) - 1


def number(bits: int) -> Callable[[str], Masked]:
    """A reader of numbers of this width, decimal or ``0x``, each with or without ``/mask``."""

    def read(text: str) -> Masked:
        return _masked(text, bits, lambda part: int(part, 0))

    return read


def hexadecimal_mask(bits: int) -> Callable[[str], Masked]:
    """As :func:`number`, with a mask that is hexadecimal without ``0x``, as MPLS fields print theirs."""

    def read(text: str) -> Masked:
        value, found, mask = text.partition("/")
        wanted = int(mask, 16) if found else (1 << bits) - 1
        return Masked(int(value, 0) & wanted, wanted, bits)

    return read


def ethernet(text: str) -> Masked:
    """An Ethernet address."""
    return _masked(text, 48, lambda part: int(part.replace(":", ""), 16))


def ipv4(text: str) -> Masked:
    """An IPv4 address, with a prefix length or a dotted mask."""
    return _address(text, 32, lambda part: int(ipaddress.IPv4Address(part)))


def ipv6(text: str) -> Masked:
    """An IPv6 address, with a prefix length or a mask written as an address."""
    return _address(text, 128, lambda part: int(ipaddress.IPv6Address(part)))


def read(term: Term, kinds: dict[str, Callable[[str], Masked]]) -> dict[str, Masked]:
    """The fields in the brackets of ``term`` that ``kinds`` knows; others (``proto``, ``frag``) cannot be written.

    Raises:
        ActionSyntaxError: a value does not parse.
    """
    fields: dict[str, Masked] = {}
    for item in term.inner or ():
        if item.name not in kinds or item.value is None:
            continue
        try:
            fields[item.name] = kinds[item.name](item.value)
        except ValueError as error:
            raise ActionSyntaxError(f"{item.name} of '{term}' is '{item.value}': {error}") from error
    return fields


def _masked(text: str, bits: int, convert: Callable[[str], int]) -> Masked:
    value, found, mask = text.partition("/")
    wanted = convert(mask) if found else (1 << bits) - 1
    return Masked(convert(value) & wanted, wanted, bits)


def _address(text: str, bits: int, convert: Callable[[str], int]) -> Masked:
    value, found, mask = text.partition("/")
    if found and mask.isdecimal():
        length = int(mask)
        wanted = ((1 << bits) - 1) ^ ((1 << (bits - length)) - 1)
        return Masked(convert(value) & wanted, wanted, bits)
    return _masked(text, bits, convert)
