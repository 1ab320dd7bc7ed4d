"""The dashboard with few and with many network functions, in Chromium."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from nfagent.dashboard.snapshot import Snapshot
from tests.nfagent.dashboard import crowd, sample
from tests.nfagent.dashboard.stage import Stage, Tab, chromium
from tests.nfagent.dashboard.test_render import of, with_view

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="chromium is not installed; on Debian, tools/prepare test installs it"
)
WORDS, COLLISIONS, OVERFLOWS = (
    Path(__file__).with_name(f"{name}.js").read_text() for name in ("words", "collisions", "overflows")
)
HEIGHT = 900


def opened(shown: Stage, tab: Tab, known: Snapshot, width: int = 1400) -> Page:
    """Open the dashboard of a server."""
    shown.shown = known
    tab.page.set_viewport_size({"width": width, "height": HEIGHT})
    page = tab.open(shown.url)
    expect(page.locator("#tiles")).to_contain_text(f"Network functions {len(known.views)} ")
    return page


@pytest.mark.parametrize("number", [3, 40, 200])
def test_every_number_of_functions_is_readable(shown: Stage, tab: Tab, number: int) -> None:
    page = opened(shown, tab, crowd.server(number))
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        assert page.evaluate("() => document.scrollingElement.scrollWidth") <= width
        assert page.evaluate(WORDS) == []
        assert page.evaluate(COLLISIONS) == []
        assert page.evaluate(OVERFLOWS) == []
    assert tab.faults == []


def test_two_hundred_functions_take_three_screens(shown: Stage, tab: Tab) -> None:
    page = opened(shown, tab, crowd.server(200))
    assert page.locator("#lanes .row, #never .row").count() >= 200
    end = page.evaluate("() => document.getElementById('lanes').getBoundingClientRect().bottom + scrollY")
    assert end <= 3 * HEIGHT


@pytest.mark.parametrize(("number", "width"), [(12, 1400), (200, 1400), (200, 390)])
def test_the_link_stays_in_view(shown: Stage, tab: Tab, number: int, width: int) -> None:
    page = opened(shown, tab, crowd.server(number), width)
    page.evaluate("() => scrollTo(0, document.getElementById('lanes').getBoundingClientRect().bottom - innerHeight)")
    assert page.evaluate("() => scrollY") > 0
    expect(page.locator("#link-1")).to_be_in_viewport(ratio=1)


def test_functions_are_found_by_words_state_location_and_project(shown: Stage, tab: Tab) -> None:
    page = opened(shown, tab, crowd.server(40))
    rows, count = page.locator(".row:visible"), page.locator("#filters output")
    expect(count).to_be_empty()
    page.get_by_role("searchbox", name="Search").fill("NAT l4lb")
    expect(rows).to_have_count(7)
    expect(count).to_have_text("7 of 40 shown")
    page.get_by_label("Location").select_option("hypervisor")
    page.get_by_label("State").select_option("active")
    expect(rows).to_have_count(3)
    assert all(part in page.url for part in ("words=NAT+l4lb", "state=active", "place=hypervisor"))
    page.reload()
    expect(rows).to_have_count(3)
    shown.shown = crowd.server(40, beat=5)  # an update keeps the choice
    expect(page.locator(".row:visible .share").first).not_to_have_text("0 %")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(40)
    page.get_by_label("Project").select_option("research")
    assert 0 < rows.count() < 40
    assert "words" not in page.url


def test_a_row_moves_with_its_function(shown: Stage, tab: Tab) -> None:
    known = crowd.server(40)
    page = opened(shown, tab, known)
    page.locator("#hub .row", has_text="edge-lb-001").evaluate("it => { window.mine = it; }")
    view = of(known, "edge-lb-001")
    assert view.running
    moved = replace(view.running, location=sample.NIC)
    rest = [row for row in known.running if row.instance != view.instance.id]
    shown.shown = replace(with_view(known, "edge-lb-001", running=moved), running=[*rest, moved])
    expect(page.locator("#lane-1 .row", has_text="edge-lb-001")).to_be_visible()
    expect(page.locator("#hub .row", has_text="edge-lb-001")).to_have_count(0)
    assert page.evaluate("() => window.mine.isConnected")


def test_cards_become_rows_without_loading_the_page_again(shown: Stage, tab: Tab) -> None:
    page = opened(shown, tab, crowd.server(12))
    page.evaluate("() => { window.mine = 1; }")
    for number, kind in ((13, "row"), (12, "card")):
        shown.shown = crowd.server(number)
        expect(page.locator(f"#lanes .{kind}, #never .{kind}")).to_have_count(number)
    assert page.evaluate("() => window.mine") == 1


MARKUP = '<script>alert(1)</script><img src=x onerror=alert(2)>" onmouseover="alert(3)'


@pytest.mark.parametrize("number", [3, 40])
def test_markup_of_users_is_only_text(shown: Stage, tab: Tab, number: int) -> None:
    known = crowd.server(number)
    view = of(known, "edge-lb-001")
    hostile = replace(view.instance, name=MARKUP, project=MARKUP, kind=MARKUP)
    page = opened(shown, tab, with_view(known, "edge-lb-001", instance=hostile))
    expect(page.locator("#hub h3", has_text="alert(1)")).to_have_text(MARKUP)
    page.get_by_label("Project").select_option(MARKUP)
    page.locator("#hub h3", has_text="alert(1)").hover()
    assert page.locator("main script, main img, [onerror], [onmouseover]").count() == 0
    assert tab.faults == []
