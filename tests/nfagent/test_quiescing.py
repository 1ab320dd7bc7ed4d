"""The wait until switches use the paths that were flipped: what it asks them, and when."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nfagent.migrate import quiescing
from nfagent.migrate.quiescing import SwitchQuiescing
from server.config import SwitchConfig
from server.errors import ToolError

HUB = SwitchConfig(name="hypervisor", virt="unix:/virt.mgmt", edge="unix:/edge.mgmt", control="/run/hub.ctl")
NIC = SwitchConfig(name="snic0", virt="tcp:192.0.2.1:1", edge="tcp:192.0.2.1:2", control="/run/snic0.ctl")
FAR = SwitchConfig(name="snic1", virt="tcp:192.0.2.2:1", edge="tcp:192.0.2.2:2")

CONNECT = "connect /run/hub.ctl within 0.1 s"
SHOW = "upcall/show and dpif-netdev/pmd-stats-show"
PAUSES = " and ".join(["version"] * 9 + ["revalidator/pause", "revalidator/resume"] * 2)
ROUND = ["hub fdb/add edge edge 0 02:6e:66:0a:0a:0a", "hub fdb/del edge 0 02:6e:66:0a:0a:0a and revalidator/wait"]
IN_USER_SPACE = "netdev@ovs-netdev:\n  flows         : (current 9) (avg 9)\n  dump duration : 1ms\n\n  5: (keys 0)\n"
IN_KERNEL = IN_USER_SPACE.replace("netdev@ovs-netdev", "system@ovs-system")
ONE_THREAD = "main thread:\n  packets received: 9\n"
TWO_THREADS = f"pmd thread numa_id 0 core_id 1:\n  packets received: 9\n{ONE_THREAD}"


class FakeDaemon:
    """See `server.openvswitch.unixctl.Unixctl`; ``ANSWERS`` holds its answers by socket."""

    def __init__(self, path: Path, answer_s: float) -> None:
        self.path, self.answers = path, ANSWERS.get(str(path))
        LOG.append(f"connect {path} within {answer_s:g} s")
        if self.answers is None:
            raise ToolError(f"no daemon answers at {path}")

    def call(self, *words: str) -> str:
        LOG.append(" ".join((self.path.stem, *words)))
        assert self.answers is not None
        return self.answers(*words)

    def call_at_once(self, *commands: tuple[str, ...]) -> list[str]:
        LOG.append(f"{self.path.stem} " + " and ".join(" ".join(each) for each in commands))
        return [""] * len(commands)

    def begin(self, *commands: tuple[str, ...]) -> Callable[[], list[str]]:
        assert self.answers is not None
        LOG.append(f"{self.path.stem} begins " + " and ".join(" ".join(each) for each in commands))
        return lambda: [self.answers(*each) for each in commands if self.answers]

    def close(self) -> None:
        LOG.append(f"close {self.path.stem}")

    def close_when_answered(self) -> None:
        self.close()


LOG: list[str] = []
ANSWERS: dict[str, Callable[..., str]] = {}


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    LOG.clear()
    ANSWERS.clear()
    ANSWERS.update({"/run/hub.ctl": lambda *_: "", "/run/snic0.ctl": lambda *_: ""})
    monkeypatch.setattr(quiescing, "Unixctl", FakeDaemon)
    monkeypatch.setattr(quiescing.random, "randbytes", lambda count: b"\x0a" * count)
    slept: list[float] = []
    monkeypatch.setattr(quiescing.time, "sleep", slept.append)
    return slept


def of_hub() -> list[str]:
    return [each for each in LOG if "hub" in each]


def test_each_switch_ends_two_rounds(slept: list[float]) -> None:
    SwitchQuiescing([HUB, NIC]).wait()
    again = [CONNECT, f"hub begins {SHOW}", "close hub"]
    assert of_hub() == [*again * 2, "connect /run/hub.ctl within 2 s", *ROUND * 2, "close hub"]
    assert slept == []


def test_a_switch_that_cannot_be_asked_is_given_time(slept: list[float]) -> None:
    SwitchQuiescing([NIC, FAR]).wait()
    assert slept == [1.0]

    def refused(*_: str) -> str:
        raise ToolError("the daemon hangs")

    ANSWERS["/run/hub.ctl"] = refused
    SwitchQuiescing([HUB]).wait()
    assert slept == [1.0, 1.0]


def test_an_old_switch_is_asked_for_rounds_that_it_begins_itself(slept: list[float]) -> None:
    def old(*words: str) -> str:
        if words[0] == "fdb/add":
            raise ToolError("there is no such command")
        return ""

    ANSWERS["/run/hub.ctl"] = old
    SwitchQuiescing([HUB]).wait()
    assert of_hub()[-5:] == [*(ROUND[0], "hub revalidator/wait") * 2, "close hub"]
    assert slept == []


@pytest.mark.parametrize(
    ("shown", "statistics", "is_at_once"),
    [
        (IN_USER_SPACE, ONE_THREAD, True),
        (IN_USER_SPACE.replace("netdev@ovs-netdev", "dummy@ovs-dummy"), ONE_THREAD, True),
        (IN_KERNEL, ONE_THREAD, False),
        (IN_USER_SPACE + IN_KERNEL, ONE_THREAD, False),
        (IN_USER_SPACE, TWO_THREADS, False),
        (IN_USER_SPACE.replace("1ms", "6ms"), ONE_THREAD, False),
    ],
)
def test_caches_of_a_switch_with_one_thread_are_made_current_at_once(
    shown: str, statistics: str, is_at_once: bool
) -> None:
    """Other threads might be adding a flow by the old rules; many flows would stop the switch for long."""
    answers = {"upcall/show": shown, "dpif-netdev/pmd-stats-show": statistics}
    ANSWERS["/run/hub.ctl"] = lambda *words: answers.get(words[0], "")
    waiting = SwitchQuiescing([HUB])
    LOG.clear()
    waiting.wait()
    assert ([f"hub begins {SHOW} and {PAUSES}", "close hub"] == LOG) == is_at_once, "packets wait for no connection"
    assert any("fdb/add" in each for each in LOG) != is_at_once


def test_switches_whose_main_thread_does_all_are_known() -> None:
    answers = {"upcall/show": IN_USER_SPACE, "dpif-netdev/pmd-stats-show": ONE_THREAD}
    ANSWERS["/run/hub.ctl"] = lambda *words: answers.get(words[0], "")
    assert quiescing.single_threaded([HUB, NIC, FAR]) == {"hypervisor"}
    assert of_hub() == [CONNECT, f"hub begins {SHOW}", "close hub"]
    answers["upcall/show"] = IN_KERNEL
    assert quiescing.single_threaded([HUB, NIC, FAR]) == set()


def test_a_switch_that_got_a_second_thread_meanwhile_ends_its_rounds() -> None:
    answers = {"upcall/show": IN_USER_SPACE, "dpif-netdev/pmd-stats-show": ONE_THREAD}
    ANSWERS["/run/hub.ctl"] = lambda *words: answers.get(words[0], "")
    waiting = SwitchQuiescing([HUB])
    answers["dpif-netdev/pmd-stats-show"] = TWO_THREADS
    waiting.wait()
    assert sum("fdb/add" in each for each in LOG) == 2


def test_a_switch_that_cannot_pause_is_asked_for_its_rounds() -> None:
    def told(*words: str) -> str:
        if words[0] == "revalidator/pause":
            raise ToolError("there is no such command")
        return {"upcall/show": IN_USER_SPACE, "dpif-netdev/pmd-stats-show": ONE_THREAD}.get(words[0], "")

    ANSWERS["/run/hub.ctl"] = told
    SwitchQuiescing([HUB]).wait()
    assert sum("fdb/add" in each for each in LOG) == 2


def test_connections_are_closed_and_made_again() -> None:
    answers = {"upcall/show": IN_USER_SPACE, "dpif-netdev/pmd-stats-show": ONE_THREAD}
    ANSWERS["/run/hub.ctl"] = lambda *words: answers.get(words[0], "")
    waiting = SwitchQuiescing([HUB])
    waiting.close()
    assert [CONNECT, f"hub begins {SHOW}", "close hub"] == LOG
    waiting.close()
    for _ in range(2):
        waiting.wait()
    once = [CONNECT, f"hub begins {SHOW}", f"hub begins {SHOW} and {PAUSES}", "close hub"]
    assert LOG[3:] == once * 2
