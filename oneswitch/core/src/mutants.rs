//! Seeded faults: what a wrong oneswitchd would do, so that a test proves that the oracle sees each of them
//! (tests/oracle/test_mutants.py; docs/oracle.md, "Mutants").
//!
//! With the feature `mutants`, which no released binary has, the environment variable `ONESWITCH_MUTANT` chooses one. Without the
//! feature [`mutant`] is a constant, and nothing of them is left.

macro_rules! faults {
    ($($fault:ident = $name:literal: $what:literal;)*) => {
        /// Where in the source one stands, it says what goes wrong there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $what] $fault,)*
        }

        #[cfg(feature = "mutants")]
        const NAMES: &[(&str, Fault)] = &[$(($name, Fault::$fault),)*];
    };
}

faults! {
    BarrierAtOnce = "barrier-at-once": "A barrier is answered before what came before it is done.";
    ErrorSwallowed = "error-swallowed": "A switch's error is logged, and that is all.";
    ErrorXid = "error-xid": "An error has another xid than the message that it is about.";
    ErrorInnerXid = "error-inner-xid": "The message in an error has the xid that the switches got.";
    ErrorTruncated = "error-truncated": "An error carries only the first 64 bytes of the message.";
    ErrorOvertakes = "error-overtakes": "An error leaves before the replies to earlier messages.";
    EchoWithoutData = "echo-without-data": "An echo reply is empty.";
    SlaveWrites = "slave-writes": "A slave may change the switch.";
    SlaveIsTold = "slave-is-told": "A slave gets what only a master or an equal gets.";
    AsyncMaskIgnored = "async-mask-ignored": "A controller gets what it has masked.";
    RefusedStays = "refused-stays": "A message that the switches refused stays in the truth.";
    ModifyAdds = "modify-adds": "A modify that finds no rule adds one, as in OpenFlow 1.0.";
    OverlapIgnored = "overlap-ignored": "CHECK_OVERLAP refuses nothing.";
    ResetCountsIgnored = "reset-counts-ignored": "RESET_COUNTS does not reset what vanished copies have counted.";
    StrictDeleteLoose = "strict-delete-loose": "DELETE_STRICT takes rules of other matches and priorities out of the truth.";
    OutPortIgnored = "out-port-ignored": "The filter out_port is ignored.";
    OutGroupIgnored = "out-group-ignored": "The filter out_group is ignored.";
    RulesOutliveGroup = "rules-outlive-group": "Rules that refer to a group stay when it is deleted.";
    DeleteMissesSwitch = "delete-misses-switch": "A rule of several switches outlives its delete on one of them.";
    PortRuleAtHub = "port-rule-at-hub": "A rule that matches in_port is installed at the hypervisor, wherever the port is.";
    TableOffByOne = "table-off-by-one": "A rule of table 1 or later is installed one table later.";
    MetersAtHub = "meters-at-hub": "Meters are made at the hypervisor only.";
    FragmentsAtOneSwitch = "fragments-at-one-switch": "How fragments are treated is told to one switch only.";
    PacketOutAtHub = "packet-out-at-hub": "A packet-out runs at the hypervisor, whatever its in_port.";
    PacketInEdgePort = "packet-in-edge-port": "A packet-in's in_port is the number of the interface on its switch.";
    PacketInCookie = "packet-in-cookie": "A packet-in has lost its rule's cookie.";
    FlowStatsFirst = "flow-stats-first": "A rule's counters are those of the first switch that answers.";
    AggregateFirst = "aggregate-first": "Aggregated counters are those of the first switch that answers.";
    TableStatsFirst = "table-stats-first": "A table's counters are those of the first switch that answers.";
    GroupStatsFirst = "group-stats-first": "A group's counters are those of the first switch that answers.";
    MeterStatsFirst = "meter-stats-first": "A meter's counters are those of the first switch that answers.";
    MoreFlagLost = "more-flag-lost": "The first part of a switch's answer is taken for all of it.";
    HiddenGroupShown = "hidden-group-shown": "The flood group is among the groups' counters.";
    FloodDumpedAsGroup = "flood-dumped-as-group": "A rule that floods is shown with the hidden group.";
    CopyFlagsShown = "copy-flags-shown": "Statistics show the flags of a copy, which has SEND_FLOW_REM if it has a timeout.";
    FirstRemovedWins = "first-removed-wins": "The first flow_removed of a copy is passed on, and the others' counters are lost.";
    RemovedTwice = "removed-twice": "Each copy's flow_removed is passed on.";
    RemovedReason = "removed-reason": "The reason of every flow_removed is DELETE.";
    IdleByReplica = "idle-by-replica": "Each copy of a rule has its idle timer: the first that is idle ends the rule.";
    RulesMissNewSwitch = "rules-miss-new-switch": "A switch that a port moves to does not get the port's rules.";
    GroupsMissNewSwitch = "groups-miss-new-switch": "A switch that becomes an executor does not get the groups.";
    OldRulesRemain = "old-rules-remain": "After a move the old copies stay.";
    CountersLostOnMove = "counters-lost-on-move": "What old copies of rules counted is forgotten when a port moves.";
    PortStatsLostOnMove = "port-stats-lost-on-move": "What its old interface counted is forgotten when a port moves.";
    PortStatusLost = "port-status-lost": "Controllers are not told of ports.";
    PortModEchoed = "port-mod-echoed": "The sender of a port-mod is told of its effect.";
    PipelineTwice = "pipeline-twice": "What arrives over PCIe enters the pipeline again instead of leaving by its port.";
    WrongFlowId = "wrong-flow-id": "A packet crosses PCIe with the flow-id of another port.";
    TagLeaked = "tag-leaked": "A packet leaves with its flow-id.";
    DeadPortWatched = "dead-port-watched": "A fast-failover group takes a port that is down for a live one.";
    TransitLost = "transit-lost": "The hypervisor does not pass on what one sNIC sends to another.";
    TenantTagLost = "tenant-tag-lost": "A tagged packet gets its flow-id without being parsed anew.";
    FloodTagLeaked = "flood-tag-leaked": "A flooded packet leaves with its flow-id.";
    FloodTwice = "flood-twice": "A flood reaches ports of other switches twice.";
    FloodMissesRemote = "flood-misses-remote": "A flood stays on its switch.";
    FloodToInPort = "flood-to-in-port": "A flood also goes back to where it came from.";
    FloodInSetAsGroup = "flood-in-set-as-group": "A flood in an action set becomes a group, which wins over other outputs.";
}

/// Whether `fault` is to be made.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn mutant(_fault: Fault) -> bool {
    false
}

/// Whether `fault` is to be made.
#[cfg(feature = "mutants")]
pub fn mutant(fault: Fault) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Fault>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(chosen) == Some(fault)
}

#[cfg(feature = "mutants")]
fn chosen() -> Option<Fault> {
    let name = std::env::var("ONESWITCH_MUTANT").ok()?;
    let found = NAMES.iter().find(|(each, _)| *each == name);
    if found.is_none() {
        tracing::error!(target: "core", name, "there is no such mutant");
        std::process::exit(2);
    }
    found.map(|(_, fault)| *fault)
}
