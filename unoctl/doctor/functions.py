"""Network functions: their faults, from nfagent."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from server.errors import ConfigChoiceError, ConfigError, ServerError
from unoctl.doctor.facts import ASK_TIMEOUT_S, Facts
from unoctl.doctor.findings import Finding, Topic
from unoctl.doctor.mending import restart_oneswitchd, restart_switch
from unoctl.nf import finding
from unoctl.nf.client import Json, NfClient

TOPIC = Topic("network functions")
_MEND = {
    "instance": "restore what it waits for; details: unoctl nf show {name}",
    "disk": "free some space on the disk of nfagent's state directory",
}


def functions(
    facts: Facts,
    lab: str | None,
    environment: Mapping[str, str] = os.environ,
    system_config: Path = finding.SYSTEM_CONFIG,
) -> Iterator[Finding]:
    """List faults that need a person; none if nfagent is unknown, or belongs to another server."""
    try:
        api = finding.address(None, lab, environment, system_config)
    except ConfigChoiceError:
        return
    try:
        with NfClient(api, environment.get("NFAGENT_TOKEN"), ASK_TIMEOUT_S, environment.get(finding.CACERT)) as client:
            if not client.manages(facts.server.oneswitchd.datapath_id):
                return
            faults = client.faults()
    except ConfigError as error:
        yield TOPIC.fail("nfagent", str(error), "correct $NFAGENT_API or agent.toml; see: unoctl nf --help")
        return
    except ServerError as error:
        yield TOPIC.fail("nfagent", str(error), "start it: nfagent serve; deployed functions keep running meanwhile")
        return
    for fault in faults:
        yield _finding(facts, fault)
    if not faults:
        yield TOPIC.ok("nfagent", f"{api} answers and knows of no faults")


def _finding(facts: Facts, fault: Json) -> Finding:
    say = TOPIC.fail if fault["gravity"] == "critical" else TOPIC.warn
    if fault["about"] == "location":
        mend = f"{restart_switch(facts, fault['name'])}; if only its link is down, see links above"
    elif fault["about"] == "database":
        mend = restart_switch(facts, fault["name"], "ovsdb-server")
    elif fault["about"] == "oneswitchd":
        mend = restart_oneswitchd(facts)
    else:
        mend = _MEND.get(fault["about"], "see unoctl nf list").format(name=fault["name"])
    return say(fault["name"], f"{fault['text']} (since {fault['since']})", mend)
