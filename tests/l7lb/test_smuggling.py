"""The parser of requests (nfs/http) refuses whatever HAProxy refuses, and reads the others as HAProxy does."""

import codecs
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.crates import ROOT, build_example
from tests.l7lb import haproxy
from tests.l7lb.haproxy import Accepted, HAProxy, Verdict

CORPUS = ROOT / "nfs/http/tests/smuggling/corpus.txt"
CHANGED = 3000
"""Streams made from those of the corpus by random changes."""
PIECES = [
    *(
        b"\r",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b"\0",
        b"\x0b",
        b"\x7f",
        b"\xff",
        b":",
        b",",
        b";",
        b"0",
        b"1",
        b"a",
        b"/",
        b"#",
    ),
    *(
        b"\r\n ",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding",
        b"Content-Length",
        b"Host: a\r\n",
    ),
    *(
        b"Host: b\r\n",
        b"HTTP/1.0",
        b"HTTP/1.1",
        b"http://a/",
        b"chunked",
        b"Connection: close\r\n",
        b"POST",
        b"CONNECT",
        b"0\r\n\r\n",
    ),
]


@pytest.fixture(scope="module")
def judge(module_directory: Path) -> Iterator[HAProxy]:
    with haproxy.running(module_directory) as running:
        yield running


@dataclass(frozen=True)
class Stream:
    """A stream of the corpus: bytes, and whether all its requests are well-formed."""

    content: bytes
    well_formed: bool


@pytest.fixture(scope="module")
def corpus() -> dict[str, Stream]:
    lines = [line for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    parts = [line.split(" | ", 2) for line in lines]
    return {name: Stream(_unescape(text), set(verdict.split()) == {"ok"}) for name, verdict, text in parts}


def _unescape(text: str) -> bytes:
    return codecs.decode(text, "unicode_escape").encode("latin-1")


def own_verdicts(streams: list[bytes]) -> list[Verdict]:
    """Ask the parser itself."""
    program = build_example("nf-http", "verdict")
    lines = "".join(f"{stream.hex()}\n" for stream in streams)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=60, check=True)
    verdicts = [_parse(line.split()) for line in done.stdout.split("\n")[:-1]]
    assert len(verdicts) == len(streams)
    return verdicts


def _parse(words: list[str]) -> Verdict:
    accepted = tuple(Accepted.parse(word) for word in words if "," in word)
    return Verdict(accepted, next((int(word) for word in words if word.isdecimal()), None))


def _normal(request: Accepted) -> Accepted:
    """Leave out default ports and the case of hosts, of which HAProxy changes some (RFC 9110 4.2.3)."""
    origin = re.compile(rb"(?i)^(https?://[^/?]*?)(?::(?:80|443)?)?(?=[/?]|$)")
    target = origin.sub(lambda found: found[1].lower(), request.target)
    return replace(request, target=target, host=re.sub(rb":(80|443)?$", b"", request.host).lower())


def laxer(own: Verdict, other: Verdict) -> bool:
    """Tell whether the parser accepts a request that HAProxy refuses, or reads one in another way."""
    if any(_normal(request) != _normal(read) for request, read in zip(own.accepted, other.accepted, strict=False)):
        return True
    return other.refused is not None and len(own.accepted) > len(other.accepted)


def compare(streams: dict[str, bytes], judge: HAProxy) -> dict[str, tuple[Verdict, Verdict]]:
    others = [judge.judge(stream) for stream in streams.values()]
    pairs = zip(own_verdicts(list(streams.values())), others, strict=True)
    verdicts = dict(zip(streams, pairs, strict=True))
    wrong = [f"{name}: {streams[name]!r} {pair}" for name, pair in verdicts.items() if laxer(*pair)]
    assert not wrong, "laxer than HAProxy, or another reading:\n" + "\n".join(wrong)
    return verdicts


def test_the_parser_refuses_what_haproxy_refuses(corpus: dict[str, Stream], judge: HAProxy) -> None:
    verdicts = compare({name: stream.content for name, stream in corpus.items()}, judge)
    refused = [name for name, (_, other) in verdicts.items() if other.refused]
    assert len(refused) >= 80, "HAProxy refuses many of these streams"
    stricter = [name for name, (own, other) in verdicts.items() if len(own.accepted) < len(other.accepted)]
    print(f"HAProxy refuses {len(refused)} of {len(corpus)} streams, the parser also these {len(stricter)}:")
    print("\n".join(f"    {name}: {verdicts[name][0].refused}" for name in stricter))


def test_haproxy_accepts_the_streams_that_the_parser_accepts(corpus: dict[str, Stream], judge: HAProxy) -> None:
    for name, stream in corpus.items():
        if stream.well_formed:
            verdict = judge.judge(stream.content)
            assert verdict.accepted, name
            assert verdict.refused is None, name


def test_hosts_of_target_and_header_are_compared_as_haproxy_does(judge: HAProxy) -> None:
    hosts = ["a", "A", "a.", "b", "[::1]", "[0::1]", "10.0.0.1", "u@a", ""]
    ports = ["", ":", ":80", ":443", ":8080", ":080", ":0", ":65536"]
    authorities = [host + port for host in hosts for port in ports]
    streams = {
        f"{line} {host}": f"{line} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        for authority in authorities
        for line in (f"GET http://{authority}/", f"GET https://{authority}/", f"CONNECT {authority}")
        for host in authorities
    }
    verdicts = compare(streams, judge)
    assert sum(len(own.accepted) for own, _ in verdicts.values()) >= 100


def test_random_changes_find_no_request_that_only_haproxy_refuses(corpus: dict[str, Stream], judge: HAProxy) -> None:
    chance = random.Random(1)
    all_streams = [stream.content for stream in corpus.values()]
    well_formed = [stream.content for stream in corpus.values() if stream.well_formed]
    changed = (_change(chance.choice(chance.choice([all_streams, well_formed])), chance) for _ in range(CHANGED))
    verdicts = compare({f"change {number}": stream for number, stream in enumerate(changed)}, judge)
    accepted = [own for own, _ in verdicts.values() if own.accepted]
    assert len(accepted) >= CHANGED // 10, "the comparison says something about accepted requests, too"


def _change(stream: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(stream))
        end = min(len(stream), start + chance.choice([0, 0, 1, 2, 8]))
        stream = stream[:start] + chance.choice([*PIECES, b""]) + stream[end:]
    return stream
