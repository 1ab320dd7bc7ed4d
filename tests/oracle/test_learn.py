"""Rules that a switch learns or changes by itself (`learn`, `fin_timeout`), with ports on several switches."""

import time
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.openflow import FlowMod, Learn
from tests.oracle.steps import Check, Execute, Inject, Move, RestartOneswitchd, RestartSwitch, Send

_EXPIRED_S = 15.0
_HOME_S, _POLL_S = 60.0, 0.2
_TCP = (("eth_type", 0x0800, None), ("ip_proto", 6, None))
_MAC_LEARNING = (of.learn_match("eth_dst", "eth_src"), of.learn_output("in_port"))


@pytest.fixture(scope="module", params=[2, 3], ids=["2-switches", "3-switches"])
def worlds(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    with Comparison(request.param, binary(), stateful=True) as comparison:
        yield comparison


@pytest.fixture
def both(worlds: Comparison) -> Comparison:
    """Oneswitchd, whose ports are spread over the switches, and one bridge, without rules."""
    worlds.reset()
    return worlds


def send(both: Comparison, *messages: bytes) -> None:
    """Send messages to both; the answers must be equal."""
    both.play(Send(tuple(each.hex() for each in messages)))


def rule(
    actions: bytes, *, fields: tuple[of.Oxm, ...] = (), table: int = 0, priority: int = 1, goto: int = 0, **more: int
) -> bytes:
    """Return the addition of a rule."""
    instructions = of.apply_actions(actions) + (of.goto(goto) if goto else b"")
    return FlowMod(of.ADD, table, priority, fields, instructions, **more).encode(next(_xids))


_xids = iter(range(1, 1 << 20))


def bridge(learn: Learn) -> tuple[bytes, ...]:
    """Return the rules of a switch that learns MAC addresses in table 1."""
    return rule(learn.encode(), goto=1), rule(of.output(of.FLOOD), table=1)


def frame(source: int, target: int, rest: bytes = b"\x88\xcc" + bytes(50)) -> str:
    """Return a frame between hosts with numbers."""
    return b"".join(b"\2\0\0\0\0" + bytes([host]) for host in (target, source)).hex() + rest.hex()


def talk(both: Comparison, *pairs: tuple[int, int]) -> None:
    """Send frames from the first port of each pair to the host at the second, and compare all state after each."""
    for source, target in pairs:
        both.play(Inject(source, (frame(source, target),)))
        both.play(Check())


def await_removed(both: Comparison, count: int) -> None:
    """Wait until both have reported the end of rules; then compare."""
    for world in (both.ours, both.reference):
        world.wires.purge()
        world.channel.await_asynchronous(count, _EXPIRED_S)
        assert len(world.channel.asynchronous) >= count
    both.play(Check())


def flows(both: Comparison) -> list[str]:
    """Return the rules, which must be equal."""
    ours, reference = (world.dump() for world in (both.ours, both.reference))
    assert ours == reference
    return ours["flows"]


def test_a_malformed_action_moves_no_port(both: Comparison) -> None:
    was_gathered = both.ours.is_gathered()
    learn = Learn(_MAC_LEARNING, table=255).encode()
    send(both, rule(learn), of.packet_out(2, 3, learn, bytes(60)), of.group_mod(3, of.ADD, 0, 1, of.bucket(learn)))
    both.play(Check())
    assert both.ours.is_gathered() == was_gathered


def test_addresses_are_learned_as_on_one_bridge(both: Comparison) -> None:
    send(both, *bridge(Learn(_MAC_LEARNING)))
    talk(both, (1, 2), (2, 1), (1, 2), (6, 1), (1, 6), (3, 6), (6, 3), (4, 5))
    assert len(flows(both)) == 7
    # Host 1 moves to port 5.
    both.play(Inject(5, (frame(1, 2),)))
    talk(both, (2, 1), (6, 1))


def test_everything_a_learned_rule_can_have(both: Comparison) -> None:
    learn = Learn(
        (
            of.learn_match("eth_type", 0x0800),
            of.learn_match("ipv4_dst", "ipv4_src"),
            of.learn_match("in_port", "in_port"),
            of.learn_load("reg0", "in_port"),
            of.learn_load("metadata", 0x1234),
            of.learn_output("in_port"),
        ),
        *(2, 7, 0xC0FFEE, 60, 90, of.LEARN_REMOVED),
    )
    send(both, rule(learn.encode() + of.output(2), fields=(("eth_type", 0x0800, None),)))
    ip = b"\x08\x00" + bytes.fromhex("4500001c000000004011000001020304050607080001000200080000") + bytes(22)
    for port in (1, 4, 6):
        both.play(Inject(port, (frame(port, 2, ip),)))
        both.play(Check())
    assert len(flows(both)) == 4
    send(both, FlowMod(of.MODIFY, 2, 0, (), of.apply_actions(of.output(3))).encode(9))
    both.play(Check())
    both.play(Inject(1, (frame(1, 2, ip),)))
    both.play(Check())
    send(both, FlowMod(of.DELETE, of.ALL_TABLES, cookie=0xC0FFEE, cookie_mask=of.MASK64).encode(10))
    both.play(Check())


def test_timeouts_end_learned_rules_as_on_one_bridge(both: Comparison) -> None:
    for idle, hard in ((1, 0), (0, 1), (1, 9)):
        learn = Learn(_MAC_LEARNING, idle=idle, hard=hard, flags=of.LEARN_REMOVED, cookie=7)
        send(both, *bridge(learn))
        both.play(Inject(1, (frame(1, 2),)))
        both.play(Inject(6, (frame(6, 2),)))
        await_removed(both, 2)
        assert len(flows(both)) == 2


def test_a_rule_whose_end_nobody_reports_ends(both: Comparison) -> None:
    send(both, *bridge(Learn(_MAC_LEARNING, hard=1)))
    both.play(Inject(1, (frame(1, 2),)))
    # It begins later and so ends later.
    send(both, rule(b"", table=5, hard=2, flags=of.SEND_FLOW_REM))
    await_removed(both, 1)
    assert len(flows(both)) == 2


def test_rules_go_with_the_rule_that_learned_them(both: Comparison) -> None:
    for flags in (of.LEARN_DELETE, of.LEARN_DELETE | of.LEARN_REMOVED, 0):
        send(both, *bridge(Learn(_MAC_LEARNING, flags=flags, cookie=5)))
        # A rule of a controller with the same cookie goes with them.
        send(both, rule(of.output(1), table=1, priority=9, fields=(("eth_type", 0x800, None),), cookie=5))
        talk(both, (1, 2), (6, 2))
        send(both, FlowMod(of.DELETE, 0).encode(next(_xids)))
        both.play(Check())
        send(both, FlowMod(of.DELETE, of.ALL_TABLES).encode(next(_xids)))
        both.play(Check())


def test_a_rule_goes_with_another_one_right_after_its_addition(both: Comparison) -> None:
    learn = Learn(_MAC_LEARNING, flags=of.LEARN_DELETE, cookie=5)
    late = {"table": 1, "priority": 9, "fields": (("eth_type", 0x800, None),), "cookie": 5, "flags": of.SEND_FLOW_REM}
    for in_bundle in (False, True):
        send(both, *bridge(learn))
        talk(both, (1, 2), (6, 2))
        messages = (rule(of.output(1), **late), rule(of.output(2)))
        if in_bundle:
            parts = (of.bundle_add(each, 1, 3) for each in messages)
            ends = (of.bundle_control(next(_xids), 1, what, 3) for what in (of.BUNDLE_OPEN, of.BUNDLE_COMMIT))
            messages = (next(ends), *parts, *ends)
        send(both, *messages)
        both.play(Check())
        both.play(RestartOneswitchd())
        both.play(Check())


def test_limits_and_results(both: Comparison) -> None:
    result = FlowMod(of.ADD, 2, 5, (("reg0", 1, None),), of.apply_actions(of.output(2)), flags=of.SEND_FLOW_REM).encode(
        1
    )
    learn = Learn(_MAC_LEARNING, limit=2, result="reg0", cookie=3)
    send(both, rule(learn.encode(), goto=2), result, rule(of.output(3), table=2))
    talk(both, (1, 9), (6, 9), (4, 9), (5, 9), (1, 9))
    send(both, FlowMod(of.DELETE, 1, 0, (("eth_dst", 0x020000000001, None),)).encode(4))
    talk(both, (4, 9), (5, 9))


def test_packet_outs_groups_and_bundles_learn(both: Comparison) -> None:
    learn = Learn(_MAC_LEARNING, cookie=3, flags=of.LEARN_REMOVED)
    data = bytes.fromhex(frame(8, 9))
    send(both, of.packet_out(1, 6, learn.encode() + of.output(1), data))
    both.play(Check())
    group = of.group_mod(2, of.ADD, 0, 1, of.bucket(learn.encode() + of.output(2)))
    send(both, group, rule(of.group_action(1)))
    talk(both, (1, 2), (4, 2))
    parts = (rule(learn.encode(), table=4), of.packet_out(3, 4, learn.encode(), bytes.fromhex(frame(7, 9))))
    opened = of.bundle_control(4, 1, of.BUNDLE_OPEN, 3), *(of.bundle_add(part, 1, 3) for part in parts)
    send(both, *opened, of.bundle_control(5, 1, of.BUNDLE_COMMIT, 3))
    both.play(Check())


def test_a_fin_ends_rules_early(both: Comparison) -> None:
    learn = Learn(
        (of.learn_match("eth_dst", "eth_src"), of.learn_output("in_port")),
        fin_idle=1,
        fin_hard=2,
        idle=60,
        flags=of.LEARN_REMOVED,
    )
    send(
        both,
        rule(learn.encode(), goto=1),
        rule(of.output(2) + of.fin_timeout(1, 0), table=1, fields=_TCP, flags=of.SEND_FLOW_REM),
    )
    fin = "080045000028000000004006000001020304050607080001000200000000000000005001000000000000" + "00" * 10
    both.play(Inject(1, (frame(1, 2),)))
    both.play(Check())
    both.play(Inject(6, (frame(6, 1)[:24] + fin,)))
    await_removed(both, 1)
    both.play(Inject(6, (frame(6, 9)[:24] + fin,)))
    await_removed(both, 1)
    both.play(Check())


def test_malformed_actions_are_refused_as_by_one_bridge(both: Comparison) -> None:
    good = Learn(_MAC_LEARNING).encode()
    broken = [good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :] for at in range(len(good)) for bit in (1, 0x80)]
    lengths = [
        good[:2] + bytes([0, length]) + good[4:length] + bytes(max(0, length - len(good)))
        for length in range(16, 96, 8)
    ]
    second = Learn(_MAC_LEARNING, limit=1, result="reg0").encode()
    broken += [
        second[:at] + bytes([second[at] ^ bit]) + second[at + 1 :] for at in range(len(second)) for bit in (1, 0x80)
    ]
    for action in broken + lengths:
        send(both, rule(action, table=3))
    both.play(Check())


def test_restarts_keep_what_was_learned(both: Comparison) -> None:
    send(both, *bridge(Learn(_MAC_LEARNING, idle=300, hard=600, flags=of.LEARN_REMOVED, cookie=2)))
    talk(both, (1, 2), (6, 1))
    both.play(RestartOneswitchd())
    both.play(Check())
    talk(both, (4, 1), (1, 6))
    for switch in range(3):
        both.play(RestartSwitch(switch))
        both.play(Check())
    talk(both, (5, 1), (1, 6))
    send(both, FlowMod(of.DELETE, 1).encode(next(_xids)))
    both.play(Check())


def test_moving_ports_keep_what_was_learned(both: Comparison) -> None:
    send(both, *bridge(Learn(_MAC_LEARNING)))
    talk(both, (1, 2), (6, 1))
    for switch in range(3):
        both.play(Move(1, switch))
        talk(both, (1, 6), (6, 1), (4, 1))
    both.play(Move(0, 1))
    talk(both, (1, 6), (6, 1), (5, 1))


def test_an_executor_changes_while_learned_rules_exist(both: Comparison) -> None:
    send(both, *bridge(Learn(_MAC_LEARNING, idle=600, hard=900, flags=of.LEARN_REMOVED, cookie=4)))
    talk(both, (1, 2), (6, 1), (4, 1))
    send(both, rule(b"", goto=1))
    for port, switch in ((1, 1), (6, 1), (4, 2), (1, 0)):
        both.play(Execute(port, switch))
        talk(both, (1, 6), (6, 1), (4, 6), (5, 1))
    both.play(RestartOneswitchd())
    both.play(Check())
    send(both, FlowMod(of.DELETE, 1).encode(next(_xids)))
    both.play(Check())


@pytest.mark.parametrize("worlds", [3], ids=["3-switches"], indirect=True)
def test_what_was_learned_follows_the_ports_home(both: Comparison) -> None:
    client = both.ours.daemon.client
    send(both, *bridge(Learn(_MAC_LEARNING, idle=600, hard=900, flags=of.LEARN_REMOVED, cookie=4)))
    talk(both, (1, 2), (6, 1), (4, 1))
    assert len({port.executing for port in client.ports()}) == 1
    send(both, rule(b"", goto=1))
    talk(both, (1, 6), (6, 1))
    deadline = time.monotonic() + _HOME_S
    while client.status().virtual.gathered is not None:
        assert time.monotonic() < deadline
        time.sleep(_POLL_S)
    assert len({port.executing for port in client.ports()}) == 3
    talk(both, (1, 6), (6, 1), (4, 6), (5, 1))
    both.play(RestartOneswitchd())
    both.play(Check())
    send(both, FlowMod(of.DELETE, 1).encode(next(_xids)))
    both.play(Check())
