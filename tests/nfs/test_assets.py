"""The asset detection on real interfaces: in line, and moved with all that it knows."""

import json
from pathlib import Path

import pytest

from tests.nfs.wire import Wire

FILES = {
    "tcp-syn.fp": "*:64:1:60:M*,S,T,N,W*:.:Linux:any\n",
    "tcp-synack.fp": "*:64:1:60:M*,S,T,N,W*:.:Linux:any\n",
    "tcp-stray-ack.fp": "*:64:1:0:.:A:Linux:any\n",
    "tcp-fin.fp": "*:64:1:40:.:AFN:Linux:any\n",
    "tcp-rst.fp": "0:64:1:40:.:.:Linux:any\n",
    "tcp-service.sig": "http,v/nginx///,Server: nginx\n",
    "tcp-clients.sig": "http,v/$1///,User-Agent: (.*)\n",
    "udp-service.sig": "domain,v/DNS///,\\x81\\x80\\x00\\x01\n",
    "mac.sig": "00:00:0C Cisco\n",
    "dhcp.fp": "1:64:53,255:.:.:Linux:any\n",
    "mtu.sig": '1500,"ethernet"\n',
}


@pytest.mark.namespaces
def test_what_it_knows_moves_and_is_found_once(tmp_path: Path, directory: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    config = f"signatures = {json.dumps(str(tmp_path))}\n"
    with Wire(directory) as wire, wire.nf("--backend=packet", kind="assets", config=config) as old:
        wire.ping()
        before = old.ask("assets.history")["lines"]
        lines = [each["line"] for each in before]
        # The answer to a's question; b learns a's address from that question.
        assert [line.split(",")[:5] for line in lines if ",ARP," in line] == [["10.9.0.2", "0", "0", "0", "ARP"]]
        with wire.successor(old, tmp_path, kind="assets", config=config) as new:
            wire.run("a", "ip", "neigh", "flush", "dev", "a0")
            wire.ping()
            after = new.ask("assets.history")["lines"]
            assert after[: len(before)] == before
            again = [each["line"] for each in after if each["line"].startswith("10.9.0.2,0,0,0,ARP,")]
            assert len(again) == 1
            hosts = new.ask("assets.hosts")["hosts"]
            assert {"10.9.0.1", "10.9.0.2"} <= {host["address"] for host in hosts}
