"""Solvers behind one interface: they take a program and a goal, and return an ``Answer``.

``cbc`` (PuLP) is the reference, ``highs`` the fast general solver, ``cpsat`` runs in a separate process if OR-Tools is
installed, ``lagcut`` is this project's kernel. No answer is trusted: placements are checked against the equations in
whole numbers, and bounds carry proofs (``certify``).
"""

from placement.backends.base import Answer, Backend, Status

__all__ = ["Answer", "Backend", "Status", "backend", "names"]


def names() -> tuple[str, ...]:
    """Name the backends that can run here, the reference first."""
    from placement.backends import cpsat

    found = ("cbc", "highs", "lagcut", "lagcut-python")
    return (*found, "cpsat") if cpsat.installed() else found


def backend(name: str) -> Backend:
    """Return the backend with this name.

    Raises:
        BackendError: unknown name, or a missing dependency.
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
        raise BackendError(f"unknown backend {name!r}; expected one of {', '.join(names())}")
    return made()
