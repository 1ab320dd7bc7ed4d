"""Nicira's group-mods over OpenFlow 1.0: those of OpenFlow 1.5 with actions of 1.0."""

from hypothesis import strategies as st

from tests.oracle import pools
from tests.oracle.dialects import messages10 as m
from tests.oracle.dialects.messages15 import parts
from tests.oracle.draws import openflow10, openflow15
from tests.oracle.draws.model import Draw, Model

_SET_VLAN_VID, _SET_VLAN_PCP = 1, 2


def change_groups(draw: Draw, model: Model) -> bytes:
    """Draw a change of a group, or of its buckets."""

    def own(chain: tuple[int, ...], *, odd: bool = True) -> st.SearchStrategy[bytes]:
        return _actions(model, chain, odd=odd)

    return m.group_mod(*openflow15.group_mod(draw, model, own))


@st.composite
def _actions(draw: st.DrawFn, model: Model, chain: tuple[int, ...], *, odd: bool) -> bytes:
    """Draw actions of a bucket; rules of any table may use the group."""
    first = m.group(draw(st.sampled_from(chain))) if chain and draw(st.integers(0, 3)) == 0 else b""
    done = openflow10.actions(draw, model, (), max(pools.TABLES), odd=odd)
    return first + b"".join(each for each in parts(done) if _is_alike(each, model))


def _is_alike(action: bytes, model: Model) -> bool:
    """Tell whether an action reads the same in the versions of this run.

    Known difference: later versions show setters of a tag as loads.
    """
    return model.is_old or int.from_bytes(action[:2]) not in (_SET_VLAN_VID, _SET_VLAN_PCP)
