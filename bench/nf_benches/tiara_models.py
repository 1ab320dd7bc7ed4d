"""The parts of Tiara's evaluation (NSDI'22, section 5 and appendix A) that are arithmetic, and what the paper prints.

Nothing here is measured.
"""

import math
from dataclasses import dataclass

#: Flows and slots of the paper's table: "10M" and "32M".
FLOWS = 10 << 20
SLOTS = 32 << 20

#: Widths of the candidates 32M x 1, 16M x 2, 8M x 4, and the throughput that the paper measured, in Gb/s (Figure 9).
FIG9 = {1: 97.2, 2: 97.15, 4: 72.9}

LINK_BPS = 100e9
#: Preamble, start and the gap between frames.
FRAME_OVERHEAD = 20
CHANNELS = 8
CHANNELS_PER_ENTRY = 2
#: Random reads per second of a memory channel, by the text.
CHANNEL_RATE = 100e6
#: The only fitted number, from the throughput at width 4: how evenly a channel answers. 1 would be exponential times.
PHASES = 6


def overflow_share(load: float) -> dict[int, float]:
    """Return the share of flows that find their chain full, by width, for ``load`` flows per slot.

    A chain has a Poisson number of flows, and those beyond its width stay outside.
    """
    return {width: _overflow(load * width, width) / (load * width) for width in (1, 2, 4, 8)}


def _overflow(mean: float, width: int) -> float:
    """Return the expected number of flows beyond ``width`` of a Poisson number with this mean."""
    beyond, term = mean - width, math.exp(-mean)
    for count in range(width):
        beyond += (width - count) * term
        term *= mean / (count + 1)
    return beyond


def line_rate(frame: int) -> float:
    """Return the frames per second of a link."""
    return LINK_BPS / 8 / (frame + FRAME_OVERHEAD)


def slowest(channels: int, phases: int = PHASES) -> float:
    """Return the expected time of the slowest of some channels; one takes 1 on average, in ``phases`` random steps."""
    step = 2e-3

    def is_done(time: float) -> float:
        rate = phases * time
        return 1 - math.exp(-rate) * sum(rate**count / math.factorial(count) for count in range(phases))

    return sum((1 - is_done(number * step) ** channels) * step for number in range(4000))


def lookup_rate(width: int, phases: int = PHASES) -> float:
    """Return the lookups per second of a port: each takes a pair of channels per column, and waits for the slowest."""
    together = width * CHANNELS_PER_ENTRY
    return CHANNEL_RATE / slowest(together, phases) * (CHANNELS // together)


def throughput(width: int, frame: int = 128) -> float:
    """Return the throughput in Gb/s of a port (Figure 9)."""
    return LINK_BPS * min(1, lookup_rate(width) / line_rate(frame)) / 1e9


def collision_probability(entries: int, slots: int, width: int) -> float:
    """Return the probability that some index has more than ``width`` of the entries (equation 4).

    The equation takes the indexes as independent, which they nearly are.
    """
    depth = slots // width
    beyond = 0.0
    for count in range(width + 1, min(entries, width + 60) + 1):
        log = math.lgamma(entries + 1) - math.lgamma(count + 1) - math.lgamma(entries - count + 1)
        log += -count * math.log(depth) + (entries - count) * math.log1p(-1 / depth)
        beyond += math.exp(log)
    return 1.0 if beyond >= 1 else -math.expm1(depth * math.log1p(-beyond))


@dataclass(frozen=True)
class Solution:
    """A row of Table 1: its throughput, and what it takes."""

    name: str
    gbps: float
    cost: float
    watts: float
    units: int


SMUX = Solution("SMux", 38, 8, 500, 2)
SILKROAD = Solution("Silkroad", 1600, 3.5, 550, 1)
#: A switch, eight NICs and a server.
TIARA = Solution("Tiara", 1600, 3.5 + 8 * 1 + 8, 550 + 8 * 75 + 500, 1 + 4)

#: The efficiencies that Table 1 prints: Gb/s per cost unit, Mb/s per watt, Gb/s per rack unit.
PRINTED = {"SMux": (4.75, 76, 19), "Silkroad": (457.14, 2909.1, 1600), "Tiara": (82.05, 969.7, 320)}
#: How many times better than SMux the paper says that Tiara is.
PRINTED_GAINS = (17.4, 12.8, 16.8)


def efficiency(solution: Solution) -> tuple[float, float, float]:
    return solution.gbps / solution.cost, solution.gbps * 1e3 / solution.watts, solution.gbps / solution.units


def gains() -> tuple[float, ...]:
    """Return how many times more efficient Tiara is than SMux."""
    return tuple(tiara / smux for tiara, smux in zip(efficiency(TIARA), efficiency(SMUX), strict=True))
