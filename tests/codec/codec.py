"""The Rust codec as a filter: `oneswitch/openflow/examples/codec`."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def build() -> Path:
    """Compile the filter; return its path."""
    found = shutil.which("cargo", path=f"{ROOT}/.venv/bin{os.pathsep}{os.environ['PATH']}")
    assert found, "cargo is not installed: make build"
    command = [found, "build", "--locked", "--package=openflow13", "--example=codec", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    built = [message["executable"] for message in messages if message.get("executable")]
    return Path(built[-1])


def code_of(refusal: dict[str, Any]) -> tuple[int, ...]:
    """Return type and code of a refusal, as `tests.codec.wire.error_of` does for error messages."""
    return tuple(refusal[key] for key in ("type", "experimenter", "code", "exp_type") if key in refusal)


class Codec:
    """A running filter: one command and one answer per line."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def ask(self, *words: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "misunderstood" not in answer, words
        return answer

    def decode(self, frame: bytes) -> dict[str, Any]:
        return self.ask("decode", frame.hex())

    def relate(self, a: bytes, b: bytes) -> dict[str, Any]:
        return self.ask("relate", a.hex(), b.hex())

    def round_trip(self, frame: bytes) -> dict[str, Any]:
        """Decode a frame that must encode to itself; return its content."""
        answer = self.decode(frame)
        assert "refused" not in answer, f"{answer['refused']} {frame.hex()}"
        assert answer["hex"] == frame.hex()
        assert answer["kind"] == frame[1]
        return answer["fields"]
