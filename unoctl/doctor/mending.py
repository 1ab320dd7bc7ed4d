"""Commands that bring back what does not answer: of uno-lab in a lab, else of systemd."""

from pathlib import Path

from unoctl.doctor.facts import Facts

_LAB_FILE = "lab.json"
_DEFAULT_LAB = "uno"


def restart_switch(facts: Facts, switch: str, daemon: str | None = None) -> str:
    """Return the command that restarts or continues the Open vSwitch of a switch, or one daemon of it."""
    if (lab := _lab(facts)) is not None:
        return _in_lab(switch if daemon in (None, "ovs-vswitchd") else f"{switch}/{daemon}", lab)
    return f"on the machine of {switch}: systemctl restart openvswitch-switch (Red Hat: openvswitch)"


def restart_oneswitchd(facts: Facts) -> str:
    """Return the command that starts oneswitchd, also if it hangs."""
    by_hand = f"oneswitchd --config {facts.server.path}"
    if (lab := _lab(facts)) is not None:
        return f"{by_hand}; if it hangs: {_in_lab('oneswitchd', lab)}"
    return f"systemctl restart oneswitchd, or {by_hand}"


def _lab(facts: Facts) -> str | None:
    folder = Path(facts.server.path).parent
    return folder.name if (folder / _LAB_FILE).exists() else None


def _in_lab(part: str, lab: str) -> str:
    return f"uno-lab start {part}" + ("" if lab == _DEFAULT_LAB else f" --name {lab}")
