"""nfagent's dashboard with 200 functions in Chromium: first paint, and main-thread time of an update of every row.

An update's time is the growth of Chromium's ``TaskDuration`` (CPU time of all tasks of the page's main thread: script,
style, layout, paint) in a window with one update, less that of a window without. First paint and ``longest_task_ms``
are wall-clock times; the agent shares the machine with the browser, and ``load`` is its load.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page

from nfagent.dashboard import render
from nfagent.dashboard.board import TICK_S

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # samples of servers are the tests'

from tests.nfagent.dashboard import crowd
from tests.nfagent.dashboard.stage import Stage, browser, chromium, stage

_SIZE = {"width": 1400, "height": 900}
_WINDOW_S = 2 * TICK_S + 0.3  # the agent sees a change after TICK_S at most
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_LONG_TASKS = """() => {
  window.longest = 0;
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
  }).observe({ type: "longtask" });
}"""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer loads and updates")
    parser.add_argument("--functions", type=int, default=200)
    options = parser.parse_args()
    path = chromium()
    if path is None:
        sys.exit("error: there is no chromium; as root on Debian: apt-get install -y chromium")
    loads, updates = (5, 8) if options.quick else (15, 40)
    figures: dict[str, Any] = {"functions": options.functions, **_sizes(options.functions)}
    with stage(crowd.server(5)) as shown, browser(path) as started:
        few = _measured(started, shown, 5, loads, updates // 2)
        figures |= _measured(started, shown, options.functions, loads, updates)
    figures |= {f"few_{name}": few[name] for name in ("first_paint_ms", "update_ms")}
    print(json.dumps(figures | {"load": os.getloadavg()[0]}))


def _sizes(number: int) -> dict[str, Any]:
    """Return the agent's part: CPU time of rendering, bytes of the page and of an update."""
    before, after = (render.fragments(crowd.server(number, beat)) for beat in (0, 1))
    known = crowd.server(number)
    begun = time.process_time()
    for _ in range(10):
        render.fragments(known)
    changed = {name: html for name, html in after.items() if before.get(name) != html}
    return {
        "render_ms": round((time.process_time() - begun) * 100, 1),
        "page_kb": round(len(render.page(after, "x-1", "1", known.at, signed_in=False)) / 1000),
        "update_kb": round(len(json.dumps(changed)) / 1000),
    }


def _measured(started: Browser, shown: Stage, number: int, loads: int, updates: int) -> dict[str, Any]:
    shown.shown = crowd.server(number)
    time.sleep(2 * TICK_S)
    paints = [_first_paint(started, shown.url) for _ in range(loads)]
    page = _open(started, shown.url)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.evaluate(_LONG_TASKS)
    idle = statistics.median(_window(session) for _ in range(4))
    spent = []
    for beat in range(1, updates + 1):
        shown.shown = crowd.server(number, beat)
        spent.append(_window(session) - idle)
    found = {
        "first_paint_ms": round(statistics.median(paints)),
        "first_paint_worst_ms": round(max(paints)),
        "update_ms": round(statistics.median(spent), 1),
        "update_worst_ms": round(max(spent), 1),
        "longest_task_ms": page.evaluate("() => window.longest"),  # 0: none took 50 ms
        "screens": round(page.evaluate("() => document.scrollingElement.scrollHeight") / _SIZE["height"], 2),
    }
    page.context.close()
    return found


def _first_paint(started: Browser, url: str) -> float:
    """Return the ms from the start of a load to the first paint with content, with an empty cache."""
    page = _open(started, url)
    page.wait_for_function(_PAINT)
    at: float = page.evaluate(_PAINT)
    page.context.close()
    return at


def _open(started: Browser, url: str) -> Page:
    page = started.new_context(viewport=_SIZE).new_page()  # pyright: ignore[reportArgumentType]
    page.goto(url)
    page.wait_for_selector(".is-live")
    return page


def _window(session: CDPSession) -> float:
    """Return the ms that the page's main thread is busy during a window."""
    before = _busy(session)
    time.sleep(_WINDOW_S)
    return _busy(session) - before


def _busy(session: CDPSession) -> float:
    told = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return told["TaskDuration"] * 1000
