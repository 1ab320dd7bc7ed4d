"""Writes the pictures of docs/dashboard.md: ``python -m tests.nfagent.dashboard.pictures DIRECTORY``."""

import io
import sys
from pathlib import Path

from PIL import Image

from nfagent.dashboard import render
from tests.nfagent.dashboard import sample
from tests.nfagent.dashboard.stage import browser, chromium, stage

# name: width, height, colours, device pixels for each of CSS
PICTURES = {
    "dashboard-light.png": (1440, 1040, "light", 1.0),
    "dashboard-dark.png": (1920, 1080, "dark", 1.0),
    "dashboard-phone.png": (360, 780, "light", 2.0),
}


def main(directory: Path) -> None:
    """Take all pictures."""
    path = chromium()
    if path is None:
        sys.exit("error: there is no chromium; as root on Debian: apt-get install -y chromium")
    with stage(sample.server()) as shown, browser(path) as started:
        for name, (width, height, colours, scale) in PICTURES.items():
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
