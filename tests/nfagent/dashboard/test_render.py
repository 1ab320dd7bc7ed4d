"""Rendering of the server's state."""

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfagent.dashboard import news, progress, render, shares
from nfagent.dashboard.probe import Switches
from nfagent.dashboard.snapshot import Place, Snapshot
from nfagent.measurement import Load, Rate
from nfagent.model import Event, View
from nfagent.monitor.day import STEP_S
from nfagent.store.migrations import Arrival
from server.oneswitchd.answers import LinkState
from tests.nfagent import samples
from tests.nfagent.dashboard import crowd, sample
from tests.nfagent.dashboard.sample import AT, HOST, NIC

_VOID = {"input", "link", "meta", "br"}


class Outline(HTMLParser):
    """Elements and texts of a page; fails if elements are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(self.words)


def page(known: Snapshot) -> Outline:
    return Outline(render.page(render.fragments(known), "x-1", "00000000000000a1", AT, signed_in=True))


def words(known: Snapshot, fragment: str) -> str:
    fragments = render.fragments(known)
    return Outline(render.filled(fragments[fragment], fragments)).text


def of(known: Snapshot, name: str) -> View:
    return next(view for view in known.views if view.instance.name == name)


def with_view(known: Snapshot, name: str, **fields: Any) -> Snapshot:
    views = [replace(view, **fields) if view.instance.name == name else view for view in known.views]
    return replace(known, views=views)


def test_the_page_is_whole_and_its_ids_are_unique() -> None:
    outline = page(sample.server())
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    referred = [attributes["aria-labelledby"] for _, attributes in outline.tags if "aria-labelledby" in attributes]
    assert set(referred) <= set(ids)
    assert len(referred) >= 10


def test_the_page_respects_its_content_policy() -> None:
    for tag, attributes in page(sample.server()).tags:
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "/").startswith(("/", "#")), (tag, attributes)
        assert tag != "style"
        assert tag != "script" or attributes.get("src")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"refused": {}}, "offload 12.8 k flows, 93 % of packets port"),
        ({"state": "waiting", "why": "no socket"}, "offload waiting: no socket port"),
        ({"state": "refused"}, "offload refused port"),
    ],
)
def test_a_card_says_what_the_switches_carry(changes: dict[str, Any], said: str) -> None:
    known = sample.server()
    assert known.measured
    loads = {
        key: replace(load, offload=load.offload and replace(load.offload, **changes))
        for key, load in known.measured.instances.items()
    }
    assert said in words(replace(known, measured=replace(known.measured, instances=loads)), "lane-1")


def test_network_functions_are_in_the_lane_where_they_run() -> None:
    known = sample.server()
    host, nic = words(known, "hub"), words(known, "lane-1")
    assert "tenant-a-lb active l4lb, medium util+ 31 % millicores 620 traffic 1.48 Gb/s flows 9,120" in host
    assert "port 1002 flow-id 13" in host
    assert "edge-lb" in nic
    assert "edge-lb" not in host
    assert "CPU 1.4 of 4.0 cores slots 3 of 6" in host
    assert "flows 48.2 k offload 12.8 k flows, 93 % of packets, refused: full 12" in nic
    assert "offload" not in host
    assert "tenant-b-lb migrating l4lb, small moving to snic0" in host
    assert "tenant-b-lb incoming l4lb, small moving from hypervisor" in nic


def test_the_link_shows_traffic_in_both_directions() -> None:
    said = words(sample.server(), "link-1")
    assert "to snic0: 3.19 Gb/s 32 %" in said
    assert "to hypervisor: 7.42 Gb/s 74 %" in said
    assert "of 10.00 Gb/s each way" in said


def test_the_page_explains_each_location() -> None:
    said = words(sample.server(), "hub")
    assert "tenant-a-lb is on hypervisor: snic0 would save 620 there" in said
    assert "runner-up snic0, host cost -620 millicores; PCIe snic0 up (10,900 of 10,000) forbids it" in said
    assert "binding limits PCIe snic0 up (9,800 of 10,000)" in said
    assert "probe is on hypervisor: it has no other mode runner-up none: this is the only possible location" in said


def test_missing_measurements_are_not_shown_as_zero() -> None:
    known = sample.unmeasured()
    for fragment in ("tiles", "hub", "lane-1", "link-1"):
        said = words(known, fragment)
        assert "not measured yet" in said
        assert " 0 " not in f" {said} ".replace("slots 0 ", "")
    assert "Not measured yet. loads and rates are unknown until the first measurement is complete" in words(
        known, "banner"
    )


def test_an_unmeasured_function_is_shown_among_measured_ones() -> None:
    known = sample.server()
    measured = known.measured
    assert measured
    loads = {key: load for key, load in measured.instances.items() if key != of(known, "probe").instance.id}
    said = words(replace(known, measured=replace(measured, instances=loads)), "hub")
    assert "probe active probe, small load: not measured yet" in said


def test_uncounted_traffic_is_not_shown_as_zero() -> None:
    known = sample.server()
    assert known.measured
    loads = {key: replace(load, traffic=Rate(0.0, 0.0)) for key, load in known.measured.instances.items()}
    blind = replace(known.measured, matrix={}, error=1.0, links={}, instances=loads)
    known = replace(known, measured=blind, history=[blind])
    assert "Traffic through the server not measured yet" in words(known, "tiles")
    assert "util+ 31 % millicores 620 traffic - not measured yet flows 9,120" in words(known, "hub")
    assert "Traffic is not measured. no switch" in words(known, "banner")
    idle = replace(known, measured=replace(blind, error=0.0))
    assert "Traffic through the server 0 Mb/s" in words(idle, "tiles")
    assert "millicores 620 traffic 0 Mb/s" in words(idle, "hub")


def test_the_day_is_drawn_anew_once_in_five_minutes() -> None:
    known = replace(sample.server(), at=AT - AT % STEP_S)
    tiles, soon, later = (render.fragments(replace(known, at=known.at + after))["tiles"] for after in (0, 299, 300))
    assert tiles == soon != later
    assert 'class="course day"' in tiles


def test_an_old_measurement_is_marked_as_stale() -> None:
    known = sample.server()
    assert known.measured
    old = replace(known, measured=replace(known.measured, at=AT - 60))
    assert "Measuring has stopped. the figures date from 14:12:20" in words(old, "banner")
    assert "No faults known" in words(known, "banner")


def down(link: str = "up", state: str = "up") -> Switches:
    ends = LinkState(hypervisor="pcie-snic0", local="pf0hpf", state=link)
    told = sample.switches()
    assert told.status
    nic = sample.switch(NIC, ends, state)
    return replace(told, status=told.status.model_copy(update={"switches": (told.status.switches[0], nic)}))


@pytest.mark.parametrize(
    ("switches", "banner", "lane"),
    [
        (down(link="down"), "snic0 is down. its PCIe link is down", "snic0 smart NIC down"),
        (
            down(state="down"),
            "snic0 is down. oneswitchd cannot reach its bridge virt: connection refused",
            "snic0 smart NIC down",
        ),
        (
            down(state="silent"),
            "snic0 is down. its Open vSwitch hangs: it is connected, but does not answer",
            "snic0 smart NIC down",
        ),
        (
            down(state="syncing"),
            "snic0 is syncing. oneswitchd is comparing the rules of its bridge virt",
            "snic0 smart NIC syncing",
        ),
        (
            Switches(None, "nobody answers at /run/x.sock"),
            "The state of the switches and their links is unknown. nobody answers at /run/x.sock",
            "snic0 smart NIC unknown",
        ),
    ],
)
def test_faults_of_a_location_are_shown(switches: Switches, banner: str, lane: str) -> None:
    known = replace(sample.server(), switches=switches)
    assert banner in words(known, "banner")
    assert lane in words(known, "lane-1")
    is_cut = "edge-lb active l4lb, large snic0 is down" in words(known, "lane-1")
    assert is_cut == ("snic0 is down" in banner)


def test_that_oneswitchd_hangs_is_shown_before_its_status_is_too_old() -> None:
    hangs = Event(7, AT - 3, "oneswitchd.down", "oneswitchd", None, {"reason": "timed out"})
    known = replace(sample.server(), outages={"oneswitchd": hangs})
    assert "The state of the switches and their links is unknown. timed out" in words(known, "banner")
    again = replace(hangs, type="oneswitchd.up")
    assert "No faults known" in words(replace(known, outages={"oneswitchd": again}), "banner")


def test_a_location_shows_since_when_it_is_down() -> None:
    outage = Event(7, AT - 30, "location.down", NIC, None, {"location": NIC, "reason": "its machine is gone"})
    known = replace(sample.server(), outages={NIC: outage})
    assert "snic0 is down since 14:12:50. its machine is gone" in words(known, "banner")
    back = replace(outage, type="location.up")
    assert "No faults known" in words(replace(known, outages={NIC: back}), "banner")


def test_an_error_of_a_function_is_shown() -> None:
    known = sample.server()
    failed = with_view(
        known, "probe", status="error", running=sample.running(of(known, "probe").instance, HOST, reason="it <ended>")
    )
    assert "probe. it runs, but it <ended> (since" in words(failed, "banner")
    assert "error probe, small it <ended>" in words(failed, "hub")


def test_a_function_that_runs_nowhere_is_shown_separately() -> None:
    known = with_view(sample.server(), "probe", status="building", running=None)
    probe = of(known, "probe").instance
    known = replace(known, running=[row for row in known.running if row.instance != probe.id])
    assert "Not running probe building probe, small" in words(known, "ended")
    assert "probe" not in words(known, "hub") + words(known, "never")
    never = replace(known, ran=known.ran - {probe.id})
    assert "Never ran probe building probe, small" in words(never, "never")
    assert "probe" not in words(never, "hub") + words(never, "ended")
    assert "probe. it does not run (since 13:13:20)" in words(never, "banner")
    assert "card-" not in render.fragments(sample.server())["ended-cards"]


def test_a_function_that_failed_at_its_first_start_never_ran() -> None:
    known = sample.server()
    probe = of(known, "probe").instance
    failed = sample.running(probe, HOST, phase="error", reason="its program is missing")
    known = with_view(known, "probe", status="error", running=failed)
    assert "probe error probe, small its program is missing" in words(known, "hub")
    never = replace(known, ran=known.ran - {probe.id})
    assert "probe error probe, small its program is missing" in words(never, "never")
    assert "probe" not in words(never, "hub")
    starting = with_view(never, "probe", status="building", running=replace(failed, phase="starting", reason=None))
    assert "probe building" in words(starting, "hub")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "just now"), (130, "2 min ago"), (7300, "2 h ago"), (90_000, "1 day ago"), (180_000, "2 days ago")],
)
def test_a_card_says_where_its_function_came_from(seconds: float, said: str) -> None:
    known = sample.server()
    edge = of(known, "edge-lb").instance.id
    arrival = Arrival(edge, HOST, NIC, AT - seconds)
    assert f"edge-lb active l4lb, large from hypervisor, {said}" in words(
        replace(known, arrivals={edge: arrival}), "lane-1"
    )
    elsewhere = arrival._replace(target=HOST)
    assert "from hypervisor, " not in words(replace(known, arrivals={edge: elsewhere}), "lane-1")


def test_many_functions_have_rows() -> None:
    assert 'class="card' in "".join(render.fragments(crowd.server(12)).values())
    known = crowd.server(13)
    assert "dns-limiter-003 active, limiter 74 % 6.88 Gb/s" in words(known, "hub")
    assert 'class="card ' not in "".join(render.fragments(known).values())


def test_a_change_of_one_function_changes_only_its_row() -> None:
    known = crowd.server(40)
    assert known.measured
    key = of(known, "edge-lb-001").instance.id
    busier = replace(known.measured, instances={**known.measured.instances, key: Load(0.5, 500, Rate(9.0, 9.0), 3)})
    before, after = (render.fragments(each) for each in (known, replace(known, measured=busier)))
    assert [name for name in after if after[name] != before[name]] == [f"card-{key}-serving"]


def test_a_migration_shows_its_progress() -> None:
    known = sample.server()
    (move,) = progress.shown(known)
    assert [(step.name, step.state) for step in move.steps] == [
        ("prepare", "done"),
        ("precopy", "done"),
        ("freeze", "done"),
        ("COMMIT", "now"),
        ("flip", "next"),
        ("drain", "next"),
        ("handover", "next"),
        ("done", "next"),
    ]
    assert [step.took for step in move.steps[:4]] == ["310 ms", "842 ms", "1.6 ms", None]
    assert [step.at for step in move.steps[:5]] == ["14:13:17", "14:13:18", "14:13:18", "14:13:18", None]


def test_skipped_and_unknown_steps_are_rendered() -> None:
    known = sample.server()
    parts = [{"step": name, "at": AT - 1, "us": 1000} for name in ("prepare", "hold", "freeze", "settle", "thaw")]
    moves = [replace(known.moves[0], report={"mode": "memfd", "steps": parts})]
    (move,) = progress.shown(replace(known, moves=moves, steps={}))
    assert [step.state for step in move.steps[:4]] == ["done", "skipped", "done", "now"]
    assert move.steps[0].took == "2.0 ms"
    assert move.steps[-1].name == "thaw"


def test_decisions_are_shown() -> None:
    known = sample.server()
    assert words(known, "placement") == (
        "Placement decided 14:13:17: the host saves 740 within 30 s, more than the move costs;"
        " 662 millicores on the host, proven minimal"
    )
    assert "no placement decision yet" in words(replace(known, decision=None), "placement")
    assert known.decision
    refusal = {"feasible": False, "reason": "cores of snic0 would have to grow by 200"}
    impossible = replace(known, decision=replace(known.decision, explanation=refusal))
    assert "No placement satisfies all limits. cores of snic0 would have" in words(impossible, "banner")


def test_the_last_migration_is_shown_until_the_next() -> None:
    known = sample.server()
    (move,) = progress.shown(replace(known, moves=known.moves[1:]))
    assert (move.name, move.outcome) == ("edge-lb", "done")
    (undone,) = progress.shown(replace(known, moves=known.moves[-1:]))
    assert [step.state for step in undone.steps[:3]] == ["skipped", "undone", "skipped"]
    assert progress.shown(replace(known, moves=[])) == ()
    assert "No migrations yet" in words(replace(known, moves=[]), "migrations")


def test_outcomes_of_migrations_are_shown() -> None:
    said = words(sample.server(), "migrations")
    assert "edge-lb hypervisor → to snic0 memfd done 1.5 s 412 µs 18 MB none" in said
    assert "restart done 2.4 s - - 1,204 flows: snic0 went down" in said
    assert "rolled-back the new instance did not answer in 1 s" in said


@pytest.mark.parametrize(
    ("report", "lost"),
    [
        ({}, None),
        ({"restarted": True}, "all state: restarted"),
        ({"lost_state": None}, "none"),
        ({"lost_state": {"why": "the sNIC died"}}, "state: the sNIC died"),
        ({"lost_state": {"flows": 0, "why": "x"}}, "0 flows: x"),
    ],
)
def test_lost_state_is_shown(report: dict[str, Any], lost: str | None) -> None:
    known = sample.server()
    moves = [replace(known.moves[1], report=report)]
    assert [past.lost for past in progress.past(replace(known, moves=moves))] == [lost]


@pytest.mark.parametrize(
    ("report", "outage", "long"),
    [
        ({}, None, False),
        ({"freeze_us": 2300}, "2.3 ms", False),
        ({"freeze_us": 2300, "outage_us": 98_000_000}, "1 min 38 s", True),
    ],
)
def test_the_outage_is_shown_instead_of_the_freeze(report: dict[str, Any], outage: str | None, long: bool) -> None:
    known = sample.server()
    (past,) = progress.past(replace(known, moves=[replace(known.moves[1], report=report)]))
    assert (past.outage, past.long) == (outage, long)


def test_a_waiting_migration_is_a_fault() -> None:
    known = sample.server()
    waiting = replace(known.moves[0], ended=None, step="flip", report={"waits": "switch hypervisor is not connected"})
    said = words(with_view(replace(known, moves=[waiting]), "probe", migration=waiting), "banner")
    assert f"to {waiting.target} waits in step flip: switch hypervisor is not connected" in said
    assert "No faults known" not in said


def test_every_event_has_a_text_and_an_unknown_one_its_type() -> None:
    known = sample.server()
    strange = [Event(9, AT, "strange.thing", "who", None, {})]
    assert "14:13:20 who strange.thing" in words(replace(known, news=strange), "events")
    for event in news.events(known):
        assert event.text
    assert "no events yet" in words(replace(known, news=[]), "events")
    starting = Event(9, AT, "process.starting", known.views[0].instance.id, None, {})
    twice = [replace(starting, id=10), starting, replace(starting, type="process.active")]
    assert [event.text for event in news.events(replace(known, news=twice))] == ["starting", "active"]


_TEXT = st.text(min_size=1, max_size=40) | st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='x",
        "{{ 7 * 7 }}",
        "</article>",
        "&lt;",
    ]
)


@settings(max_examples=25, deadline=None)
@given(_TEXT, _TEXT)
def test_all_foreign_text_is_escaped(name: str, reason: str) -> None:
    known = sample.server()
    plain = _elements(page(_written(known, "name", "reason")))
    written = page(_written(known, name, reason))
    assert _elements(written) == plain
    for _, attributes in written.tags:
        assert not any(key.startswith("on") for key in attributes)


def _elements(outline: Outline) -> list[str]:
    # Words with hyphens are in elements that keep them in one line.
    return [tag for tag, attributes in outline.tags if attributes.get("class") != "whole"]


def _written(known: Snapshot, name: str, reason: str) -> Snapshot:
    """Return a server in which every text of users or programs is one of these."""
    view = known.views[0]
    assert view.running
    instance = replace(view.instance, name=name, project=name, kind=name, flavor=name, pin=name)
    broken = View(instance, "error", replace(view.running, reason=reason), None)
    event = Event(5, AT, "process.error", instance.id, None, {"reason": reason, "name": name})
    report = {"mode": name, "lost_state": {"why": reason}}
    return replace(
        known,
        views=[broken, *known.views[1:]],
        names=dict(known.names) | {instance.id: name},
        news=[event, Event(4, AT, name, name, None, {})],
        moves=[
            replace(known.moves[0], source=name, report=report),
            replace(known.moves[1], reason=reason, report=report),
        ],
        steps={8: {name: AT}},
        switches=Switches(None, reason),
        decision=replace(known.decision, explanation={"feasible": False, "reason": reason}) if known.decision else None,
        whys={instance.id: {"text": reason, "runner_up": name, "binding": [reason]}},
        places=(Place(HOST, True, 1), Place(NIC, False, 1)),
    )


def test_servers_with_several_snics_and_without_any_are_rendered() -> None:
    known = sample.server()
    several = replace(known, places=(*known.places, Place("snic1", False, 2)))
    outline = page(several)
    ids = {attributes.get("id") for _, attributes in outline.tags}
    assert {"hub", "lane-1", "link-1", "lane-2", "link-2"} <= ids
    assert "use: not measured yet" in words(several, "link-2")
    alone = replace(known, places=known.places[:1])
    assert "Smart NIC" not in words(alone, "tiles")
    assert page(alone)


def test_the_bars_change_colour_near_the_end() -> None:
    assert [shares.Bar.of(percent, 100).level for percent in (0, 69, 70, 89, 90, 130)] == [
        "calm",
        "calm",
        "high",
        "high",
        "full",
        "full",
    ]


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        ("placement.decided", {"decision": 2, "moves": []}, "placement decision 2: all stay where they are"),
        ("placement.decided", {"decision": 2, "moves": ["a"]}, "placement decision 2: 1 to move"),
        ("placement.ended", {"decision": 2, "outcome": "done", "report": {}}, "placement decision 2: done"),
        ("placement.infeasible", {"reason": "too much"}, "placement no placement satisfies all limits: too much"),
    ],
)
def test_events_of_the_optimiser_have_texts(kind: str, payload: dict[str, Any], text: str) -> None:
    known = replace(sample.server(), news=[Event(9, AT, kind, "2", None, payload)])
    assert words(known, "events").endswith(text)


def test_each_chain_shows_its_hops_and_their_costs() -> None:
    known = sample.server()
    assert render.fragments(known)["chains"] == ""
    ids = {view.instance.name: view.instance.id for view in known.views}
    chain = samples.chain("shop", ("port:1", ids["edge-lb"], ids["tenant-a-lb"], "id-gone"))
    chain = replace(chain, id="id-shop", latency_us=40)
    known = replace(known, chains=(chain,), crossing_us=10, unkept={"id-shop": "there is no room"})
    text = words(known, "chains")
    assert "shop of acme: PCIe links unknown, latency unknown of at most 40 µs, CPU 2.5 active" in text
    assert "Its bound is ignored: there is no room" in text
    assert "edge-lb l4lb active snic0 - - 1.8" in text
    assert "tenant-a-lb l4lb active hypervisor 1 10 µs 0.62" in text
    assert text.endswith("gone - - - - - - -")
    whole = replace(known, chains=(replace(chain, hops=chain.hops[1:3]),), unkept={})
    assert "1 PCIe link, 10 µs of at most 40 µs" in words(whole, "chains")
    many = replace(known, chains=(chain,) * 14)
    assert "and 2 more chains" in words(many, "chains")
