"""Signature files for ``assets`` in a lab: those of Debian's package ``prads``, or a few of this project's own."""

from pathlib import Path

INSTALLED = Path("/etc/prads")

_OWN = {
    "tcp-syn.fp": "*:64:1:60:M*,S,T,N,W*:.:Linux:any\n*:64:0:40:.:.:scapy:any\n",
    "tcp-synack.fp": "*:64:1:60:M*,S,T,N,W*:.:Linux:any\n",
    "tcp-stray-ack.fp": "*:64:1:0:.:A:Linux:any\n",
    "tcp-fin.fp": "*:64:1:40:.:AFN:Linux:any\n",
    "tcp-rst.fp": "0:64:1:40:.:.:Linux:any\n",
    "tcp-service.sig": "http,v/$1///,Server: ([^\\r\\n]*)\nhttp,v/HTTP///,HTTP/1\\.[01] \\d\\d\\d\n",
    "tcp-clients.sig": "http,v/$1///,User-Agent: ([^\\r\\n]*)\nhttp,v/HTTP///,(?:GET|POST) \\S+ HTTP/1\\.[01]\n",
    "udp-service.sig": "domain,v/DNS///,\\x81\\x80\\x00\\x01\n",
    "mac.sig": "02:00:00 lab\n",
    "dhcp.fp": "1:64:53,255:.:.:Linux:any\n",
    "mtu.sig": '1500,"ethernet"\n',
}


def signatures(directory: Path) -> Path:
    """Return the directory of the installed files; without them, write a few of our own below ``directory``."""
    return INSTALLED if INSTALLED.is_dir() else own_signatures(directory)


def own_signatures(directory: Path) -> Path:
    """Write a few signatures below ``directory``, of what a lab has; return their directory."""
    made = directory / "signatures"
    made.mkdir(parents=True, exist_ok=True)
    for name, text in _OWN.items():
        (made / name).write_text(text)
    return made
