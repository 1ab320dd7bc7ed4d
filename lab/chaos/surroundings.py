"""The surroundings of the server's programs: the disk of the agent's store, and the wall clock."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from lab.agent import STATE
from lab.chaos import clock, disk
from lab.chaos.clock import Clock
from lab.chaos.disk import Disk

DISK, CLOCK = "disk", "clock"


class Surroundings:
    """The disk and the clock, as far as this machine has what they need.

    Attributes:
        left_out: what is missing, in sentences.
    """

    def __init__(self) -> None:
        self.disk: Disk | None = None
        self.clock: Clock | None = None
        lacks = {"the disk's faults": disk.missing(), "jumps of the clock": clock.missing()}
        self.left_out = [f"{what} are left out: they need {missing}" for what, missing in lacks.items() if missing]

    def make(self, agent: Path, stack: ExitStack) -> Mapping[str, str]:
        """Make them for an agent with this directory; return variables of its environment, and of oneswitchd's.

        Args:
            agent: directory of the agent.
            stack: unmounts the disk.

        Raises:
            StartError: that failed.
        """
        if disk.missing() is None:
            self.disk = stack.enter_context(Disk(agent / STATE, agent.parent / "disk.img"))
        if clock.missing() is None:
            self.clock = Clock(agent.parent)
        return self.clock.variables() if self.clock else {}
