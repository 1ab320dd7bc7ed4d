"""Locations that lack what a function needs are found out by its own program, where it would run."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.signatures import own_signatures
from nfagent.catalog import Catalog, nf_kinds
from nfagent.config import AgentConfig
from nfagent.errors import LaunchError
from nfagent.fitness import LocationFitness
from nfagent.launch.local import LocalLauncher
from nfagent.model import Kind
from nfagent.store import Store, events, instances
from server.config import ServerConfig
from tests.nfagent import samples
from tests.nfagent.world import write_files

HUB, NIC = "hypervisor", "snic0"
HIDING = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none {} && exec "$@"', "sh"]


class World:
    """Two locations on this machine; some kinds; a clock."""

    def __init__(self, directory: Path, *kinds: Kind, enter: tuple[str, ...] = ()) -> None:
        path = write_files(directory)
        config = AgentConfig.load(path)
        location = config.find_location(NIC)
        slot = location.slot[0].model_copy(update={"enter": list(enter)})
        location.slot[:] = [slot]
        server: ServerConfig = config.load_server(path)
        catalog = replace(Catalog.of(config, server), kinds={kind.name: kind for kind in kinds})
        self.store, self.now, self.cut_off = Store(directory / "state"), 0.0, ""
        launcher = LocalLauncher(directory / "run", directory / "log")
        self.launchers = {HUB: launcher, NIC: launcher}
        self.fitness = LocationFitness(
            self.store, catalog, config, self.launchers, lambda at: at == self.cut_off, lambda: self.now
        )

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (each.type, each.payload)
            for each in events.after(self.store.read, 0, 1000, None)
            if each.subject == "placement"
        ]


@pytest.fixture
def made(directory: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(*kinds: Kind, enter: tuple[str, ...] = ()) -> World:
        worlds.append(World(directory, *kinds, enter=enter))
        return worlds[-1]

    yield make
    for world in worlds:
        world.store.close()


def own(script: str) -> Kind:
    return Kind("own", "", True, (0, 2), (), ("sh", "-c", script, "{config}", "{ports}"))


@pytest.mark.parametrize(
    ("script", "lacking"),
    [
        ("exit 0", None),
        ('echo "nf: $0: tls: /etc/a.pem: cannot be read: No such file or directory (os error 2)" >&2; exit 1',
         "snic0 lacks /etc/a.pem"),
        ('echo "nf: dpi: nf-dpi: cannot be read: No such file or directory; install it" >&2; exit 1',
         "snic0 lacks nf-dpi"),
        ('echo "nf: $0: tls: /etc/a.pem: cannot be read: Permission denied (os error 13)" >&2; exit 1',
         "snic0 cannot read /etc/a.pem: Permission denied"),
        ('echo "nf: $0: speed: unknown field" >&2; exit 1', "snic0 refuses its configuration: speed: unknown field"),
        ("exec nf-unknown", "snic0 lacks the program sh"),
        ("echo out of memory >&2; exit 101", None),
        ('grep -q \'"value": 1\' "$0" && [ "$1" = 2 ]', None),
    ],
)  # fmt: skip
def test_the_program_tells_what_is_lacking(made: Callable[..., World], script: str, lacking: str | None) -> None:
    world = made(own(script))
    assert world.fitness.look(own(script), {"value": 1}, 2, NIC) == lacking
    assert list((world.launchers[NIC]._runtime).glob("check.*")) == []


def test_a_missing_program_and_an_unreachable_location(
    made: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Kind("own", "", True, (0, 2), (), ("/nonexistent/nf", "check"))
    world = made(kind)
    assert world.fitness.look(kind, {}, 0, HUB) == "hypervisor lacks the program /nonexistent/nf"
    world.cut_off = HUB
    assert world.fitness.look(kind, {}, 0, HUB) is None

    def fails(*_: Any) -> Any:
        raise LaunchError("snic0 cannot be reached")

    monkeypatch.setattr(world.launchers[NIC], "examine", fails)
    assert world.fitness.look(kind, {}, 0, NIC) is None


def test_changes_are_told_once_and_lacking_locations_are_examined_more_often(
    made: Callable[..., World], tmp_path: Path
) -> None:
    file, count = tmp_path / "file", tmp_path / "count"
    script = f'echo x >>{count}; [ -e {file} ] || {{ echo "nf: {file}: cannot be read: No such file" >&2; exit 1; }}'
    world = made(own(script))
    one, two = (samples.instance(name, kind="own", config={}) for name in ("one", "two"))
    with world.store.change() as change:
        for each in (one, two):
            instances.add(change, each)

    def examined() -> int:
        before = count.read_text().count("x") if count.exists() else 0
        world.fitness.examine()
        return count.read_text().count("x") - before

    assert examined() == 2, "equal functions are examined once for each location"
    assert world.fitness.lacks(one, NIC) == f"snic0 lacks {file}"
    told = [(kind, payload["instance"], payload["location"]) for kind, payload in world.told()]
    expected = {("placement.unfit", each.id, at) for each in (one, two) for at in (HUB, NIC)}
    assert (len(told), set(told)) == (4, expected)
    assert world.told()[0][1]["reason"].endswith(f" lacks {file}")
    assert examined() == 0
    file.touch()
    world.now = 10.0
    assert examined() == 2
    assert world.fitness.lacks(one, NIC) is None
    assert {(kind, payload["instance"]) for kind, payload in world.told()[4:]} == {
        ("placement.fit", one.id),
        ("placement.fit", two.id),
    }
    world.now = 309.0
    assert examined() == 0
    world.now = 310.0
    assert examined() == 2
    assert len(world.told()) == 8


@pytest.mark.namespaces
def test_assets_lack_their_signature_files_in_a_slot_without_them(made: Callable[..., World], tmp_path: Path) -> None:
    assets = next(kind for kind in nf_kinds("nf") if kind.name == "assets")
    files = own_signatures(tmp_path)
    world = made(assets, enter=tuple(word.format(files) for word in HIDING))
    config = {"signatures": str(files)}
    assert world.fitness.look(assets, config, 1, HUB) is None
    assert world.fitness.look(assets, config, 1, NIC) == f"snic0 lacks {files}/tcp-syn.fp"
    (files / "mac.sig").write_text("x")
    why = world.fitness.look(assets, config, 1, HUB)
    assert why is not None
    assert re.match(rf"hypervisor refuses its configuration: signatures: {files}/mac.sig: line 1: ", why)
