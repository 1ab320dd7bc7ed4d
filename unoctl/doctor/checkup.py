"""The order of the checks, and the report."""

from collections.abc import Callable, Iterator

from rich.text import Text

from server.errors import ServerError
from unoctl.doctor import daemon, drift, functions, machine, wiring
from unoctl.doctor.facts import Facts
from unoctl.doctor.findings import Finding, Level, Topic
from unoctl.render import STYLES, View, tree_text
from unoctl.session import Session

TOPIC = Topic("configuration")
MACHINE_CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    machine.namespaces,
    machine.devices,
    machine.tools,
    machine.buffers,
)
SERVER_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    wiring.sockets,
    wiring.bridges,
    wiring.links,
    daemon.daemon,
    drift.drift,
)


def run(session: Session) -> View:
    """Run every possible check; the exit status is 1 if one fails."""
    with session.output.progress("checking the machine") as progress:
        findings = list(_findings(session, progress.update))
    failed = any(finding.level is Level.FAIL for finding in findings)
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    data = {
        "findings": [finding.as_json() for finding in findings],
        "counts": {str(level): count for level, count in counts.items()},
    }
    return View(data, tree_text(_lines(findings, counts)), 1 if failed else 0)


def _findings(session: Session, say: Callable[[str], None]) -> Iterator[Finding]:
    for check in MACHINE_CHECKS:
        yield from _guarded("machine", check)
    try:
        server = session.server
    except ServerError as error:
        yield TOPIC.fail("server.toml", str(error), "see docs/architecture.md for the file, or start a lab: uno-lab up")
        return
    yield TOPIC.ok("server.toml", f"{server.path} ({session.found.reason}), {len(server.switch)} switches")
    facts = Facts(server)
    for check in SERVER_CHECKS:
        say(f"checking {check.__name__}")
        yield from _guarded(check.__name__, lambda check=check: check(facts))
    say("checking network functions")
    yield from _guarded("network functions", lambda: functions.functions(facts, session.lab))


def _guarded(topic: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Report a failed check as a finding, and continue with the others."""
    try:
        yield from check()
    except ServerError as error:
        yield Topic(topic).fail("this check", str(error), "repair the faults above first, then run doctor again")


def _lines(findings: list[Finding], counts: dict[Level, int]) -> Iterator[tuple[int, Text | str]]:
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            topic = finding.topic
            yield 0, Text(topic, style="bold")
        level = Text(f"{finding.level:<5}", style=STYLES[str(finding.level)])
        yield 1, Text.assemble(level, f"{finding.subject}: {finding.message}")
        if finding.mend:
            yield 2, Text(f" -> {finding.mend}", style="cyan")
    yield 0, ", ".join(f"{count} {level}" for level, count in counts.items())
