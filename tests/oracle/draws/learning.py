"""Actions that make a switch learn rules, drawn from small pools.

Learned rules of one shape match the same fields exactly, and have a priority of their own: so no two of them overlap,
nor any with a controller's rule, whose precedence would be undefined.
"""

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools

_FIRST_PRIORITY = 500
# The match of a learned rule: a field, and its source, a field of the packet or a number.
_SHAPES: tuple[tuple[tuple[str, str | int], ...], ...] = (
    (("eth_dst", "eth_src"),),
    (("eth_src", "eth_src"), ("in_port", "in_port")),
    (("eth_dst", "eth_src"), ("eth_type", "eth_type")),
    (("metadata", "metadata"), ("eth_dst", 0x020000000002)),
    (("reg0", 1), ("in_port", "in_port")),
    (),
)
_DONE = (
    of.learn_output("in_port"),
    of.learn_load("reg0", "in_port"),
    of.learn_load("eth_src", "eth_dst"),
    of.learn_load("metadata", 2),
)
_RESULTS = ("", "reg0")


@st.composite
def learn_action(draw: st.DrawFn) -> bytes:
    """Draw a learn action; one with a limit may store whether it could learn."""
    shape = draw(st.integers(0, len(_SHAPES) - 1))
    matches = [of.learn_match(field, source) for field, source in _SHAPES[shape]]
    done = draw(st.lists(st.sampled_from(_DONE), max_size=2))
    limit = draw(st.sampled_from((None, None, None, 0, 1, 2)))
    flags = draw(st.sampled_from((0, 0, of.LEARN_REMOVED, of.LEARN_DELETE, of.LEARN_REMOVED | of.LEARN_DELETE)))
    return of.Learn(
        (*matches, *done),
        table=draw(st.sampled_from(pools.TABLES)),
        priority=_FIRST_PRIORITY + shape,
        cookie=draw(st.sampled_from(pools.COOKIES)),
        idle=draw(st.sampled_from((0, 0, 600))),
        hard=draw(st.sampled_from((0, 0, 900))),
        flags=flags | draw(st.sampled_from((0,) * 15 + (8,))),
        limit=limit,
        result=draw(st.sampled_from(_RESULTS)) if limit is not None else "",
    ).encode()
