"""The dashboard in Chromium, as users see it."""

import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageStat
from playwright.sync_api import Browser, Page, expect

from nfagent.dashboard.snapshot import Snapshot
from nfagent.measurement import Load, Rate
from nfagent.model import Migration
from tests.nfagent.dashboard import sample
from tests.nfagent.dashboard.stage import Stage, Tab, chromium
from tests.nfagent.dashboard.test_render import down, of, with_view
from tests.nfagent.world import ADMIN_TOKEN, World

CONTRAST, OVERFLOWS, SHIFTS = (
    Path(__file__).with_name(f"{name}.js").read_text() for name in ("contrast", "overflows", "shifts")
)
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="chromium is not installed; on Debian, tools/prepare test installs it"
)


def test_the_page_loads_without_errors_or_foreign_content(shown: Stage, tab: Tab) -> None:
    with tab.page.expect_request("**/icon.svg"):  # the browser requests it at any time
        page = tab.open(shown.url)
    expect(page.get_by_role("heading", name="Network functions", level=1)).to_be_visible()
    # The browser logs violations of the policy to its console.
    with page.expect_console_message():
        page.evaluate("() => document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')")
    assert len(tab.faults) == 1, tab.faults
    assert "Content Security Policy" in tab.faults[0]
    assert all(url.startswith(shown.world.url) for url in tab.requests)


@pytest.fixture
def own_world(directory: Path) -> Iterator[World]:
    made = World(directory, anonymous="admin")
    yield made
    made.close()


def test_a_network_function_appears_and_disappears(own_world: World, tab: Tab) -> None:
    page = tab.open(f"{own_world.url}/dashboard")
    lane = page.get_by_role("region", name="hypervisor")
    expect(lane).to_contain_text("no network functions")
    made = own_world.create("appears", "toy", config={"n": 1})
    card = lane.get_by_role("article", name="appears")
    expect(card).to_contain_text("active")
    expect(page.locator("#events")).to_contain_text("appears active")
    own_world.operator.delete(f"/api/v1/instances/{made['id']}")
    expect(card).to_have_count(0)
    assert sum(url.endswith("/dashboard") for url in tab.requests) == 1
    assert tab.faults == []


def test_markup_in_a_name_is_escaped(shown: Stage, tab: Tab) -> None:
    name = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    page = tab.open(shown.url)
    known = sample.server()
    view = of(known, "probe")
    shown.shown = with_view(known, "probe", instance=replace(view.instance, name=name))
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    assert page.locator("#hub img, #hub script").count() == 0
    assert tab.faults == []


def moving(step: str, **fields: Any) -> Snapshot:
    """Return the sample with its migration at a step."""
    known = sample.server()
    move: Migration = replace(known.moves[0], step=step, **fields)
    return replace(known, moves=[move, *known.moves[1:]], steps={8: {**known.steps[8], step: sample.AT}})


def test_the_page_follows_a_migration(shown: Stage, tab: Tab) -> None:
    page = tab.open(shown.url)
    now = page.locator(".steps [aria-current=step] .name")
    expect(now).to_have_text("COMMIT")
    shown.shown = moving("drain")
    expect(now).to_have_text("drain")
    report = {"mode": "copy", "freeze_us": 950, "state_bytes": 4_000_000, "lost_state": None}
    shown.shown = moving("done", ended=sample.AT, outcome="done", report=report)
    expect(now).to_have_count(0)
    row = page.get_by_role("row").filter(has_text="950 µs")
    expect(row).to_contain_text("tenant-b-lb")
    expect(row).to_contain_text("none")


def busier(known: Snapshot, factor: float) -> Snapshot:
    """Return the sample with other figures."""
    measured = known.measured
    assert measured
    loads = {
        key: Load(
            min(1.0, load.utilisation * factor),
            int(load.millicores * factor),
            Rate(load.traffic.mbps * factor, load.traffic.pps),
            None if load.flows is None else int(load.flows * factor),
            load.offload,
        )
        for key, load in measured.instances.items()
    }
    return replace(known, measured=replace(measured, instances=loads))


def test_figures_are_updated_in_place(shown: Stage, tab: Tab) -> None:
    page = tab.open(shown.url)
    summary = page.locator("#hub details summary").first
    summary.click()
    expect(page.locator("#hub details[open]")).to_have_count(1)
    summary.evaluate("it => { it.id = 'mine'; it.removeAttribute('id'); window.mine = it; }")
    page.evaluate(DRAWN)  # the effects of the click itself are over
    page.evaluate(SHIFTS)
    for factor, text in ((0.5, "310"), (1.4, "868"), (0.01, "6")):
        shown.shown = busier(sample.server(), factor)
        expect(page.locator("#hub article").first.locator("dd").nth(1)).to_have_text(text)
    assert page.evaluate("() => document.activeElement === window.mine && window.mine.isConnected")
    expect(page.locator("#hub details[open]")).to_have_count(1)
    assert page.evaluate("() => [window.shifts, window.moved]") == [0, []]


def test_a_lost_connection_is_reported_and_restored(own_world: World, tab: Tab) -> None:
    page = tab.open(f"{own_world.url}/dashboard")
    lost = page.get_by_role("alert").filter(has_text="Connection to nfagent lost")
    expect(lost).to_have_count(0)
    agent = own_world.directory / "agent.toml"
    agent.write_text(agent.read_text().replace("tcp:127.0.0.1:0", own_world.agent.addresses[1]))
    own_world.stop()
    expect(lost).to_be_visible()
    expect(page.locator("#pulse")).to_contain_text("lost")
    own_world.start()
    own_world.create("while-away")
    expect(lost).to_have_count(0)
    expect(page.locator("#hub")).to_contain_text("while-away")
    expect(page.locator("html.is-live")).to_be_attached()


def test_a_silent_connection_is_reopened(shown: Stage, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    tab.page.clock.install()
    tab.page.goto(shown.url)
    tab.page.clock.run_for(1000)
    expect(tab.page.locator("html.is-live")).to_be_attached()
    monkeypatch.setattr("nfagent.dashboard.routes.HEARTBEAT_S", 1000.0)
    with tab.page.expect_request(lambda request: "/dashboard/stream" in request.url):
        tab.page.clock.run_for(21_000)
    expect(tab.page.locator("#lost")).to_be_hidden()


def test_the_charts_show_five_minutes_or_a_day(shown: Stage, tab: Tab) -> None:
    page = tab.open(shown.url)
    recent, day = (page.locator(f"#tiles .course.{name}").first for name in ("recent", "day"))
    expect(recent).to_be_visible()
    expect(day).to_be_hidden()
    page.get_by_label("24 h").check()
    expect(day).to_be_visible()
    expect(recent).to_be_hidden()
    assert day.locator(".line").get_attribute("d").count("M") == 2  # pyright: ignore[reportOptionalMemberAccess]
    page.reload()
    expect(day).to_be_visible()
    assert page.locator("#hub .card .course.day:visible").count() == 3
    page.get_by_label("5 min").check()
    expect(recent).to_be_visible()
    assert "range" not in page.url


def test_faults_are_at_the_top(shown: Stage, tab: Tab) -> None:
    page = tab.open(shown.url)
    banner = page.get_by_role("status", name="Condition of the server")
    expect(banner).to_contain_text("No faults known")
    shown.shown = replace(sample.server(), switches=down(link="down"))
    expect(banner).to_contain_text("snic0 is down")
    box = banner.bounding_box()
    assert box
    assert box["y"] < 100
    shown.shown = sample.unmeasured()
    expect(banner).to_contain_text("Not measured yet")


def crowded() -> Snapshot:
    """Return a sample with the longest possible names and all kinds of faults."""
    known = replace(sample.server(), switches=down(state="down"))
    view = of(known, "probe")
    named = with_view(known, "probe", instance=replace(view.instance, name="W" * 63, kind="k" * 63, pin="snic0" * 9))
    reason = "/very/long/path/" + "x" * 200
    assert view.running
    return with_view(named, "tenant-a-lb", status="error", running=replace(view.running, reason=reason), migration=None)


def conditions() -> list[tuple[Snapshot, str]]:
    """Return conditions of a server, each with a word of its banner."""
    chain = sample.with_chain(sample.server())
    return [(chain, "No faults"), (crowded(), "is down"), (sample.unmeasured(), "Not measured")]


def test_nothing_is_wider_than_the_screen(shown: Stage, tab: Tab) -> None:
    page = tab.open(shown.url)
    for known, word in conditions():
        shown.shown = known
        expect(page.locator("#banner")).to_contain_text(word)
        for width in (320, 360, 768, 1280, 1920, 3840):
            page.set_viewport_size({"width": width, "height": 900})
            widest = page.evaluate("() => document.scrollingElement.scrollWidth")
            assert widest <= width
            assert page.evaluate(OVERFLOWS) == [], width


def test_text_has_enough_contrast_in_light_and_dark(shown: Stage, tab: Tab) -> None:
    tab.page.emulate_media(reduced_motion="reduce")
    page = tab.open(shown.url)
    page.evaluate("() => { document.getElementById('lost').textContent = 'Connection lost.'; }")
    for known, word in conditions():
        shown.shown = known
        expect(page.locator("#banner")).to_contain_text(word)
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            page.evaluate("() => { document.getElementById('lost').hidden = false; }")
            found = page.evaluate(CONTRAST)
            assert found["texts"] > 80
            assert found["weak"] == [], colours


def picture(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def test_the_page_draws_in_light_and_dark(shown: Stage, tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 1440, "height": 900})
    page = tab.open(shown.url)
    means = []
    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours)
        seen = picture(page)
        corner = seen.getpixel((2, seen.height - 2))
        assert corner is not None
        box = ImageChops.difference(seen, Image.new("RGB", seen.size, corner)).getbbox()
        assert box
        assert (box[2] - box[0], box[3] - box[1]) > (1200, 700)
        assert len(seen.getcolors(1 << 24) or []) > 500
        means.append(ImageStat.Stat(seen.convert("L")).mean[0])
    assert means[0] > 200
    assert means[1] < 60


def test_the_page_works_without_javascript(shown: Stage, started: Browser) -> None:
    tab = Tab(started.new_context(java_script_enabled=False))
    tab.page.goto(shown.url)
    expect(tab.page.locator("noscript p")).to_contain_text("This is the state of")
    expect(tab.page.locator("noscript p")).to_be_visible()
    expect(tab.page.get_by_role("article", name="edge-lb")).to_contain_text("6.24 Gb/s")
    tab.page.locator("#hub summary").first.click()
    expect(tab.page.get_by_text("PCIe snic0 up (9,800 of 10,000)")).to_be_visible()
    tab.page.context.close()


def test_the_page_works_with_keyboard_and_screen_reader(shown: Stage, tab: Tab) -> None:
    page = tab.open(shown.url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the network functions")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#hub h3 a").first).to_be_focused()
    page.keyboard.press("Tab")
    summary = page.locator("#hub summary").first
    expect(summary).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#hub details[open]")).to_have_count(1)
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("banner")).to_have_count(1)
    for region in ("hypervisor", "snic0", "PCIe link of snic0", "Migrations", "Events", "Figures of the server"):
        expect(page.get_by_role("region", name=region, exact=True)).to_have_count(1)
    link = page.get_by_role("region", name="PCIe link of snic0")
    expect(link.get_by_role("img", name="PCIe link to snic0: 32 %")).to_be_visible()
    expect(page.get_by_role("table", name="Ended migrations, newest first")).to_be_visible()
    nameless = (
        "() => [...document.querySelectorAll('svg')].filter(it => !it.ariaLabel && it.ariaHidden !== 'true').length"
    )
    assert page.evaluate(nameless) == 0
    levels = page.evaluate("() => [...document.querySelectorAll('h1,h2,h3')].map(it => +it.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_a_user_signs_in_and_out(started: Browser, directory: Path) -> None:
    world = World(directory)
    tab = Tab(started.new_context())
    page = tab.page
    page.goto(f"{world.url}/")
    page.get_by_label("An administrator's token").fill("no-such-token-0123456789")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("is unknown")
    page.get_by_label("An administrator's token").fill(ADMIN_TOKEN)
    page.get_by_role("button", name="Show the dashboard").click()
    expect(page.locator("html.is-live")).to_be_attached()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("An administrator's token")).to_be_visible()
    page.context.close()
    world.close()
