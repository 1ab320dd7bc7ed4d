"""Every notebook runs from top to bottom, and its two forms are equal."""

import os
from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
TEXTS = sorted(NOTEBOOKS.glob("*.py"))


def cells(notebook) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_notebooks_exist() -> None:
    assert len(TEXTS) == 12


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_both_forms_of_a_notebook_are_equal(text: Path) -> None:
    assert cells(jupytext.read(text)) == cells(jupytext.read(text.with_suffix(".ipynb")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_a_notebook_runs(text: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(NOTEBOOKS.parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    NotebookClient(jupytext.read(text), timeout=500, kernel_name="python3").execute()
