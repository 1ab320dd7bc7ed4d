"""``unoctl place`` and the JSON form of problems."""

import functools
import json
from pathlib import Path

import jsonschema
import pyarrow.parquet as parquet
import pytest
from distributed import LocalCluster
from typer.testing import CliRunner

from placement.errors import SchemaError
from placement.fleet import cluster
from placement.schema import SCHEMA, from_json, to_json
from placement.studies.workloads import uno_ring
from tests.placement.dask_processes import scheduler, workers
from tests.placement.instances import instance
from unoctl.cli import app


def written(tmp_path: Path, shared: int) -> str:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(to_json(uno_ring(shared))))
    return str(path)


def test_place_prints_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["place", written(tmp_path, 30_000), "--explain", "--format=json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["host_cost"], told["bound"], told["proven"]) == (13_000, 13_000, True)
    assert {"limit": "pcie shared of sNIC 1", "used": 28_000, "allowed": 30_000} in told["binding"]
    on_host = next(name for name, location in told["placement"].items() if location == 0)
    assert "but pcie shared of sNIC 1 would be 31600 of 30000" in told["why"][on_host]


def test_place_prints_text_and_draws_a_plot(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    done = CliRunner().invoke(app, ["place", written(tmp_path, 30_000), "--explain", "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    assert "host cost 13000 (proven least)" in done.stdout
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read"),
        ("{", "is not JSON"),
        ('{"nfs": []}', "problem lacks the required key 'nics'"),
        ('{"nfs": [], "nics": [], "vm": []}', "has the key 'vm'; expected one of nfs"),
        ('{"nfs": [], "nics": [{"capacity": {"cores": -1}}]}', "capacity.cores is -1; expected 0 or more"),
    ],
)
def test_errors_name_the_place_in_the_document(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "problem.json"
    if text is not None:
        path.write_text(text)
    done = CliRunner().invoke(app, ["place", str(path)])
    assert done.exit_code == 1
    assert words in " ".join(done.output.split())


def test_an_infeasible_problem_names_remedies(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["place", written(tmp_path, 9_000)])
    assert done.exit_code == 1
    assert "possible with pcie + 1000" in " ".join(done.output.split())


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local cluster runs inside this process: its own processes take seconds to start."""
    monkeypatch.setattr(cluster, "LocalCluster", functools.partial(LocalCluster, processes=False))


@pytest.mark.usefixtures("threads")
def test_a_fleet_is_placed_and_servers_that_cannot_be_are_named(tmp_path: Path) -> None:
    for name, shared in (("b", 30_000), ("a", 80_000), ("c", 9_000)):
        (tmp_path / f"{name}.json").write_text(json.dumps(to_json(uno_ring(shared))))
    (tmp_path / "d.json").write_text("{")
    done = CliRunner().invoke(app, ["place", "--fleet", str(tmp_path), "--format=json"])
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert {key: told[key] for key in ("servers", "placed", "infeasible", "refused", "host_cost")} == {
        "servers": 4,
        "placed": 2,
        "infeasible": 1,
        "refused": 1,
        "host_cost": 13_000,
    }
    rows = parquet.read_table(told["plans"]).to_pylist()
    assert [(row["server"], row["verdict"], row["host_cost"]) for row in rows] == [
        ("a", "placed", 0),
        ("b", "placed", 13_000),
        ("c", "infeasible", None),
        ("d", "refused", None),
    ]
    assert dict(rows[0]["placement"]) == {f"dpi{i}{way}": 1 for i in range(9) for way in "+-"}
    assert parquet.read_table(told["work"]).column_names == ["server", "cpu_seconds"]
    assert sorted(path.name for path in tmp_path.glob("*parquet")) == ["plans.parquet", "work.parquet"]
    (tmp_path / "c.json").unlink()
    (tmp_path / "d.json").unlink()
    done = CliRunner().invoke(app, ["place", "--fleet", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "cpu seconds per server" in done.stdout


def test_a_cluster_of_separate_processes_writes_the_same_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / f"server{number}.json").write_text(json.dumps(to_json(uno_ring(30_000 + 10_000 * number))))
    found = []
    with scheduler() as address, workers(address, 2):
        for more in ([], ["--dask", address]):
            done = CliRunner().invoke(app, ["place", "--fleet", str(tmp_path), "--format=json", *more])
            assert done.exit_code == 0, done.output
            found.append(Path(json.loads(done.stdout)["plans"]).read_bytes())
            Path(json.loads(done.stdout)["plans"]).unlink()
            monkeypatch.setattr(cluster, "LocalCluster", None)  # the second run must use the given one
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dask", "tcp://127.0.0.1:1"], "--dask is only for a fleet"),
        (["--fleet", "{folder}", "--explain"], "--explain does not go with --fleet"),
        (["problem.json", "--fleet", "{folder}"], "PROBLEM.json does not go with --fleet"),
        (["--fleet", "{folder}"], "has no problem; expected a file SERVER.json"),
    ],
)
def test_wrong_calls_for_a_fleet_are_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["place", *(each.format(folder=tmp_path) for each in arguments)])
    assert done.exit_code == 1
    assert words in " ".join(done.output.split())


def test_every_problem_survives_json() -> None:
    for seed in range(100):
        problem, current = instance(seed)
        document = json.loads(json.dumps(to_json(problem, current)))
        jsonschema.validate(document, SCHEMA)
        assert from_json(document) == (problem, current)


def test_the_schema_and_the_reader_refuse_the_same() -> None:
    good = to_json(uno_ring(10_000))
    for path, value in [
        (("nfs", 0, "name"), ""),
        (("demands", 0, "mbps"), 1.5),
        (("nics", 0, "shared"), -1),
        (("vms",), 3),
    ]:
        document = json.loads(json.dumps(good))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        with pytest.raises(SchemaError):
            from_json(document)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, SCHEMA)
