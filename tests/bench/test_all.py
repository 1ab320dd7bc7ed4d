"""bench/all: the list of figures, and the comparison with a release."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
measures: Any = importlib.import_module("suite.measures")
run: Any = importlib.import_module("suite.run")


def test_every_benchmark_has_figures_that_count_and_the_readme_lists_it() -> None:
    listed = (ROOT / "bench/README.md").read_text()
    names = run.benchmarks()
    assert {measure.benchmark for measure in measures.load()} == set(names)
    assert not [name for name in names if f"`bench/{name}`" not in listed]


def test_a_figure_that_is_worse_by_more_than_a_tenth_is_a_regression() -> None:
    lower, higher = measures.Measure("x", "a", "lower"), measures.Measure("x", "a", "higher")
    assert not lower.has_regressed(100, 110)
    assert lower.has_regressed(100, 111)
    assert not lower.has_regressed(100, 10)
    assert not higher.has_regressed(1.0, 0.9)
    assert higher.has_regressed(1.0, 0.89)
    assert lower.has_regressed(0, 1)  # the first packet that is lost
    assert not lower.has_regressed(0, 0)
    assert measures.Measure("x", "a", "lower", aim=2).is_met(2)
    assert not measures.Measure("x", "a", "higher", aim=2).is_met(1.9)


def test_times_are_compared_only_with_the_same_kind_of_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    time, ratio = measures.Measure("x", "t.ms", "lower", absolute=True), measures.Measure("x", "ratio", "lower")
    monkeypatch.setattr(run, "load", lambda: [time, ratio])
    found = {"x": [{"t": {"ms": value}, "ratio": 1.2} for value in (8, 9, 30)]}
    saved = {"machine": run.machine(), "figures": {"x": {"t.ms": 8.0, "ratio": 1.0}}}
    rows = run.compared(found, saved)
    assert [(row.now, row.before, row.spread, row.regressed) for row in rows] == [
        (9, 8.0, (8, 30), True),
        (1.2, 1.0, (1.2, 1.2), True),
    ]
    rows = run.compared(found, saved | {"machine": "another"})
    assert [row.before for row in rows] == [None, 1.0]
    assert run.summary(rows, "0.1.0", ["x ratio"], {}, [])["figures"]["x"]["ratio"]["worse_by"] == pytest.approx(0.2)


def test_a_figure_without_a_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "load", lambda: [measures.Measure(name, "ratio", "lower") for name in "xyz"])
    found = {"x": [{"ratio": None}, {"ratio": None}], "y": [{"ratio": None}, {"ratio": 1.0}]}
    assert run.unmeasured(found) == ["x ratio"]


def test_a_run_is_saved_as_a_release_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(
        run, "load", lambda: [measures.Measure("x", "ratio", "lower"), measures.Measure("y", "n", "lower")]
    )
    assert run.last_release() == (None, None)
    run.save("0.9.0", {"x": [{"ratio": 1.5}], "y": [{"n": None}]})
    run.save("0.10.0", {"x": [{"ratio": 2.5}]})
    release, saved = run.last_release()
    assert (release, saved["figures"]) == ("0.10.0", {"x": {"ratio": 2.5}})
    run.save("0.10.0", {"y": [{"n": 3}]})
    assert run.last_release()[1]["figures"] == {"x": {"ratio": 2.5}, "y": {"n": 3}}


def test_a_benchmark_that_fails_is_named_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {
        "bad": "echo 'no such peer' >&2; exit 3",
        "good": "echo progress; echo '{\"n\": 1}'",
        "mute": "true",
        "old": "echo '{}'",
    }
    (tmp_path / "bench").mkdir()
    for name, line in programs.items():
        path = tmp_path / "bench" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    (tmp_path / "bench/README.md").write_text("not a benchmark")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "load", lambda: [measures.Measure("old", "t.ms", "lower")])
    assert run.benchmarks() == ["bad", "good", "mute", "old"]
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    found, failed = run.measured(run.benchmarks(), 2, False, "0.1.0")
    assert run.last_release()[0] == "0.1.0"
    assert found == {"good": [{"n": 1}, {"n": 1}]}
    assert failed["bad"] == "exit status 3: no such peer"
    assert "lacks t.ms" in failed["old"]
    assert "mute" in failed
    assert json.loads(json.dumps(failed)) == failed
