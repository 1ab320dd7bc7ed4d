"""Rules, groups and meters that differed from what oneswitchd wants, as its audit finds and repairs them."""

from collections.abc import Iterator

from server.errors import ApiError
from server.oneswitchd.answers import Audit
from server.oneswitchd.client import Client
from unoctl.doctor.facts import ASK_TIMEOUT_S, Facts
from unoctl.doctor.findings import Finding, Topic
from unoctl.doctor.mending import restart_oneswitchd, restart_switch

TOPIC = Topic("drift")
SHOWN = 3


def drift(facts: Facts) -> Iterator[Finding]:
    """Have oneswitchd audit the bridges of every switch."""
    try:
        with Client.of(facts.server.oneswitchd, ASK_TIMEOUT_S) as client:
            audits = client.audit()
    except ApiError as error:
        yield TOPIC.warn("rules", f"not compared: {error}", restart_oneswitchd(facts))
        return
    for audit in audits:
        yield _finding(audit, restart_switch(facts, audit.switch))


def _finding(audit: Audit, restart: str) -> Finding:
    subject, found = f"{audit.switch} {audit.bridge}", audit.found
    if not audit.audited and audit.state == "up":
        mend = f"{restart}; the log of its ovs-vswitchd says why it does not answer, or refuses oneswitchd's requests"
        return TOPIC.fail(subject, "not compared: it is connected, but has not answered in time", mend)
    if not audit.audited:
        return TOPIC.warn(subject, f"not compared: it is {audit.state}", restart)
    if found is None:
        return TOPIC.ok(subject, "rules, groups and meters are as oneswitchd wants them")
    if found.again:
        mend = "find the program that keeps changing this bridge; see oneswitchd's log for refusals of the switch"
        return TOPIC.fail(subject, f"repaired repeatedly: {_some(found.again, len(found.again))}", mend)
    message = f"found and repaired {found.age_s} s ago: {_some(found.named, found.changes)}"
    return TOPIC.warn(subject, message, "find the program that changed this bridge; only oneswitchd may write to it")


def _some(names: tuple[str, ...], count: int) -> str:
    more = f" and {count - SHOWN} more" if count > SHOWN else ""
    return "; ".join(names[:SHOWN]) + more
