"""oneswitchd's REST answers, as in docs/architecture.md.

Unknown members are kept and printed with ``--format=json``: a newer oneswitchd may report more.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from server.names import HOME


class Answer(BaseModel):
    """Base: immutable, and tolerant of unknown members."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Controller(Answer):
    """One controller connection. ``messages_in`` counts messages from the controller."""

    id: int | str | None
    target: str
    peer: str | None = None
    state: str
    role: str | None = None
    messages_in: int = 0
    messages_out: int = 0
    packet_ins_dropped: int = 0
    last_error: str | None = None


class BridgeState(Answer):
    """oneswitchd's connection to one bridge; ``state`` is ``up``, ``syncing``, ``silent`` (it hangs) or ``down``."""

    target: str
    state: str
    last_error: str | None = None


class LinkState(Answer):
    """The PCIe link of an sNIC: interface names at both ends.

    ``type``: how it carries flow-ids, ``vlan`` or ``pcie``; None: its ends differ, or are not known. ``reason``: why.
    """

    hypervisor: str
    local: str
    state: str
    type: str | None = None
    reason: str = ""


class SwitchState(Answer):
    """One switch as oneswitchd sees it.

    ``repairs`` counts repaired external changes; ``misses`` says whether packets that meet no rule come from it, or is
    None if no controller wants them.
    """

    name: str
    hub: bool = False
    virt: BridgeState
    edge: BridgeState
    link: LinkState | None = None
    physical_flows: int = 0
    physical_groups: int = 0
    physical_meters: int = 0
    edge_flows: int = 0
    repairs: int = 0
    misses: str | None = None

    @property
    def is_silent(self) -> bool:
        """Tell whether its Open vSwitch is connected, but does not answer."""
        return self.virt.state == self.edge.state == "silent"


class Gathered(Answer):
    """Ports that have left their executors for ``at``, because all ports share state.

    ``reason`` says which, ``choice`` why there.
    """

    at: str
    ports: tuple[int, ...] = ()
    reason: str = ""
    choice: str = ""


class VirtualState(Answer):
    """The one switch that controllers see; ``executors`` are the switches whose ``virt`` runs pipelines."""

    ports: int = 0
    flows: int = 0
    groups: int = 0
    meters: int = 0
    executors: tuple[str, ...] = ()
    gathered: Gathered | None = None


class Offload(Answer):
    """The offloaded flows of a virtual port: what rules carried, and refused installs by reason."""

    port: int
    writer: bool = False
    flows: int = 0
    targets: int = 0
    packets: int = 0
    bytes: int = 0
    refused: dict[str, int] = {}


class Status(Answer):
    """``GET /v1/status``."""

    version: str
    datapath_id: str
    uptime_s: float = 0
    listen: tuple[str, ...] = ()
    api: str = ""
    controllers: tuple[Controller, ...] = ()
    switches: tuple[SwitchState, ...] = ()
    virtual: VirtualState = VirtualState()
    refused: int = 0
    offload: tuple[Offload, ...] = ()


class PortMove(Answer):
    """A move in progress: its destination and its stage.

    ``old_paths`` has the switch of each path to the interface that the port leaves.
    """

    switch: str
    interface: str
    stage: str
    executor: str = HOME
    old_paths: tuple[str, ...] = ()


class VirtualPort(Answer):
    """A virtual port: its number, its home and interface, its executor, and its flow-ids.

    ``executor`` is the chosen one, ``home`` or a switch, and ``executes_at`` the resulting switch. ``flow_id``,
    DELIVER(V), leads to it; ``ingress_id``, INGRESS(V), from it to its executor. ``owner``, as
    ``nfagent/PROJECT/NAME``, is the program responsible for it: others cannot delete or move it by mistake.
    """

    number: int
    name: str
    switch: str
    interface: str
    executor: str = HOME
    executes_at: str | None = None
    flow_id: int | None = None
    ingress_id: int | None = None
    state: str = "down"
    reason: str | None = None
    config: tuple[str, ...] = ()
    mac: str | None = None
    owner: str | None = None
    move: PortMove | None = None

    @property
    def executing(self) -> str:
        """Return the switch that runs this port's pipeline."""
        return self.executes_at or self.switch


class Markers(Answer):
    """Frames that were sent down old paths: the switch that each was sent from."""

    sent_from: tuple[str, ...] = Field(alias="from")


class Findings(Answer):
    """Repaired external changes of a bridge; ``named``: the first ones; ``again``: those repaired before, too."""

    age_s: int
    changes: int
    named: tuple[str, ...]
    again: tuple[str, ...]


class Audit(Answer):
    """A bridge after an audit; ``found``: the latest findings of the last five minutes."""

    switch: str
    bridge: str
    state: str
    audited: bool
    found: Findings | None


class Refusal(Answer):
    """An error answer (RFC 9457)."""

    status: int
    code: str
    detail: str = ""
    title: str = ""


Stage = Literal["prepared", "flipped", "done"]
