"""Measured values. All are immutable; a `Measurement` is one sample.

Traffic counts bytes of frames without FCS, as Open vSwitch does; Mbps are 10^6 bits per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rate:
    """Of traffic."""

    mbps: float
    pps: float


OffloadState = Literal["connected", "waiting", "refused"]
"""Whether oneswitchd takes an instance's requests; ``refused``: another instance has the port."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Packets that the switches carry for an instance; each counts once.

    Attributes:
        why: reason why it is not connected.
        flows: number of rules that carry a flow now.
        capacity: how many rules oneswitchd accepts.
        share: 0..1 of the packets of the last second.
        packets, bytes: since the instance's state was created.
        refused: number of refused requests by reason, likewise.
        traffic: carried since the sample before.
    """

    state: OffloadState
    why: str | None
    flows: int
    capacity: int
    share: float
    packets: int
    bytes: int
    refused: Mapping[str, int]
    traffic: Rate


@dataclass(frozen=True, slots=True)
class Passed:
    """Packets of an instance's process since it started, without those that the switches carry for it.

    Attributes:
        dropped: number of packets by reason.
    """

    packets_in: int
    bytes_in: int
    packets_out: int
    bytes_out: int
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Load:
    """Load of an instance.

    Attributes:
        utilisation: 0..1 of its workers' capacity: time spent working, not polling.
        millicores: CPU used by its process.
        traffic: in and out of its process, together; without packets that the switches carry for it.
        flows: number of its flows; None: it does not report them.
        offload: None: it does not ask the switches to carry flows.
        passed: None: it does not count packets.
    """

    utilisation: float
    millicores: int
    traffic: Rate
    flows: int | None
    offload: Offload | None = None
    passed: Passed | None = None


@dataclass(frozen=True, slots=True)
class LinkTotals:
    """Traffic over a PCIe link since its interface was created."""

    to_nic_packets: int
    to_nic_bytes: int
    to_host_packets: int
    to_host_bytes: int


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Use of a PCIe link between the hypervisor and an sNIC."""

    to_nic: Rate
    to_host: Rate
    capacity_mbps: int
    totals: LinkTotals | None = None


@dataclass(frozen=True, slots=True)
class LocationUse:
    """Use of a location.

    Attributes:
        millicores: used by the network functions there.
        capacity_millicores: available to them.
    """

    millicores: int
    capacity_millicores: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One sample.

    Attributes:
        at: when it was taken, seconds since 1970.
        window_s: averaging time of the rates.
        matrix: traffic by virtual port numbers, from -> to: it entered the server at ``from`` and left it at ``to``.
        error: bound of the matrix's relative error.
        instances: by id.
        links: by the sNIC's name.
        locations: by name.
    """

    at: float
    window_s: float
    matrix: dict[tuple[int, int], Rate]
    error: float
    instances: dict[str, Load]
    links: dict[str, LinkUse]
    locations: dict[str, LocationUse]


@dataclass(frozen=True, slots=True)
class Step:
    """A figure over some minutes from ``at``: its mean, and the most of its samples."""

    at: int
    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Cost of a kind of network function, learnt from samples.

    Attributes:
        location_class: ``host`` or ``nic``.
        millicores_per_mbps: CPU for each Mbps of its traffic in and out.
        samples: number of samples; 0: it is a default.
        deviation: typical relative distance of a sample from it.
    """

    kind: str
    location_class: str
    millicores_per_mbps: float
    samples: int
    deviation: float
