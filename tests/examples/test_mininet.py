"""The emulated server in Mininet: ``mn`` itself, in its own namespaces."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("mn") is None, reason="Mininet is not installed: apt-get install mininet"),
    pytest.mark.skipif(not (ROOT / ".venv/bin/oneswitchd").exists(), reason="not built: make build"),
]


def mininet(*arguments: str, commands: str = "") -> str:
    """Run ``mn``; return its output."""
    done = subprocess.run(
        [ROOT / "tools/mininet", *arguments],
        input=commands,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        check=False,
    )
    # mn exits with 0 even after an exception.
    assert done.returncode == 0, done.stdout
    assert "completed in" in done.stdout, done.stdout
    return done.stdout


@pytest.mark.parametrize("snics", [1, 2])
def test_pingall_succeeds_through_the_one_switch(snics: int) -> None:
    pairs = (2 + 2 * snics) * (1 + 2 * snics)
    assert f"0% dropped ({pairs}/{pairs} received)" in mininet("--topo", f"server,{snics}", "--test", "pingall")


def test_a_port_moves_under_traffic_and_a_killed_switch_recovers() -> None:
    printed = mininet(
        commands="""\
py setattr(net, 'pinging', net['vm1'].popen(['ping', '-i0.005', '-c400', '-w60', '10.0.0.2']))
move vm2 snic0
move vm2 hypervisor
py net.pinging.communicate()[0]
move nf1 hypervisor
switch snic0 stop
unoctl dump-ports
switch snic0 start
py net['vm1'].cmd('ping -c1 -W1 -s1472 -Mdo 10.0.0.4')
pingall
unoctl show
"""
    )
    assert "vm2 is now at snic0" in printed
    assert "vm2 is now at hypervisor" in printed
    # With -w, ping waits for 400 answers; without it, only 5 ms for the last one.
    answered = re.findall(r"bytes from 10\.0\.0\.2: icmp_seq=(\d+)", printed)
    assert list(map(int, answered)) == list(range(1, 401)), printed
    assert "nf1 has no interface at hypervisor; it has one at snic0" in printed
    assert re.search(r"\bout1 +down +snic0", printed), "the ports of a dead switch are down"
    assert "1480 bytes from 10.0.0.4" in printed, "a full-size packet fits through the PCIe link with its flow-id"
    assert "0% dropped (12/12 received)" in printed
    assert printed.count("datapath 0000000000000001") == 1


def test_requests_pass_a_chain_of_functions() -> None:
    web = "py net['{0}'].cmd('{1}/.venv/bin/python -m lab.web --name {0} >/tmp/{0}.log & sleep 0.1')\n"
    asks = "for i in 1 2 3 4 5 6 7 8 9 10; do curl -s -m 9 --retry 9 --retry-all-errors http://10.0.0.100/; echo; done"
    hosts = "Control(Path('/tmp/mon.sock')).ask('assets.hosts')['hosts']"
    asked = f"print([(h['address'], [s['service'] for s in h['services']]) for h in {hosts}])"
    printed = mininet(
        *("--topo", "chain", "--controller", "chains"),
        commands=web.format("web1", ROOT)
        + web.format("web2", ROOT)
        + f'py net["out1"].cmd("{asks}")\n'
        + f'sh {ROOT}/.venv/bin/python -c "from pathlib import Path; from nfagent.control import Control; {asked}"\n'
        + "unoctl dump-ports\n",
    )
    answers = re.findall(r"^(?:mininet> )*(web[12])\r?$", printed, re.MULTILINE)
    assert (len(answers), set(answers)) == (10, {"web1", "web2"}), printed
    assert "('10.0.0.100', ['http'])" in printed
    assert "('10.0.0.1', ['http'])" in printed
    passed = {
        name: int(packets) for name, packets in re.findall(r"\b(fw-out|mon-out|lb) +up.*? - +\d+ +\d+ +(\d+)", printed)
    }
    assert set(passed) == {"fw-out", "mon-out", "lb"}
    assert min(passed.values()) >= 10
