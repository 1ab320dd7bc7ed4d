"""An agent whose dashboard shows a test's data, and a browser to view it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from nfagent.api.services import Services
from nfagent.dashboard import snapshot
from nfagent.dashboard.probe import Switches
from nfagent.dashboard.snapshot import Snapshot
from tests.nfagent.world import World


class Stage:
    """An agent that serves on ``url``; its dashboard shows ``shown``."""

    def __init__(self, directory: Path, shown: Snapshot) -> None:
        self.shown = shown
        self.world = World(directory, anonymous="admin")

    @property
    def url(self) -> str:
        """Return the page's address."""
        return f"{self.world.url}/dashboard"


@contextmanager
def stage(shown: Snapshot) -> Iterator[Stage]:
    """Serve a dashboard."""
    with TemporaryDirectory(prefix="nfagent-") as name:
        made = Stage(Path(name), shown)
        take = snapshot.take

        def staged(known: Services, switches: Switches) -> Snapshot:
            is_here = Path(known.config.state).is_relative_to(name)  # this process may run other agents
            return made.shown if is_here else take(known, switches)

        try:
            with patch.object(snapshot, "take", staged):
                yield made
        finally:
            made.world.stop()


class Tab:
    """A page that records its errors."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda told: self.faults.append(told.text) if told.type != "log" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _dismiss(self, dialog: Dialog) -> None:
        self.faults.append(dialog.message)
        dialog.dismiss()

    def open(self, url: str) -> Page:
        """Open the dashboard and wait until its stream is open."""
        self.page.goto(url)
        expect(self.page.locator("html.is-live")).to_be_attached()
        return self.page


def chromium() -> str | None:
    """Return the path of an installed browser; downloads nothing."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def browser(path: str) -> Iterator[Browser]:
    """Start the browser."""
    with sync_playwright() as playwright:
        # Without its sandbox, which does not work as root; it opens only the page under test.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--force-color-profile=srgb"])
        yield started
        started.close()
