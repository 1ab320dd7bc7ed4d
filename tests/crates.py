"""Example programs of the Rust crates, which tests run as filters."""

import json
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build_example(package: str, name: str) -> Path:
    """Compile a crate's example; return its path."""
    found = shutil.which("cargo", path=f"{ROOT}/.venv/bin{os.pathsep}{os.environ['PATH']}")
    assert found, "cargo is not installed: make build"
    command = [found, "build", "--locked", f"--package={package}", f"--example={name}", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    built = [message["executable"] for message in messages if message.get("executable")]
    return Path(built[-1])
