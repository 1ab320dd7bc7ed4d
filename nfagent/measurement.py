"""Measured values. All are immutable; a `Measurement` is one sample.

Traffic counts bytes of frames without FCS, as Open vSwitch does; Mbps are 10^6 bits per second.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """Of traffic."""

    mbps: float
    pps: float


@dataclass(frozen=True, slots=True)
class Load:
    """Load of an instance.

    Attributes:
        utilisation: 0..1 of its workers' capacity: time spent working, not polling.
        millicores: CPU used by its process.
        traffic: in and out over its ports, together.
        flows: number of its flows; None: it does not report them.
    """

    utilisation: float
    millicores: int
    traffic: Rate
    flows: int | None


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Use of a PCIe link between the hypervisor and an sNIC."""

    to_nic: Rate
    to_host: Rate
    capacity_mbps: int


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
