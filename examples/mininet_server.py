"""The emulated server for Mininet users, for ``mn --custom``.

    sudo tools/mininet                        # a server with one sNIC, the learning switch, Mininet's CLI
    sudo tools/mininet --topo server,2 --test pingall
    sudo tools/mininet --topo chain --controller chains  # out1 -> firewall, monitor, load balancer -> web1, web2

In the CLI, ``unoctl show`` and ``move vm2 snic0`` complement Mininet's own commands. tools/mininet runs ``mn`` in
separate namespaces, because a crash of ``mn`` ends every ping and controller on the machine.
"""

# Mininet is installed for the system's Python, where a type checker of .venv cannot see it.
# pyright: reportMissingImports=false

import sys
from pathlib import Path
from typing import Any

# mn executes this file's text without setting its name.
ROOT = Path(sys._getframe().f_code.co_filename).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mininet.node import Controller  # noqa: E402

from lab.mininet_chain import CHAINS, ChainTopo  # noqa: E402
from lab.mininet_server import ServerCLI, ServerHost, ServerSwitch, ServerTopo, program  # noqa: E402


class LearningSwitch(Controller):
    """The os-ken learning switch of this folder."""

    def __init__(self, name: str, **params: Any) -> None:
        arguments = f"{ROOT}/examples/run_os_ken.py {ROOT}/examples/learning_switch.py --ofp-tcp-listen-port %d"
        super().__init__(name, command=program("python"), cargs=arguments, **params)


class TenantChains(Controller):
    """The os-ken application of this folder that leads packets through chains."""

    def __init__(self, name: str, **params: Any) -> None:
        conf = Path("/tmp/chains.conf")  # tools/mininet makes it private
        conf.write_text(f"[DEFAULT]\nchains = {CHAINS}\n")
        arguments = f"{ROOT}/examples/run_os_ken.py --config-file {conf} {ROOT}/examples/tenant_chains.py"
        super().__init__(name, command=program("python"), cargs=f"{arguments} --ofp-tcp-listen-port %d", **params)


topos = {"server": ServerTopo, "chain": ChainTopo}
switches = {"server": ServerSwitch}
hosts = {"server": ServerHost}
controllers = {"learning": LearningSwitch, "chains": TenantChains}
CLI = ServerCLI
