"""What charon offers beside keys, with the function `ipsec` at one end and strongSwan's libipsec at the other."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.programs import search_path
from tests.nfs.awaiting import await_that
from tests.nfs.charon import STRONGSWAN
from tests.nfs.ike_peers import ENDS, ENDS_IPV6, Peers

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(not STRONGSWAN.exists(), reason="strongSwan is not in .venv: tools/prepare test"),
    pytest.mark.skipif(not shutil.which("nft", path=search_path()), reason="nftables is not installed"),
]


@pytest.fixture(scope="module")
def running(module_directory: Path) -> Iterator[Peers]:
    with Peers(module_directory) as peers:
        yield peers


@pytest.fixture
def peers(running: Peers) -> Iterator[Peers]:
    yield running
    running.swanctl("west", "--terminate", "--ike=peer", "--force", check=False)
    running.swanctl("east", "--terminate", "--ike=peer", "--force", check=False)
    await_that(lambda: not running.tunnel())


def connect(peers: Peers, west: str = "", **both: Any) -> None:
    """Give both daemons a connection, the west one with lifetimes, and wait for its tunnel."""
    peers.load("west", west, **both)
    peers.load("east", **both)
    peers.connect()


def pass_both_ways(peers: Peers) -> None:
    for host in ("west", "east"):
        peers.all_return(peers.pings(host, 10), 10)


def test_certificates_replace_preshared_keys(peers: Peers) -> None:
    for charon in peers.charons.values():
        charon.certify()
    connect(peers, certified=True)
    pass_both_ways(peers)
    assert "with pre-shared key" not in peers.charons["west"].log().split("CN=east")[-1]


def test_a_dead_peer_is_detected_and_its_tunnel_removed(peers: Peers) -> None:
    connect(peers, more="dpd_delay = 1s")
    peers.hosts.run("nat", "ip", "link", "set", "r1", "down")
    await_that(lambda: not peers.tunnel())
    peers.hosts.run("nat", "ip", "link", "set", "r1", "up")
    peers.connect()
    pass_both_ways(peers)


@pytest.mark.parametrize("limit", ["life_time = 3s", "life_bytes = 3000", "life_packets = 30"])
def test_an_expired_association_is_replaced(peers: Peers, limit: str) -> None:
    connect(peers, f"rekey_time = 0\n{limit}")
    before = peers.spis("outbound")
    pings = peers.pings("west", 40)
    await_that(lambda: peers.spis("outbound") not in ([], before))
    pings.communicate(timeout=60)
    assert "CHILD_SA recreate after hard expire" in peers.charons["west"].log()
    assert not set(before) & set(peers.spis("outbound"))


def test_rekeying_starts_by_bytes_and_by_time(peers: Peers) -> None:
    for limits in (
        "rekey_bytes = 3000\nrand_bytes = 0\nlife_bytes = 100000",
        "rekey_time = 2s\nlife_time = 20s\nrand_time = 0",
    ):
        connect(peers, limits)
        before = peers.spis("outbound")
        pings = peers.pings("west", 100)
        await_that(lambda before=before: peers.spis("outbound")[:1] not in ([], before[:1]))
        peers.all_return(pings, 100)
        peers.swanctl("west", "--terminate", "--ike=peer")
        await_that(lambda: not peers.tunnel())


@pytest.mark.parametrize("host", ["west", "east"])
def test_reauthentication_makes_the_next_tunnel_before_it_ends_this_one(peers: Peers, host: str) -> None:
    connect(peers)
    before = peers.spis("outbound")
    peers.swanctl(host, "--rekey", "--ike=peer", "--reauth")

    def is_renewed() -> bool:
        spis = peers.spis("outbound")
        assert spis
        return before[0] not in spis

    await_that(is_renewed)
    pass_both_ways(peers)


def test_a_peer_that_changes_its_address_is_followed(peers: Peers) -> None:
    peers.translate("accept")
    connect(peers, more="mobike = yes")
    pass_both_ways(peers)
    assert peers.tunnel()["peer"] == "198.51.100.7"
    peers.hosts.run("east", "sysctl", "-qw", "net.ipv4.conf.all.promote_secondaries=1")
    peers.hosts.run("east", "ip", "addr", "add", "198.51.100.8/24", "dev", "e0")
    peers.hosts.run("east", "ip", "addr", "del", "198.51.100.7/24", "dev", "e0")
    peers.hosts.run("east", "ip", "route", "replace", "default", "via", "198.51.100.254")
    await_that(lambda: peers.tunnel().get("peer") == "198.51.100.8")
    # libipsec cannot change its associations: it asks for new ones.
    peers.await_path()
    pass_both_ways(peers)
    peers.hosts.run("east", "ip", "addr", "add", "198.51.100.7/24", "dev", "e0")
    peers.hosts.run("east", "ip", "addr", "del", "198.51.100.8/24", "dev", "e0")
    peers.hosts.run("east", "ip", "route", "replace", "default", "via", "198.51.100.254")
    peers.translate("masquerade")


def test_the_outer_packets_may_be_ipv6(peers: Peers) -> None:
    connect(peers, ends=ENDS_IPV6)
    pass_both_ways(peers)
    assert peers.tunnel()["peer"] == "2001:db8:2::7"
    assert ENDS != ENDS_IPV6
