"""docs/writing-an-nf.md quotes the limiter exactly, which works as described, also when it moves."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs import console
from tests.nfs.wire import Wire, nf_program

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/writing-an-nf.md"
HOUR = "packets = 5\nper_s = 3600\n"


def test_the_page_quotes_the_code_exactly() -> None:
    sources = [ROOT / "nfs/limiter/src/lib.rs", ROOT / "nfs/nf/src/kinds.rs"]
    code = "".join(each.read_text() for each in sources)
    shown = [block for block in console.blocks(PAGE) if block.language == "rust"]
    assert len(shown) >= 6
    for block in shown:
        assert block.text in code, f"{PAGE}:{block.line}: the block is in none of {sources}"


def test_the_limiter_replays_a_capture_file(tmp_path: Path) -> None:
    programs = Path(nf_program()).parent
    replace = {"examples/in.pcap": str(ROOT / "examples/in.pcap")}
    printed = console.run(PAGE, tmp_path, variables={"PATH": f"{programs}:{os.environ['PATH']}"}, replace=replace)
    assert re.search(r'"packets_out":\s*10\b', printed[-1]), printed[-1]


@pytest.mark.namespaces
def test_the_used_up_rate_of_a_source_moves_with_the_state(tmp_path: Path, directory: Path) -> None:
    """The successor knows the source; a new instance does not."""
    with Wire(directory) as wire:
        with wire.nf("--backend=packet", kind="limiter", config=HOUR) as old:
            assert _received(wire, 9) == 5
            with wire.successor(old, tmp_path, kind="limiter", config=HOUR) as new:
                assert new.ask("counters")["sources"] >= 2
                assert _received(wire, 9) == 0
        with wire.nf("--backend=packet", kind="limiter", config=HOUR):
            assert _received(wire, 9) == 5


def _received(wire: Wire, count: int) -> int:
    """Send echoes through the limiter; return how many come back."""
    said = wire.run("a", "ping", "-q", "-c", str(count), "-i", "0.1", "-W", "1", "10.9.0.2", check=False)
    found = re.search(r"(\d+) received", said)
    assert found is not None, said
    return int(found[1])


def test_nfagent_offers_the_limiter_as_a_kind() -> None:
    listed = subprocess.run([nf_program(), "list"], capture_output=True, text=True, check=True).stdout
    assert "limiter " in listed
