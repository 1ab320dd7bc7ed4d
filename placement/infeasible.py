"""Reports for infeasible problems: the least growth of limits, the conflict, and a proof."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from placement.backends import Answer, Status
from placement.backends.highs import HighsBackend, least_slack
from placement.backends.lagcut import Lagcut
from placement.certify import FEASIBLE, Certificate, held
from placement.errors import CertificateError
from placement.formulate import Program, Row, formulate
from placement.labels import Dual
from placement.model import HOST, NF, Mode, Problem, Sample
from placement.proof import Walk

SECONDS = 20.0
"""Time limit for each step of a diagnosis."""


@dataclass(frozen=True)
class Least:
    """How far one kind of limit would have to grow, with all others unchanged.

    Attributes:
        what: ``pcie``, or a resource and where, for example ``cores of the sNICs``.
        by: the least growth of every limit of that kind; None: no growth suffices.
        limits: per limit that would be exceeded, its name and the use in a placement that then exists.
        certificate: proof that a growth of ``by - 1`` does not suffice.
    """

    what: str
    by: int | None
    limits: tuple[tuple[str, int], ...]
    certificate: Certificate | None


@dataclass(frozen=True)
class Cut:
    """A PCIe limit below the least possible traffic.

    Attributes:
        limit: its name.
        allowed: its value in Mbps.
        mbps: the least traffic on it.
        edges: the demands on it in that placement: source, target, Mbps.
    """

    limit: str
    allowed: int
    mbps: int
    edges: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Infeasibility:
    """Why no placement satisfies all limits.

    Attributes:
        certificate: proof; its goal is ``feasible``, or ``host`` with a bound above what any placement costs.
        backend: which backend found out.
        least: which growth of each kind of limit would make a placement possible.
        cuts: PCIe limits below the minimum cut.
        conflict: a minimal set of limits and pins that cannot be satisfied together: without any one of them a
            placement exists.
    """

    certificate: Certificate | None
    backend: str
    least: tuple[Least, ...]
    cuts: tuple[Cut, ...]
    conflict: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"no placement satisfies all limits; in conflict: {', '.join(self.conflict)}"]
        for least in self.least:
            if least.by is not None:
                limits = ", ".join(f"{name} to {value}" for name, value in least.limits)
                parts.append(f"possible with {least.what} + {least.by} ({limits})")
        parts += [f"{cut.limit} is {cut.allowed}, and at least {cut.mbps} Mbps cross it" for cut in self.cuts]
        return "; ".join(parts)

    def check(self, problem: Problem) -> None:
        """Verify without a solver that no placement exists.

        Raises:
            CertificateError: this is not proven.
        """
        if self.certificate is None:
            raise CertificateError(f"{self.backend!r} calls it infeasible without a certificate")
        if self.certificate.goal != FEASIBLE:
            form = formulate(problem).goal(self.certificate.goal)
            most = form.constant + sum(max(coefs) for coefs in form.choice.values()) + sum(form.cross.values())
            if self.certificate.bound <= most:
                raise CertificateError(f"the bound {self.certificate.bound} does not exceed {most}")
        self.certificate.check(problem)


def diagnose(problem: Problem, program: Program, answer: Answer) -> Infeasibility:
    """Compute the report for a problem that a backend called infeasible.

    Raises:
        BackendError: a step took longer than ``SECONDS``.
    """
    certificate = _refute(program, ()) or _from_answer(answer)
    return Infeasibility(
        certificate,
        answer.backend,
        tuple(_least(program, what, rows) for what, rows in _kinds(program).items()),
        tuple(_cuts(problem, program)),
        _conflict(problem, program),
    )


def _from_answer(answer: Answer) -> Certificate | None:
    if answer.dual is None or answer.bound is None:
        return None
    return Certificate("host", answer.bound, (), (), answer.dual, answer.steps)


def _refute(program: Program, widened: tuple[tuple[str, int], ...]) -> Certificate | None:
    """Prove that the limits, some of them widened, admit no placement; None if the kernel finds no proof in time."""
    if not program.names:
        return _empty(program, widened)
    answer = Lagcut().minimise(held(program, (), widened), FEASIBLE, SECONDS)
    if answer.status != Status.INFEASIBLE or answer.dual is None:
        return None
    return Certificate(FEASIBLE, 1, (), widened, answer.dual, answer.steps)


def _empty(program: Program, widened: tuple[tuple[str, int], ...]) -> Certificate | None:
    broken = {row.name for row in held(program, (), widened).broken(())}
    weights = tuple(int(row.name in broken) for row in program.rows)
    dual = Dual(weights, ())
    return Certificate(FEASIBLE, 1, (), widened, dual, (Walk(dual, ()),)) if broken else None


def _kinds(program: Program) -> dict[str, list[int]]:
    """Group limits that would grow together: all PCIe limits; each resource of the sNICs; each of the host."""
    found: dict[str, list[int]] = {}
    for r, row in enumerate(program.rows):
        if row.kind == "pcie":
            found.setdefault("pcie", []).append(r)
        elif row.kind == "resource":
            resource, _, where = row.name.partition(" of ")
            place = "the host" if where.startswith("the host") else "the sNICs"
            found.setdefault(f"{resource} of {place}", []).append(r)
    return found


def _least(program: Program, what: str, rows: list[int]) -> Least:
    solved = least_slack(program, frozenset(rows), SECONDS)
    if solved is None:
        return Least(what, None, (), None)
    by, modes = solved
    uses = [(program.rows[r].name, program.value(program.rows[r].form, modes)) for r in rows]
    over = tuple((name, use) for (name, use), r in zip(uses, rows, strict=True) if use > program.rows[r].limit)
    widened = tuple((program.rows[r].name, by - 1) for r in rows) if by else ()
    return Least(what, by, over, _refute(program, widened) if by else None)


def _cuts(problem: Problem, program: Program) -> Iterable[Cut]:
    for row in program.rows:
        if row.kind != "pcie":
            continue
        alone = replace(program, rows=(), host=row.form)
        answer = HighsBackend().minimise(alone, "host", SECONDS)
        if answer.modes is not None and answer.bound is not None and answer.bound > row.limit:
            where = problem.fixed() | {
                name: sites[m] for name, sites, m in zip(program.names, program.sites, answer.modes, strict=True)
            }
            yield Cut(row.name, row.limit, program.value(row.form, answer.modes), _edges(problem, row, where))


def _edges(problem: Problem, row: Row, where: dict[str, int]) -> tuple[tuple[str, str, int], ...]:
    """Return the demands on a PCIe link, in the directions that the row limits, at the row's moment."""
    words = row.name.split()
    direction, nic = words[1], int(words[4])
    moment = problem.moments()[int(words[7]) if "sample" in words else 0]
    found: list[tuple[str, str, int]] = []
    for demand in moment.demands:
        source, target = where[demand.source], where[demand.target]
        up, down = source == nic != target, target == nic != source
        if (up and direction != "down") or (down and direction != "up"):
            found.append((demand.source, demand.target, demand.mbps))
    return tuple(found)


def _conflict(problem: Problem, program: Program) -> tuple[str, ...]:
    """Find a minimal set of limits and pins that cannot hold together (QuickXplain)."""
    everywhere = range(len(problem.nics) + 1)
    pins = [f"pin of {nf.name}" for nf in problem.nfs if {mode.location for mode in nf.modes} != set(everywhere)]
    rows = [row.name for row in program.rows]
    known: dict[frozenset[str], bool] = {}

    def conflicts(names: Sequence[str]) -> bool:
        key = frozenset(names)
        if key not in known:
            known[key] = not _possible(problem, key)
        return known[key]

    if conflicts(rows):
        return tuple(_minimal([], rows, conflicts))
    return tuple(_minimal([], [*rows, *pins], conflicts))


def _minimal(kept: list[str], left: list[str], conflicts: Callable[[Sequence[str]], bool]) -> list[str]:
    """Find a minimal part of ``left`` that conflicts together with ``kept``."""
    if kept and conflicts(kept):
        return []
    if len(left) <= 1:
        return left
    half = len(left) // 2
    first, second = left[:half], left[half:]
    from_second = _minimal([*kept, *first], second, conflicts)
    return _minimal([*kept, *from_second], first, conflicts) + from_second


def _possible(problem: Problem, kept: frozenset[str]) -> bool:
    """Tell whether a placement satisfies the kept limits and pins; unpinned NFs may run anywhere at no cost."""
    nfs = [nf if f"pin of {nf.name}" in kept else _unpinned(nf, len(problem.nics)) for nf in problem.nfs]
    freed = replace(problem, nfs=tuple(nfs), window=tuple(_pad(sample, nfs) for sample in problem.window))
    program = formulate(freed)
    program = replace(program, rows=tuple(row for row in program.rows if row.name in kept))
    return HighsBackend().minimise(program, FEASIBLE, SECONDS).status == Status.OPTIMAL


def _unpinned(nf: NF, nics: int) -> NF:
    missing = set(range(HOST, nics + 1)) - {mode.location for mode in nf.modes}
    return replace(nf, modes=nf.modes + tuple(Mode(k, {}) for k in sorted(missing)))


def _pad(sample: Sample, nfs: Sequence[NF]) -> Sample:
    """Return the sample with no use in modes that it does not know."""
    use = {
        nf.name: (*sample.use[nf.name], *({} for _ in range(len(nf.modes) - len(sample.use[nf.name]))))
        for nf in nfs
        if nf.name in sample.use
    }
    return replace(sample, use=use)
