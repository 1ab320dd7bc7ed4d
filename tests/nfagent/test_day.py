"""24 hours of figures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nfagent.errors import DiskFullError
from nfagent.measurement import LinkUse, Load, LocationUse, Measurement, Rate, Step
from nfagent.monitor.day import DAY_S, SERVER, STEP_S, Day, cpu_series, instance_series, link_series
from nfagent.store import Store, events
from nfagent.store import day as day_rows

START = 1_790_000_100
"""The start of a step."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


def sample(at: float, mbps: float) -> Measurement:
    rate = Rate(mbps, 1.0)
    return Measurement(
        at,
        1.0,
        {(1, 2): rate, (2, 1): rate},
        0.0,
        {"a": Load(0.5, 500, rate, None)},
        {"snic0": LinkUse(rate, Rate(2 * mbps, 1.0), 10_000)},
        {"hypervisor": LocationUse(700, 4000)},
    )


def test_a_step_has_mean_and_maximum_of_its_samples(store: Store) -> None:
    assert START % STEP_S == 0
    day = Day(store)
    for second, mbps in ((0, 10.0), (299, 30.0)):
        day.take(sample(START + second, mbps))
    assert day.series(SERVER) == ()
    day.take(sample(START + STEP_S, 5.0))
    to_nic, to_host = link_series("snic0")
    expected = {SERVER: (40.0, 60.0), instance_series("a"): (20.0, 30.0), cpu_series("hypervisor"): (700.0, 700.0)}
    expected |= {to_nic: (20.0, 30.0), to_host: (40.0, 60.0), "none": None}
    for series, figures in expected.items():
        assert day.series(series) == ((Step(START, *figures),) if figures else ()), series
    assert [event.type for event in events.newest(store.read, 10)] == ["figures.kept"]


def test_a_day_is_kept_and_no_more(tmp_path: Path) -> None:
    store = Store(tmp_path)
    day = Day(store)
    steps = DAY_S // STEP_S
    for number in range(2 * steps):
        day.take(sample(START + number * STEP_S, number))
    day.keep()
    assert len(day.series(SERVER)) == steps + 1
    assert store.read.execute("SELECT COUNT(*) FROM day").fetchone()[0] == 5 * (steps + 1)
    store.close()
    again = Store(tmp_path)
    assert len(Day(again).series(SERVER)) == steps + 1
    again.close()


def test_a_restart_within_a_step_keeps_its_newer_part(store: Store) -> None:
    for mbps in (10.0, 20.0):
        day = Day(store)
        day.take(sample(START + mbps, mbps))
        day.keep()
        day.keep()
    assert day.series(SERVER) == (Step(START, 40.0, 40.0),)


def test_a_full_disk_costs_one_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    day = Day(store)
    day.take(sample(START, 1.0))
    with monkeypatch.context() as patch:
        patch.setattr(day_rows, "put", _full)
        with pytest.raises(DiskFullError):
            day.take(sample(START + STEP_S, 2.0))
    for step in (1, 2):
        day.take(sample(START + step * STEP_S, 3.0))
    assert [step.at for step in day.series(SERVER)] == [START + STEP_S]


def _full(*_: object) -> None:
    raise DiskFullError("the disk is full")
