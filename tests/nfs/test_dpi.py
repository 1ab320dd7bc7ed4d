"""The long run of nfs/dpi's comparison with ndpiReader: all captures, and many kills and moves."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not shutil.which("ndpiReader"), reason="libndpi-bin is not installed")
@pytest.mark.skipif(not (ROOT / ".venv/captures/ndpi").exists(), reason="tools/prepare soak has unpacked no captures")
def test_verdicts_are_those_of_ndpireader_on_all_captures() -> None:
    settings = {"NF_DPI_CAPTURES": "all", "NF_DPI_FAULTS": os.environ.get("NF_DPI_FAULTS", "1000")}
    command = [ROOT / ".venv/bin/cargo", "test", "--locked", "--package=nf-dpi", "--test=verdicts", "--", "--nocapture"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
    print(done.stderr)
    assert done.returncode == 0, done.stdout
    assert "captures as ndpiReader" in done.stderr, "nothing was compared: see the output"
