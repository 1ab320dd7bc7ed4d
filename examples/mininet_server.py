"""The emulated server for Mininet users, for ``mn --custom``.

    sudo tools/mininet                        # a server with one sNIC, the learning switch, Mininet's CLI
    sudo tools/mininet --topo server,2 --test pingall

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

from lab.mininet_server import ServerCLI, ServerHost, ServerSwitch, ServerTopo, program  # noqa: E402


class LearningSwitch(Controller):
    """The os-ken learning switch of this folder."""

    def __init__(self, name: str, **params: Any) -> None:
        arguments = f"{ROOT}/examples/run_os_ken.py {ROOT}/examples/learning_switch.py --ofp-tcp-listen-port %d"
        super().__init__(name, command=program("python"), cargs=arguments, **params)


topos = {"server": ServerTopo}
switches = {"server": ServerSwitch}
hosts = {"server": ServerHost}
controllers = {"learning": LearningSwitch}
CLI = ServerCLI
