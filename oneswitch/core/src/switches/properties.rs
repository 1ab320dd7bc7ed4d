//! The properties of groups and rules that OpenFlow 1.3 lacks: how a select group selects buckets, the numbers of these, and meters that are not
//! before all actions. A connection of OpenFlow 1.5 to each `virt` says it, once a move or a comparison has written the copy without it.

use super::incomplete::Incomplete;
use super::rounds::Rounds;
use crate::api::{Bridge, Destination, SwitchIndex};
use crate::layout::messages::{group_with_properties, messages_of_group};
use crate::layout::translate::copy_of;
use crate::model::hidden::HiddenGroups;
use crate::model::rule::RuleKey;
use crate::model::truth::Truth;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use crate::wire::wire;
use openflow13::openflow15::{
    decode_descriptions, decode_error, encode_description_request, DescribedGroup,
};
use openflow13::{kind, FlowMod, FlowModCommand, GroupMod, Header, Message};
use tracing::error;

#[derive(Debug, Default)]
pub struct GroupProperties {
    pub rounds: Rounds<DescribedGroup>,
    /// Whether some group has had such properties, or a rule such meters.
    pub are_needed: bool,
    /// Rules that lack meters at a switch.
    pub rules: Incomplete,
}

impl GroupProperties {
    fn end(&mut self, switch: SwitchIndex) {
        self.rounds.end(switch);
        self.rules.end(switch);
    }
}

impl Switches {
    /// Makes these switches get the properties of their groups.
    pub fn require_properties(&mut self, switches: SwitchSet) {
        if self.properties.are_needed {
            self.properties.rounds.require(switches);
        }
    }

    pub fn properties_up(&mut self, switch: SwitchIndex) {
        self.properties.rounds.link_up(switch);
        self.require_properties(SwitchSet::of(switch));
    }

    /// Forgets a connection; tells whether messages on it have no verdict.
    pub fn properties_down(&mut self, switch: SwitchIndex) -> bool {
        self.outbox.discard(Destination::Properties(switch));
        self.properties.rounds.link_down(switch);
        self.ask_again_without_newer(switch, Bridge::Virt);
        self.properties.rules.link_down(switch);
        self.require_properties(SwitchSet::of(switch));
        self.verdicts.forget_newer(switch)
    }

    /// Tells whether a switch will get the properties of its groups soon.
    pub fn tells_properties_to(&self, switch: SwitchIndex) -> bool {
        let is_up = self.list[switch].virt.is_up();
        self.properties.rounds.include(switch, is_up)
    }

    pub fn tells_properties(&self) -> bool {
        (0..self.list.len()).any(|switch| self.tells_properties_to(switch))
    }

    /// Begins the rounds that are due, unless changes are in flight.
    pub fn begin_rounds(&mut self) {
        if self.verdicts.changes_in_flight() {
            return;
        }
        for switch in self.properties.rounds.startable(self.up()) {
            let awaited = self.fresh_xid();
            let request = encode_description_request(awaited);
            self.outbox.put(Destination::Properties(switch), &request);
            self.properties.rounds.begin(switch, awaited);
        }
    }

    /// Handles a message on such a connection.
    pub fn properties_told(
        &mut self,
        truth: &Truth,
        server: &Server,
        switch: SwitchIndex,
        frame: &[u8],
    ) {
        let Some(header) = Header::parse(frame) else {
            return;
        };
        if let Some(told) = decode_error(frame) {
            let name = &self.list[switch].name;
            error!(target: "southbound", switch = %name, error = %told.error, "refuses what OpenFlow 1.5 says about a group");
        }
        let rounds = &mut self.properties.rounds;
        let Some(round) = rounds.awaiting(switch, header.xid) else {
            return;
        };
        if header.kind == kind::BARRIER_REPLY {
            return self.properties.end(switch);
        }
        match decode_descriptions(frame) {
            Ok((groups, has_more)) => {
                round.told.extend(groups);
                if !has_more {
                    let described = std::mem::take(&mut round.told);
                    self.write_properties(truth, server, switch, &described);
                }
            }
            Err(refusal) => {
                self.properties.end(switch);
                let name = &self.list[switch].name;
                error!(target: "southbound", switch = %name, detail = %refusal, "does not describe its groups over OpenFlow 1.5");
            }
        }
    }

    /// Modifies the groups of a switch that lack something.
    fn write_properties(
        &mut self,
        truth: &Truth,
        server: &Server,
        switch: SwitchIndex,
        described: &[DescribedGroup],
    ) {
        let has_groups = server.executors.all().contains(switch);
        let lacking = described.iter().filter(|_| has_groups);
        let hidden = &server.hidden;
        let lacking: Vec<GroupMod> = lacking
            .filter_map(|there| lacking_in(truth, hidden, there))
            .collect();
        for message in lacking.into_iter().flat_map(messages_of_group) {
            let message = wire(self.fresh_xid(), &Message::GroupMod(message));
            self.put_to_newer(switch, &message);
        }
        self.give_meters_inside(truth, server, switch);
        let barrier = self.fresh_xid();
        self.put_to_newer(switch, &wire(barrier, &Message::BarrierRequest));
        self.properties.rounds.begin(switch, barrier);
    }

    /// Takes the meters out of an addition that are not before all actions; these switches get them over OpenFlow 1.5.
    pub fn without_meters_inside(&mut self, message: FlowMod, targets: SwitchSet) -> FlowMod {
        let is_addition = message.command == FlowModCommand::Add;
        if !is_addition || !message.instructions.have_meter_inside() {
            return message;
        }
        if let Ok(matching) = message.matching.canonical() {
            let key = RuleKey::of_flow_mod(&message, matching);
            self.properties.rules.insert(targets, &key);
        }
        self.properties.are_needed = true;
        self.require_properties(targets);
        FlowMod {
            instructions: message.instructions.without_meters_inside(),
            ..message
        }
    }

    /// Gives the rules of a switch the meters that they lack.
    fn give_meters_inside(&mut self, truth: &Truth, server: &Server, switch: SwitchIndex) {
        let keys = self.properties.rules.begin(switch);
        for rule in keys.iter().filter_map(|key| truth.tables.get(key)) {
            let is_here = server.executors.of_rule(rule).contains(switch);
            if !is_here || !rule.facts.has_meter_inside {
                continue;
            }
            let message = FlowMod {
                command: FlowModCommand::ModifyStrict,
                cookie_mask: u64::MAX,
                idle_timeout: 0,
                hard_timeout: 0,
                flags: 0,
                ..copy_of(rule, 1, &server.hidden, rule.modified)
            };
            let frame = wire(self.fresh_xid(), &Message::FlowMod(message));
            self.put_to_newer(switch, &frame);
            self.list[switch].own_changes += 1;
        }
    }
}

/// Returns the group if a switch that describes it so lacks some of its properties. A comparison over OpenFlow 1.3 finds all else.
fn lacking_in(truth: &Truth, hidden: &HiddenGroups, there: &DescribedGroup) -> Option<GroupMod> {
    let group = truth.groups.get(&there.group_id)?;
    let ids = group.buckets.iter().map(|bucket| bucket.id);
    let is_same_group = group.group_type == there.group_type;
    let has_buckets = group.buckets.iter().count() == there.bucket_ids.len();
    let has_ids = ids.eq(there.bucket_ids.iter().copied());
    let has_all =
        has_ids && group.selection == there.selection && group.buckets.meters() == there.meters;
    let needs = group.has_properties() || there.selection.is_some();
    (is_same_group && has_buckets && needs && !has_all)
        .then(|| group_with_properties(group, hidden))
}
