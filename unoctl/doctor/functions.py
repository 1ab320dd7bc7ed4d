"""What nfagent says of its network functions: those with an error, and migrations that wait."""

import os
from collections.abc import Iterator

from unoctl.doctor.facts import ASK_TIMEOUT_S
from unoctl.doctor.findings import Finding, Topic
from unoctl.errors import ConfigChoiceError
from unoctl.nf import finding
from unoctl.nf.client import NfClient

TOPIC = Topic("network functions")

_MOST = 500


def functions(lab: str | None) -> Iterator[Finding]:
    """Each instance that has an error, and each migration that cannot go on; nothing where there is no nfagent."""
    try:
        api = finding.address(None, lab, os.environ)
    except ConfigChoiceError:
        return
    with NfClient(api, os.environ.get("NFAGENT_TOKEN"), ASK_TIMEOUT_S) as client:
        instances, moves = client.instances(), client.migrations(None, _MOST)
    names = {each["id"]: each["name"] for each in instances}
    broken = [each for each in instances if each["status"] == "error"]
    for each in broken:
        yield TOPIC.fail(each["name"], each["reason"] or "error", f"see: unoctl nf show {each['name']}")
    waiting = [each for each in moves if each["outcome"] is None and each["report"].get("waits")]
    for each in waiting:
        name = names.get(each["instance"], each["instance"])
        said = f"its migration to {each['target']} waits in step {each['step']}: {each['report']['waits']}"
        yield TOPIC.fail(name, said, "bring back what it waits for; it then goes on by itself")
    if not broken and not waiting:
        yield TOPIC.ok("nfagent", f"{len(instances)} network function(s), none with an error")
