//! The virtual switch's state as written by its controllers: flow tables, groups and meters, with every change undoable.

use crate::model::facts::{self, Facts};
use crate::model::groups::{add_to_group, Group};
use crate::model::rule::{size_of_rule, Rule, RuleKey};
use crate::model::table_configs::TableConfigs;
use crate::model::tables::{Change, Filter, FlowTables};
use crate::model::tlv_table::TlvTable;
use openflow13::openflow14::Table;
use openflow13::tlv_table::TlvTableMod;
use openflow13::{
    group_no, meter_no, Action, CanonicalMatch, ErrorCode, FlowMod, FlowModCommand, GroupMod,
    GroupModCommand, GroupStats, Instruction, Instructions, MeterMod, MeterModCommand, MeterStats,
    MultipartReply, MultipartRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Debug)]
pub struct Meter {
    pub id: u32,
    pub flags: u16,
    /// OFPMBT_* structures as received.
    pub bands: Box<[u8]>,
    pub created: Instant,
    /// Counters of removed copies.
    pub base: Option<MeterStats>,
}

/// A state-changing message, decoded.
#[derive(Clone, Debug)]
pub enum Request {
    Flow {
        message: Box<FlowMod>,
        matching: CanonicalMatch,
        facts: Facts,
    },
    Group {
        message: GroupMod,
        facts: Facts,
    },
    Meter(MeterMod),
    TlvTable(TlvTableMod),
    /// A rule as a switch has it.
    Rule(Arc<Rule>),
    /// Changes nothing; its verdict can wait.
    PacketOut,
    /// A part of a bundle, with its number: only checked until the bundle is committed.
    Part(u64),
    /// Only checked before it is handled (core/held.rs).
    Check,
    /// Changes no state kept here.
    Other,
}

impl Request {
    /// Returns the bytes of its lists, which dominate its size.
    pub fn size(&self) -> usize {
        match self {
            Self::Flow { message, .. } => {
                message.matching.as_oxm().len() + message.instructions.as_bytes().len()
            }
            Self::Group { message, .. } => message.buckets.as_bytes().len(),
            Self::Meter(message) => message.bands.len(),
            Self::TlvTable(message) => std::mem::size_of_val(&*message.mappings),
            Self::Rule(rule) => size_of_rule(rule),
            Self::PacketOut | Self::Part(_) | Self::Check | Self::Other => 0,
        }
    }

    /// Tells whether it adds a rule.
    pub fn adds(&self) -> bool {
        matches!(self, Self::Flow { message, .. } if message.command == FlowModCommand::Add)
    }

    /// See [`checks_overlap`].
    pub fn checks_overlap(&self) -> bool {
        matches!(self, Self::Flow { message, .. } if checks_overlap(message))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub flows: Vec<Change>,
    pub groups: Vec<(u32, Option<Arc<Group>>)>,
    pub meters: Vec<(u32, Option<Arc<Meter>>)>,
    /// As it was before.
    pub tlv_table: Option<TlvTable>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
            && self.groups.is_empty()
            && self.meters.is_empty()
            && self.tlv_table.is_none()
    }
}

#[derive(Debug, Default)]
pub struct Truth {
    pub tables: FlowTables,
    pub groups: BTreeMap<u32, Arc<Group>>,
    pub meters: BTreeMap<u32, Arc<Meter>>,
    pub tlv_table: TlvTable,
    pub table_configs: TableConfigs,
}

impl Truth {
    /// Tells whether some action changes in_port, so that rules of other ports can apply.
    pub fn moves_in_port(&self) -> bool {
        self.tables.in_port_movers() > 0 || self.groups.values().any(|g| g.facts.moves_in_port)
    }

    pub fn table(&self, id: u8) -> Table {
        Table {
            id,
            config: self.table_configs.of(id),
            rules: self.tables.count(id),
        }
    }

    /// Tells whether some rule or group keeps state that must not be split over several executors.
    pub fn is_stateful(&self) -> bool {
        let of_group = |group: &Arc<Group>| group.facts.stateful.is_some();
        self.tables.stateful() > 0 || self.groups.values().any(of_group)
    }

    /// Tells whether some rule or group makes a switch change rules.
    pub fn learns(&self) -> bool {
        let mut groups = self.groups.values();
        self.tables.learning() > 0 || groups.any(|group| group.facts.learns())
    }

    /// Returns the switches' error for a message that contradicts this state, as far as it can be known without them.
    pub fn refuses(&self, request: &Request) -> Option<ErrorCode> {
        match request {
            Request::Flow {
                message, matching, ..
            } => {
                let changes_rules = match message.command {
                    FlowModCommand::Add => true,
                    FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                        let filter = Filter::of_flow_mod(message, matching.clone());
                        !self.tables.select(&filter).is_empty()
                    }
                    FlowModCommand::Delete | FlowModCommand::DeleteStrict => false,
                };
                changes_rules
                    .then(|| self.missing_reference(&message.instructions))
                    .flatten()
            }
            Request::Group { message, .. } => Group::after(
                self.groups.get(&message.group_id).map(|g| &**g),
                message,
                Facts::default(),
                Instant::now(),
            )
            .err(),
            Request::Meter(message) => {
                let there = self.meters.contains_key(&message.meter_id);
                match message.command {
                    MeterModCommand::Add if there => Some(ErrorCode::METER_MOD_FAILED_METER_EXISTS),
                    MeterModCommand::Modify if !there => {
                        Some(ErrorCode::METER_MOD_FAILED_UNKNOWN_METER)
                    }
                    _ => None,
                }
            }
            Request::TlvTable(message) => self.tlv_table.changed_by(message).err(),
            Request::Rule(_)
            | Request::PacketOut
            | Request::Part(_)
            | Request::Check
            | Request::Other => None,
        }
    }

    /// Tells whether it adds a rule with CHECK_OVERLAP that overlaps existing rules.
    pub fn forbids_overlap(&self, request: &Request) -> bool {
        match request {
            Request::Flow {
                message, matching, ..
            } if checks_overlap(message) => {
                let key = RuleKey::of_flow_mod(message, matching.clone());
                let mut overlapping = self.tables.overlapping(&key);
                overlapping.next().is_some()
            }
            _ => false,
        }
    }

    /// Tells whether `error` concerns a rule that does not exist here: the switch has a copy of a refused rule, and has not been repaired
    /// yet.
    pub fn disproves(&self, request: &Request, error: ErrorCode) -> bool {
        let Request::Flow {
            message, matching, ..
        } = request
        else {
            return false;
        };
        let modifies = matches!(
            message.command,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict
        );
        match error {
            ErrorCode::FLOW_MOD_FAILED_OVERLAP => !self.forbids_overlap(request),
            // Checked only for existing rules (Open vSwitch, modify_flows_start_loose()).
            ErrorCode::BAD_ACTION_BAD_OUT_GROUP | ErrorCode::METER_MOD_FAILED_INVALID_METER
                if !names_no_meter(&message.instructions) =>
            {
                let filter = Filter::of_flow_mod(message, matching.clone());
                modifies && self.tables.select(&filter).is_empty()
            }
            _ => false,
        }
    }

    fn missing_reference(&self, instructions: &Instructions) -> Option<ErrorCode> {
        let mut missing = None;
        instructions.for_each_action(&mut |item| match item.action {
            Action::Group(id) if !self.groups.contains_key(&id) => {
                missing = Some(ErrorCode::BAD_ACTION_BAD_OUT_GROUP);
            }
            _ => {}
        });
        let meter = instructions
            .iter()
            .any(|i| matches!(i, Instruction::Meter(id) if !self.meters.contains_key(&id)));
        missing.or(meter.then_some(ErrorCode::METER_MOD_FAILED_INVALID_METER))
    }

    /// Applies a message as the switches do if they accept it.
    pub fn apply(&mut self, request: &Request, now: Instant) -> Changes {
        let mut changes = Changes::default();
        match request {
            Request::Flow {
                message,
                matching,
                facts,
            } => changes.flows = self.tables.apply(message, matching, *facts, now),
            Request::Group { message, facts } => {
                self.apply_group(message, *facts, now, &mut changes)
            }
            Request::Meter(message) => self.apply_meter(message, now, &mut changes),
            Request::TlvTable(message) => {
                if let Ok(after) = self.tlv_table.changed_by(message) {
                    changes.tlv_table = Some(std::mem::replace(&mut self.tlv_table, after));
                }
            }
            Request::Rule(rule) => changes.flows.push(self.tables.put(Arc::clone(rule))),
            Request::PacketOut | Request::Part(_) | Request::Check | Request::Other => {}
        }
        changes
    }

    fn apply_group(
        &mut self,
        message: &GroupMod,
        facts: Facts,
        now: Instant,
        changes: &mut Changes,
    ) {
        let id = message.group_id;
        if message.command != GroupModCommand::Delete {
            // Every switch refuses what makes no group.
            if let Ok(group) = Group::after(self.groups.get(&id).map(|g| &**g), message, facts, now)
            {
                let old = self.groups.insert(id, Arc::new(group));
                changes.groups.push((id, old));
            }
            return;
        }
        let doomed: Vec<u32> = match id {
            group_no::ALL => self.groups.keys().copied().collect(),
            id => vec![id],
        };
        for id in doomed {
            if let Some(old) = self.groups.remove(&id) {
                changes.groups.push((id, Some(old)));
                self.remove_rules(changes, |f| f.has_group, |i| facts::uses_group(i, id));
            }
        }
    }

    fn apply_meter(&mut self, message: &MeterMod, now: Instant, changes: &mut Changes) {
        let id = message.meter_id;
        match message.command {
            MeterModCommand::Add | MeterModCommand::Modify => {
                let old = self.meters.get(&id).cloned();
                if old.is_some() == (message.command == MeterModCommand::Modify) {
                    let created = old.as_ref().map_or(now, |m| m.created);
                    self.meters.insert(
                        id,
                        Arc::new(Meter {
                            id,
                            flags: message.flags,
                            bands: message.bands.clone(),
                            created,
                            base: None,
                        }),
                    );
                    changes.meters.push((id, old));
                }
            }
            MeterModCommand::Delete => {
                let doomed: Vec<u32> = if id == meter_no::ALL {
                    self.meters.keys().copied().collect()
                } else {
                    vec![id]
                };
                for id in doomed {
                    if let Some(old) = self.meters.remove(&id) {
                        changes.meters.push((id, Some(old)));
                        self.remove_rules(changes, |f| f.has_meter, |i| facts::uses_meter(i, id));
                    }
                }
            }
        }
    }

    /// Removes rules that refer to a deleted group or meter (OpenFlow 1.3.5, 6.5 and 6.6).
    fn remove_rules(
        &mut self,
        changes: &mut Changes,
        may: impl Fn(&Facts) -> bool,
        refers: impl Fn(&openflow13::Instructions) -> bool,
    ) {
        let doomed: Vec<_> = self
            .tables
            .iter()
            .filter(|r| may(&r.facts) && refers(&r.instructions))
            .map(|r| r.key.clone())
            .collect();
        changes
            .flows
            .extend(doomed.iter().filter_map(|key| self.tables.remove(key)));
    }

    /// Adds the counters of removed copies of groups or meters.
    pub fn fold_counted(&mut self, counted: MultipartReply) {
        match counted {
            MultipartReply::Group(groups) => groups.into_iter().for_each(|g| self.fold_group(g)),
            MultipartReply::Meter(meters) => meters.into_iter().for_each(|m| self.fold_meter(m)),
            _ => {}
        }
    }

    fn fold_group(&mut self, stats: GroupStats) {
        if let Some(group) = self.groups.get_mut(&stats.group_id) {
            add_to_group(group, &stats);
        }
    }

    fn fold_meter(&mut self, stats: MeterStats) {
        if let Some(meter) = self.meters.get_mut(&stats.meter_id) {
            add_to_meter(meter, &stats);
        }
    }

    /// Undoes the latest changes.
    pub fn revert(&mut self, changes: Changes) {
        self.tables.revert(changes.flows);
        if let Some(before) = changes.tlv_table {
            self.tlv_table = before;
        }
        for (id, old) in changes.groups.into_iter().rev() {
            match old {
                Some(group) => self.groups.insert(id, group),
                None => self.groups.remove(&id),
            };
        }
        for (id, old) in changes.meters.into_iter().rev() {
            match old {
                Some(meter) => self.meters.insert(id, meter),
                None => self.meters.remove(&id),
            };
        }
    }

    /// Tells whether some group has what OpenFlow 1.3 cannot say.
    pub fn has_group_properties(&self) -> bool {
        self.groups.values().any(|group| group.has_properties())
    }

    /// Tells whether controllers have a group with this number, or the buckets of theirs name it.
    pub fn names_group(&self, id: u32) -> bool {
        let names = |group: &Arc<Group>| {
            let may = group.facts.has_group || group.facts.watches_group;
            may && facts::is_named_by_buckets(&group.buckets, id)
        };
        self.groups.contains_key(&id) || self.groups.values().any(names)
    }

    /// Returns the rules that send to a group, or to any.
    pub fn users_of_group(&self, id: u32) -> Vec<Arc<Rule>> {
        let uses = |rule: &&Arc<Rule>| {
            rule.facts.has_group
                && (id == group_no::ALL || facts::uses_group(&rule.instructions, id))
        };
        self.tables.iter().filter(uses).cloned().collect()
    }

    /// Returns the groups or meters that an answer to a request behind the changes so far may show.
    pub fn existing(&self, request: &MultipartRequest) -> Existing {
        let mut existing = Existing::default();
        match request {
            MultipartRequest::Group { .. } | MultipartRequest::GroupDesc => {
                existing.groups = self.groups.clone()
            }
            MultipartRequest::Meter { .. } | MultipartRequest::MeterConfig { .. } => {
                existing.meters = self.meters.clone()
            }
            _ => {}
        }
        existing
    }
}

/// Groups or meters as of a request.
#[derive(Debug, Default)]
pub struct Existing {
    pub groups: BTreeMap<u32, Arc<Group>>,
    pub meters: BTreeMap<u32, Arc<Meter>>,
}

/// Tells whether some instruction names an invalid meter number, which is always refused.
fn names_no_meter(instructions: &Instructions) -> bool {
    facts::meters(instructions).any(|id| !(1..=meter_no::MAX).contains(&id))
}

/// Tells whether a flow-mod is refused if it overlaps.
pub fn checks_overlap(message: &FlowMod) -> bool {
    message.command == FlowModCommand::Add && message.flags & FlowMod::CHECK_OVERLAP != 0
}

/// Adds the counters of a removed copy of a meter.
pub fn add_to_meter(meter: &mut Arc<Meter>, stats: &MeterStats) {
    match &mut Arc::make_mut(meter).base {
        Some(base) => add_meter(base, stats),
        none => *none = Some(stats.clone()),
    }
}

/// Adds the counters of `other` to those of `sum`.
pub fn add_meter(sum: &mut MeterStats, other: &MeterStats) {
    sum.packet_in_count = sum.packet_in_count.wrapping_add(other.packet_in_count);
    sum.byte_in_count = sum.byte_in_count.wrapping_add(other.byte_in_count);
    for (band, more) in sum.bands.iter_mut().zip(&other.bands) {
        band.packet_count = band.packet_count.wrapping_add(more.packet_count);
        band.byte_count = band.byte_count.wrapping_add(more.byte_count);
    }
}
