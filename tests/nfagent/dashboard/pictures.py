"""Writes the pictures of docs/dashboard.md: ``python -m tests.nfagent.dashboard.pictures DIRECTORY``."""

import io
import sys
import time
from pathlib import Path

from PIL import Image

from nfagent.dashboard import render
from nfagent.dashboard.board import TICK_S
from tests.nfagent.dashboard import crowd, sample
from tests.nfagent.dashboard.stage import browser, chromium, stage

# name: sample, width, height, colours, device pixels for each of CSS
PICTURES = {
    "dashboard-light.png": (sample.server(), 1440, 1040, "light", 1.0),
    "dashboard-dark.png": (sample.server(), 1920, 1080, "dark", 1.0),
    "dashboard-phone.png": (sample.server(), 360, 780, "light", 2.0),
    "dashboard-rows.png": (crowd.server(200), 1440, 1040, "light", 1.0),
}


def main(directory: Path) -> None:
    """Take all pictures."""
    path = chromium()
    if path is None:
        sys.exit("error: there is no chromium; as root on Debian: apt-get install -y chromium")
    with stage(sample.server()) as shown, browser(path) as started:
        for name, (known, width, height, colours, scale) in PICTURES.items():
            shown.shown = known
            time.sleep(2 * TICK_S)  # until the board shows it
            page = started.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if colours == "dark" else "light",
                device_scale_factor=scale,
                reduced_motion="reduce",
            )
            page.goto(shown.url)
            page.wait_for_selector(".is-live")
            page.locator("#pulse-at").evaluate("(it, text) => it.textContent = text", render.clock(sample.AT))
            # A page has few colours: a palette reduces the file to a third.
            Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(256).save(directory / name, optimize=True)
            page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
