"""Draws docs/figures/*.svg from the saved results of benchmarks, docs/figures/NAME.json.

``--measure`` runs the benchmarks first. A new page adds a module with a function that takes the benchmark's result and
returns its figures by name, and a line in `PAGES`.
"""

import argparse
import json
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from suite.run import RESULTS, all_releases

from figures import hnlb, releases, tiara, uno

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/figures"

Draw = Callable[[dict[str, Any]], dict[str, Figure]]

#: How benchmarks are run for figures, if not without arguments.
ARGUMENTS: dict[str, list[str]] = {"asset_moves": ["--pcie", "--moves", "25"]}
#: The figures of a benchmark, by its name.
PAGES: dict[str, Draw] = {
    "hnlb": hnlb.draw,
    "tiara": tiara.draw,
    "uno": uno.draw,
    "asset_moves": uno.moves,
    "all": releases.draw,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make figures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PAGES)}; without one, all")
    parser.add_argument("--measure", action="store_true", help="run the benchmarks first, and save their results")
    options = parser.parse_args()
    if unknown := set(options.names) - set(PAGES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected one of {', '.join(PAGES)}")
    for name in options.names or PAGES:
        if options.measure:
            measure(name)
        elif not options.names and not saved(name).exists():
            print(f"bench/{name}: no saved result, no figures: make figures FIGURES_ARGS='--measure {name}'")
            continue
        for figure, drawn in PAGES[name](load(name)).items():
            save(drawn, FOLDER / f"{figure}.svg")


def saved(name: str) -> Path:
    return RESULTS if name == "all" else FOLDER / f"{name}.json"


def load(name: str) -> dict[str, Any]:
    try:
        return all_releases() if name == "all" else json.loads(saved(name).read_text())
    except FileNotFoundError:
        raise SystemExit(f"no saved result of bench/{name}: make figures FIGURES_ARGS='--measure {name}'") from None


def measure(name: str) -> None:
    """Run a benchmark and save its result: the last line, or those of all as the results of this version."""
    if name == "all":
        subprocess.run([ROOT / "bench/all", "--save", version("uno-server")], check=True, cwd=ROOT)
        return
    command = [str(ROOT / "bench" / name), *ARGUMENTS.get(name, [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    result = json.loads(done.stdout.splitlines()[-1])
    FOLDER.mkdir(exist_ok=True)
    saved(name).write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


def save(figure: Figure, path: Path) -> None:
    """Save a figure; the same result gives the same file."""
    with mpl.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    text = path.read_text()
    path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()))
