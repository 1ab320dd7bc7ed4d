"""Builds programs of the Rust crates as they are measured."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def build_example(package: str, name: str) -> str:
    """Build an example; return its path."""
    _build("-p", package, "--example", name)
    return example(name)


def build_program(package: str, name: str) -> str:
    """Build a program; return its path."""
    _build("-p", package, "--bin", name)
    return str(TARGET / name)


def build_nf() -> None:
    """Build ``nf``, unless `make build` has done so."""
    if not _installed("nf").exists():
        _build("-p", "nf")


def example(name: str) -> str:
    """Return the path of a built example."""
    return str(TARGET / "examples" / name)


def nf() -> str:
    """Return the path of ``nf``."""
    installed = _installed("nf")
    return str(installed if installed.exists() else TARGET / "nf")


def _build(*options: str) -> None:
    installed = _installed("cargo")
    cargo = str(installed) if installed.exists() else "cargo"
    subprocess.run([cargo, "build", "--release", "--locked", "--quiet", *options], cwd=ROOT, check=True)


def _installed(name: str) -> Path:
    return ROOT / ".venv/bin" / name
