"""Gateways that nfagent deployed and charon keys: tunnels and keys move with them, under traffic and rekeying."""

import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.programs import search_path
from tests.lab.keyed_sites import EAST, WEST, Sites
from tests.nfs.charon import STRONGSWAN

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(not STRONGSWAN.exists(), reason="strongSwan is not in .venv: tools/prepare test"),
    pytest.mark.skipif(not shutil.which("ovs-vswitchd", path=search_path()), reason="Open vSwitch is not installed"),
]

PACKETS_PER_S = 500.0


@pytest.fixture
def sites(lab_dir: Path, request: pytest.FixtureRequest) -> Iterator[Sites]:
    with Sites(lab_dir, getattr(request, "param", "auto")) as sites:
        sites.connect()
        yield sites


@pytest.mark.timeout(120)
def test_negotiated_tunnels_move_with_their_gateway_without_a_pause(sites: Sites) -> None:
    west, east = sites.gateways[WEST], sites.gateways[EAST]
    with sites.stream(WEST, PACKETS_PER_S) as one, sites.stream(EAST, PACKETS_PER_S) as other:
        before = west.associations()
        west.move()
        after = west.associations()
        assert [each["spi"] for each in after] == [each["spi"] for each in before]
        for old, new in zip(before, after, strict=True):
            assert new["sequence"] >= old["sequence"]
            assert new["packets"] > old["packets"]
        east.move()
        west.rekey()
        # The peer asks for new keys while this gateway moves: its daemon gives them to the instance that takes over.
        rekeying = threading.Thread(target=east.rekey)
        rekeying.start()
        west.move()
        rekeying.join()
        west.rekey()
        reports = one.stop(), other.stop()
    for report in reports:
        assert report.sent
        assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0), report
    tapped = sites.tapped()
    assert tapped["repeated"] == []
    assert sum(tapped["packets"].values()) >= sum(report.sent or 0 for report in reports)
    assert "lacks associations" not in west.charon.log() + east.charon.log()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sites", ["auto", "copy"], indirect=True)
def test_many_moves_and_rekeyings_lose_nothing_and_repeat_no_nonce(sites: Sites) -> None:
    moves, draw = int(os.environ.get("IKE_MOVES", "200")), random.Random(7)
    gateways = list(sites.gateways.values())
    with sites.stream(WEST, PACKETS_PER_S) as one, sites.stream(EAST, PACKETS_PER_S) as other:
        for _ in range(moves):
            moving, rekeying = draw.choice(gateways), draw.choice(gateways)
            beside = threading.Thread(target=rekeying.rekey) if draw.random() < 0.3 else None
            if beside:
                beside.start()
            assert moving.move()["report"]["mode"] == ("copy" if sites.mode == "copy" else "memfd")
            if beside:
                beside.join()
        reports = one.stop(), other.stop()
    print(f"{moves} moves: {reports}")
    for report in reports:
        assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0), report
    assert sites.tapped()["repeated"] == []
    assert not any("lacks associations" in each.charon.log() for each in gateways)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_nonce_is_used_twice_and_no_replay_accepted_when_processes_die_in_moves(sites: Sites) -> None:
    moves, draw = int(os.environ.get("IKE_CUTS", "50")), random.Random(11)
    gateways, outcomes = list(sites.gateways.values()), Counter[str]()
    with sites.stream(WEST, PACKETS_PER_S) as one, sites.stream(EAST, PACKETS_PER_S) as other:
        for _ in range(moves):
            outcomes[draw.choice(gateways).cut(draw.uniform(0, 0.6), new=draw.random() < 0.5)] += 1
            # The daemon gives the tunnels to an instance without keys.
            sites.await_path()
        reports = one.stop(), other.stop()
    tapped = sites.tapped()
    print(f"{moves} moves with kills: {dict(outcomes)}, {reports}")
    assert tapped["repeated"] == []
    assert [report.duplicated for report in reports] == [0, 0]
    assert set(outcomes) >= {"done", "rolled-back"}
