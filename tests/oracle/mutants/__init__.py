"""Seeded faults in oneswitchd, and the scripts that kill them."""

import re
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[3] / "oneswitch/core/src/mutants.rs"
_FAULT = re.compile(r'^    \w+ = "([a-z-]+)": "(.*)";$', re.MULTILINE)

NAMES: dict[str, str] = dict(_FAULT.findall(_SOURCE.read_text()))
"""What each is called, and what goes wrong."""


def script_of(name: str) -> Path:
    """The file of the script that kills a mutant."""
    return Path(__file__).with_name(f"{name}.json")
