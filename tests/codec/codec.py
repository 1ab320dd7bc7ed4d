"""The Rust codec as a filter: `oneswitch/openflow/examples/codec`."""

import json
import subprocess
from pathlib import Path
from typing import Any

_GROUP_MOD = 15
_BUCKETS = 16
"""Bytes before the buckets of a group-mod."""
_BUCKET_ID = 12


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
        assert _without_bucket_ids(bytes.fromhex(answer["hex"])) == _without_bucket_ids(frame)
        assert answer["kind"] == frame[1]
        return answer["fields"]


def _without_bucket_ids(frame: bytes) -> bytes:
    """Clear what a group-mod has in the padding of its buckets: their numbers, which only OpenFlow 1.5 has."""
    found = bytearray(frame)
    at = _BUCKETS if frame[1] == _GROUP_MOD else len(found)
    while at < len(found):
        found[at + _BUCKET_ID : at + _BUCKET_ID + 4] = bytes(4)
        at += int.from_bytes(found[at : at + 2])
    return bytes(found)
