"""``uno-lab demo --chain``: tenants' chains, told with counts, as an ordinary user."""

import pytest

from lab.chain.counting import Passage, Summary
from lab.chain.tenants import TENANTS, controller, guard
from lab.http_report import Failure, HttpReport
from lab.tally import StreamReport

SENT = StreamReport(100, 100, 0, 0, 0, 1.0)


@pytest.mark.namespaces
@pytest.mark.timeout(300)
def test_the_chains_lose_nothing(story_as_user) -> None:
    figures = story_as_user("demo", "--chain", "--json", timeout=250)["figures"]
    assert figures["requests"] > 200
    assert figures["packets"] > 500
    assert [figures[name] for name in ("failed", "lost", "duplicated", "reordered")] == [0, 0, 0, 0]
    assert figures["hosts"] == {"acme": ["10.0.0.100", "10.0.0.4"], "beta": ["10.0.0.110", "10.0.0.5"]}
    assert figures["state_bytes"] <= 1_600_000
    assert {name: [list(way) for way in ways.values()] for name, ways in figures["hops"].items()} == {
        name: [[f"{name}-firewall", f"{name}-monitor", f"{name}-lb"], [f"{name}-monitor", f"{name}-firewall"]]
        for name in ("acme", "beta")
    }


@pytest.mark.parametrize(
    ("inward", "outward", "holds"),
    [
        ((400, 400, 480), (90, 90), True),
        ((400, 190, 480), (90, 90), False),
        ((400, 400, 480), (90, 0), False),
        ((0, 0, 0), (90, 90), False),
    ],
)
def test_a_hop_without_packets_is_noticed(inward: tuple[int, ...], outward: tuple[int, ...], *, holds: bool) -> None:
    names = ("firewall", "monitor", "lb")
    passage = Passage("acme", dict(zip(names, inward, strict=True)), dict(zip(names[1::-1], outward, strict=True)))
    assert passage.holds == holds
    assert str(passage).startswith(
        f"acme: firewall {inward[0]} -> monitor {inward[1]} -> lb {inward[2]}; back monitor "
    )


def test_whatever_is_lost_is_counted() -> None:
    summary = Summary(streams={"acme": SENT, "beta": SENT}, reports={"acme": HttpReport()})
    assert summary.check().holds
    summary.streams["beta"] = StreamReport(100, 98, 1, 1, 0, 1.0)
    assert not summary.check().holds
    assert "1 lost, 1 duplicated" in summary.check().detail
    summary.streams["beta"] = SENT
    summary.reports["acme"].failures.append(Failure("new", 1.0, 2.5, None, "connection refused"))
    assert "new connection, after 1.50 s: connection refused" in summary.check().detail
    assert not summary.check().holds


def test_the_firewall_takes_its_place_where_there_is_one() -> None:
    assert guard(TENANTS[0], {"limiter", "assets"})[0] == "limiter"
    kind, config = guard(TENANTS[0], {"firewall", "limiter"})
    assert kind == "firewall"
    assert [(rule["destination"], rule["ports"]) for rule in config["rules"]] == [
        ([TENANTS[0].web_vip], [80]),
        ([TENANTS[0].data_vip], [40000]),
    ]


def test_the_controller_gets_the_ports_in_the_order_of_the_orders() -> None:
    example, (line,) = controller()
    assert example == "tenant_chains.py"
    assert line == (
        "chains = 10.0.0.100 10.0.0.101 via nf1000+nf1001 nf1002+nf1003 nf1004, "
        "10.0.0.110 10.0.0.111 via nf1005+nf1006 nf1007+nf1008 nf1009"
    )
