"""IKEv2 between charon, whose plugin kernel-nf keys the function `ipsec`, and strongSwan's libipsec behind a NAT."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.programs import search_path
from tests.nfs.awaiting import await_that
from tests.nfs.charon import STRONGSWAN
from tests.nfs.ike_peers import ENDS_IPV6, Peers

EXAMPLE = Path(__file__).resolve().parents[2] / "nfs/ipsec/charon/swanctl.conf"

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(not STRONGSWAN.exists(), reason="strongSwan is not in .venv: tools/prepare test"),
    pytest.mark.skipif(not shutil.which("nft", path=search_path()), reason="nftables is not installed"),
]


@pytest.fixture
def peers(directory: Path) -> Iterator[Peers]:
    with Peers(directory) as peers:
        peers.connect()
        yield peers


def test_packets_pass_a_nat_both_ways_while_both_sides_change_keys(peers: Peers) -> None:
    first = peers.spis("outbound")
    pings = [peers.pings("west", 300), peers.pings("east", 300)]
    rekeyings = 0
    while rekeyings < 2 or any(each.poll() is None for each in pings):
        before = peers.spis("outbound")
        peers.swanctl(("west", "east")[rekeyings % 2], "--rekey", "--child=net")
        await_that(lambda before=before: peers.spis("outbound")[:1] not in ([], before[:1]))
        rekeyings += 1
    for each in pings:
        peers.all_return(each, 300)
    assert first[0] not in peers.spis("outbound")
    dropped = peers.ask("status")["packets_dropped"]
    assert not [reason for reason in dropped if reason.startswith("esp") or "association" in reason], dropped
    assert peers.tunnel()["port"] == 4500


def test_the_gateway_and_its_daemon_follow_a_new_mapping_of_the_nat(peers: Peers) -> None:
    peers.translate("meta l4proto udp masquerade to :7000-7010")
    peers.all_return(peers.pings("east", 20), 20)
    port = peers.tunnel()["port"]
    assert 7000 <= port <= 7010
    peers.all_return(peers.pings("west", 20), 20)
    await_that(lambda: f"192.0.2.254[{port}]" in peers.swanctl("west", "--list-sas"))


def test_a_lifetime_in_packets_leads_to_new_keys_without_loss(peers: Peers) -> None:
    peers.load("west", "rekey_packets = 100\nrand_packets = 0\nlife_packets = 400\n")
    peers.swanctl("east", "--terminate", "--ike=peer")
    await_that(lambda: not peers.tunnel())
    peers.connect()
    before = peers.spis("outbound")
    peers.all_return(peers.pings("west", 150), 150)
    await_that(lambda: peers.spis("outbound")[:1] not in ([], before[:1]))
    # More than the old keys may protect.
    peers.all_return(peers.pings("west", 350), 350)


def test_another_instance_gets_the_tunnels_and_new_keys(peers: Peers) -> None:
    peers.all_return(peers.pings("west", 10), 10)
    before = peers.spis("outbound")
    peers.nf.kill()
    peers.nf.wait()
    assert peers.nf.returncode is not None
    peers.start_nf("second")
    # The peer has seen the numbers of the old keys already.
    await_that(lambda: peers.spis("outbound")[:1] not in ([], before[:1]))
    peers.await_path()
    peers.all_return(peers.pings("west", 20), 20)


def test_another_instance_need_not_wait_until_the_plugin_looks(directory: Path) -> None:
    with Peers(directory, interval=600_000) as peers:
        peers.connect()
        before = peers.spis("outbound")
        for name in ("second", "third"):
            peers.nf.kill()
            peers.nf.wait()
            peers.start_nf(name)
            assert await_that(lambda: peers.spis("outbound")) == before


def test_tunnels_follow_the_state_to_another_instance_and_keep_their_keys(peers: Peers) -> None:
    peers.all_return(peers.pings("west", 10), 10)
    before = peers.tunnel()["associations"]
    peers.move()
    after = await_that(lambda: peers.tunnel().get("associations", []))
    for old, new in zip(before, after, strict=True):
        assert old["spi"] == new["spi"]
        assert old["sequence"] <= new["sequence"]
    peers.all_return(peers.pings("east", 20), 20)
    peers.all_return(peers.pings("west", 20), 20)
    assert [each["spi"] for each in peers.tunnel()["associations"]] == [each["spi"] for each in before]


def test_charon_knows_the_use_of_a_tunnel_and_its_end_removes_it(peers: Peers) -> None:
    peers.all_return(peers.pings("east", 10), 10)
    packets = peers.tunnel()["associations"][0]["packets"]
    assert packets >= 10
    assert re.search(rf" {packets} packets, +\d+s ago", peers.swanctl("west", "--list-sas"))
    peers.swanctl("west", "--terminate", "--ike=peer")
    await_that(lambda: not peers.tunnel())


_DUMPED = re.compile(r"encryption \w+ key => 36 bytes @ 0x[0-9a-f]+\n((?:.*\] +\d+: .*\n){3})")


def dumped_keys(log: str) -> list[bytes]:
    """Return the keys of associations that a daemon has logged, which it does at level 4."""
    rows = [re.findall(r"\d+: ((?:[0-9A-F]{2} ?)+)", dump) for dump in _DUMPED.findall(log)]
    return [bytes.fromhex("".join(each)) for each in rows]


def test_no_log_has_a_key_at_the_highest_level_that_the_documentation_allows(directory: Path) -> None:
    # The peer tells the keys to look for.
    with Peers(directory, levels=(3, 4)) as peers:
        peers.connect()
        peers.swanctl("west", "--rekey", "--child=net")
        await_that(lambda: len(dumped_keys(peers.charons["east"].log())) >= 4)
        peers.move()
        peers.await_path()
        keys = dumped_keys(peers.charons["east"].log())
        texts = {path.name: path.read_text(errors="replace") for path in directory.glob("*.log")}
    assert len({len(key) for key in keys}) == 1
    del texts["east.log"]
    assert set(texts) >= {"west.log", "nf.log"}
    assert "[KNL]" in texts["west.log"]
    for key in [*keys, b"for tests"]:
        # 8 bytes stay in one row of a dump.
        for part in [key[at : at + 8] for at in range(0, len(key) - 7, 8)]:
            forms = [part.hex(), part.hex().upper(), part.hex(" "), part.hex(" ").upper(), part.hex(":")]
            found = [(name, form) for name, text in texts.items() for form in forms if form in text]
            assert not found


def test_two_gateways_have_extended_sequence_numbers_and_ipv6_outside_without_a_nat(directory: Path) -> None:
    with Peers(directory, two=True) as peers:
        for host in ("west", "east"):
            peers.load(host, proposals="aes128gcm16-esn")
        peers.connect()
        peers.all_return(peers.pings("east", 20), 20)
        tunnel = peers.tunnel()
        assert (tunnel["peer"], tunnel["port"]) == ("198.51.100.7", None)
        assert {(each["esn"], each["bits"]) for each in tunnel["associations"]} == {(True, 128)}
        before = peers.spis("outbound")
        peers.swanctl("west", "--rekey", "--child=net")
        await_that(lambda: peers.spis("outbound")[:1] not in ([], before[:1]))
        peers.all_return(peers.pings("west", 20), 20)
        peers.swanctl("west", "--terminate", "--ike=peer")
        for host in ("west", "east"):
            peers.load(host, ends=ENDS_IPV6)
        peers.connect()
        peers.all_return(peers.pings("west", 20), 20)
        assert (peers.tunnel()["peer"], peers.tunnel()["port"]) == ("2001:db8:2::7", None)


def test_the_example_of_the_documentation_makes_a_tunnel(directory: Path) -> None:
    with Peers(directory, two=True) as peers:
        peers.charons["west"].load_text(EXAMPLE.read_text())
        peers.charons["east"].load_text(exchanged(EXAMPLE.read_text()))
        await_that(lambda: peers.spis("outbound"))
        peers.await_path()
        peers.all_return(peers.pings("west", 20), 20)
        assert peers.tunnel()["associations"][0]["esn"]


def exchanged(text: str) -> str:
    """Return a connection's other end."""
    names = {"192.0.2.1": "198.51.100.7", "10.1.0.0/24": "10.2.0.0/24", "= west": "= east"}
    names |= {new: old for old, new in names.items()}
    return re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], text)
