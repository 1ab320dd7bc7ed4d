"""Programs that the lab runs, and their environment."""

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from lab.errors import StartError

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_SCHEMA = "vswitch.ovsschema"
_PROJECT = "uno-server"
_OVS_PREFIX = "UNO_OVS_PREFIX"
_PACKAGES = "on Debian: apt install openvswitch-switch iproute2 util-linux"


def search_path() -> str:
    """Return PATH plus sbin, which an ordinary user's PATH lacks: ovs-vswitchd, ip and tc are there.

    First come the programs of another Open vSwitch, if ``UNO_OVS_PREFIX`` names where it is installed.
    """
    present = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = [str(prefix / directory) for prefix in _ovs_prefix() for directory in ("sbin", "bin")]
    present = [*own, *(each for each in present if each not in own)]
    return os.pathsep.join([*present, *(each for each in _SBIN if each not in present)])


def use_ovs(prefix: str | None) -> None:
    """Make this process and its children use the Open vSwitch installed at ``prefix``; None changes nothing."""
    if prefix is not None:
        os.environ[_OVS_PREFIX] = prefix


def patched_ovs() -> str | None:
    """Return where an Open vSwitch with the patches of ``ovs-patches/`` is: as told, or as ``make ovs`` leaves it."""
    built = sorted(Path(sys.executable).parents[1].glob("ovs-*/sbin/ovs-vswitchd"))  # the oldest is Debian's version
    return os.environ.get(_OVS_PREFIX) or next((str(each.parents[1]) for each in built), None)


def _ovs_prefix() -> list[Path]:
    named = os.environ.get(_OVS_PREFIX)
    if not named:
        return []
    prefix = Path(named)
    if not (prefix / "sbin" / "ovs-vswitchd").exists():
        raise StartError(f"{_OVS_PREFIX} is {named}: there is no {prefix}/sbin/ovs-vswitchd; `make ovs` builds one")
    return [prefix]


def environment() -> dict[str, str]:
    """Return the environment of the lab's processes, with PATH, and with this package for ``python -m lab...``."""
    package_home = str(Path(__file__).resolve().parent.parent)
    others = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each != package_home]
    return {**os.environ, "PATH": search_path(), "PYTHONPATH": os.pathsep.join([package_home, *others])}


def find_program(name: str) -> str:
    """Return the path of an installed program.

    Raises:
        StartError: it is not installed.
    """
    found = shutil.which(name, path=search_path())
    if found is None:
        raise StartError(f"{name} is not installed; {_PACKAGES}")
    return found


def typed(name: str) -> str:
    """Return a program of this project as a person types it in this directory: by its name, if PATH finds it."""
    own = Path(sys.executable).parent / name
    found = shutil.which(name)
    if found is not None and Path(found).resolve() == own.resolve():
        return name
    here = Path.cwd()
    return str(own.relative_to(here) if own.is_relative_to(here) else own)


def find_schema() -> Path:
    """Return the path of the schema installed with Open vSwitch.

    Raises:
        StartError: it is in none of the usual places.
    """
    own = [str(prefix / "share" / "openvswitch") for prefix in _ovs_prefix()]
    places = [*own, os.environ.get("OVS_PKGDATADIR"), "/usr/share/openvswitch", "/usr/local/share/openvswitch"]
    candidates = [Path(place) / _SCHEMA for place in places if place]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    places_text = ", ".join(str(each.parent) for each in candidates)
    raise StartError(f"no {_SCHEMA} in {places_text}; set OVS_PKGDATADIR, or {_PACKAGES}")


def find_example(name: str) -> Path:
    """Return the path of a controller of ``examples/``: in the clone, else where the package installed it.

    Raises:
        StartError: it is in neither.
    """
    clone = Path(__file__).resolve().parents[1] / "examples" / name
    if clone.exists():
        return clone
    try:
        installed = files(_PROJECT) or []
    except PackageNotFoundError:
        installed = []
    for each in installed:
        if each.parts[-2:] == ("examples", name):
            return Path(os.path.normpath(each.locate()))
    raise StartError(f"the example {name} is neither in {clone.parent} nor in the installed package {_PROJECT}")
