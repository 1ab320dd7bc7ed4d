"""Solvers behind one interface: a program and a goal go in, an ``Answer`` comes out.

``cbc`` (PuLP) is the reference, ``highs`` the fast general solver, ``cpsat`` runs in a process of its own if
OR-Tools is
installed, ``lagcut`` is this project's kernel. No answer is believed as it comes: placements are put into the
equations in whole numbers, and bounds carry proofs (``certify``).
"""

from placement.backends.base import Answer, Backend, Status

__all__ = ["Answer", "Backend", "Status", "backend", "names"]


def names() -> tuple[str, ...]:
    """Backends that can run here, the reference first."""
    from placement.backends import cpsat

    found = ("cbc", "highs", "lagcut", "lagcut-python")
    return (*found, "cpsat") if cpsat.installed() else found


def backend(name: str) -> Backend:
    """The backend of this name.

    Raises:
        BackendError: there is none, or what it needs is not installed.
    """
    from placement.backends import cbc, cpsat, highs, lagcut
    from placement.errors import BackendError

    if name == "cpsat" and not cpsat.installed():
        raise BackendError("backend 'cpsat' needs OR-Tools, which is not installed: pip install ortools")
    made = {
        "cbc": cbc.Cbc,
        "highs": highs.HighsBackend,
        "cpsat": cpsat.CpSat,
        "lagcut": lagcut.Lagcut,
        "lagcut-python": lagcut.LagcutPython,
    }.get(name)
    if made is None:
        raise BackendError(f"no backend is called {name!r}; there are {', '.join(names())}")
    return made()
