"""Faults for oneswitchd, as patches of its source, and the scripts that kill them."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_HERE = Path(__file__).parent

NAMES: dict[str, str] = {path.stem: path.read_text().split("\n", 1)[0] for path in sorted(_HERE.glob("*.patch"))}
"""The name of each mutant, and its fault."""


def keeps_state(name: str) -> bool:
    """Tell whether only runs with state that all ports share find a mutant."""
    return name.startswith("learned-")


def script_of(name: str) -> Path:
    """Return the path of the script that kills a mutant."""
    return _HERE / f"{name}.json"


def patch_of(name: str) -> Path:
    """Return the path of the patch that makes the fault."""
    return _HERE / f"{name}.patch"


def apply(name: str, tree: Path, *options: str) -> None:
    """Apply a patch to a copy of the repository, or with ``--check`` only try to.

    Raises:
        subprocess.CalledProcessError: the source has changed where the fault belongs.
    """
    subprocess.run(["git", "apply", *options, str(patch_of(name))], cwd=tree, check=True)


@contextmanager
def builder() -> Iterator["Builder"]:
    """Build mutants in a copy of the repository, which ends with the context."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        yield Builder(Path(folder))


class Builder:
    """Builds oneswitchd with one fault at a time; the builds of a process share what is compiled."""

    def __init__(self, folder: Path) -> None:
        self._tree, self._binaries = folder / "tree", folder / "binaries"
        self._binaries.mkdir()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
        for name in listed.stdout.split("\0"):
            if name.endswith((".rs", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml")):
                target = self._tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                # With new times: cargo has built an earlier copy last with a fault, and goes by times.
                shutil.copyfile(_ROOT / name, target)

    def build(self, name: str = "") -> Path:
        """Return oneswitchd with the fault ``name`` ("": with none)."""
        binary = self._binaries / (name or "sound")
        if not binary.exists():
            if name:
                apply(name, self._tree)
            try:
                shutil.copy2(self._compiled(), binary)
            finally:
                if name:
                    apply(name, self._tree, "--reverse")
        return binary

    def _compiled(self) -> Path:
        cargo = shutil.which("cargo", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        assert cargo is not None, "cargo is not on PATH"
        # One for each process that runs tests: cargo takes what another copy has built for its own.
        target = _ROOT / "target/mutants" / os.environ.get("PYTEST_XDIST_WORKER", "alone")
        command = [cargo, "build", "--locked", "--quiet", "-p", "oneswitchd", "--target-dir", str(target)]
        subprocess.run(command, cwd=self._tree, check=True)
        return target / "debug/oneswitchd"
