//! Bringing a switch to what the truth says: after it connected, and when it disagreed.

use crate::api::{Bridge, Destination, SwitchIndex};
use crate::edge::{
    reparse_bucket, EdgeInput, EdgeRule, EdgeRules, COOKIE, PRIORITY, REPARSE_GROUP,
};
use crate::executors::Executors;
use crate::flood::FLOOD_GROUP;
use crate::reads::Purpose;
use crate::rule::RuleKey;
use crate::session::{Inventory, SessionState};
use crate::switch_set::SwitchSet;
use crate::translate::{buckets_with_flood_group, copy_of, removal_of};
use crate::truth::{Group, Meter};
use crate::{wire, Core};
use openflow13::{
    bundle, group_no, group_type, meter_no, port_no, ActionList, AsyncMasks, Buckets, FlowMod,
    FlowModCommand, FlowStats, FlowStatsRequest, GroupDesc, GroupMod, GroupModCommand, Instruction,
    Instructions, Match, Message, MeterConfig, MeterMod, MeterModCommand, MultipartRequest,
    SwitchConfig, NO_BUFFER,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use tracing::{info, warn};

/// OFPT_SET_CONFIG: also asks a service connection of Open vSwitch for asynchronous messages.
pub(crate) const WHOLE_PACKET: u16 = 0xffff;

impl Core {
    /// Asks a bridge that came up for all that it has.
    pub(crate) fn request_inventory(&mut self, switch: SwitchIndex, bridge: Bridge) {
        if bridge == Bridge::Virt {
            let config = SwitchConfig {
                flags: self.fragment_flags,
                miss_send_len: WHOLE_PACKET,
            };
            self.send_to(switch, bridge, &Message::SetConfig(config));
            // Everything, INVALID_TTL too: each controller's own masks decide what it gets.
            let masks = AsyncMasks {
                packet_in: [0b1111; 2],
                port_status: [0b111; 2],
                flow_removed: [0b1111; 2],
            };
            self.send_to(switch, bridge, &Message::SetAsync(masks));
            self.send_to(switch, bridge, &Message::FeaturesRequest);
        } else {
            self.send_to(
                switch,
                bridge,
                &Message::SetConfig(SwitchConfig {
                    flags: 0,
                    miss_send_len: WHOLE_PACKET,
                }),
            );
        }
        let mut requests = vec![
            MultipartRequest::PortDesc,
            MultipartRequest::Flow(everything()),
        ];
        if bridge == Bridge::Virt {
            requests.push(MultipartRequest::GroupDesc);
            requests.push(MultipartRequest::MeterConfig {
                meter: meter_no::ALL,
            });
        }
        let session = self.switches[switch].session_mut(bridge);
        session.state = SessionState::Syncing(Inventory {
            missing: requests.len(),
            ..Inventory::default()
        });
        for request in requests {
            self.read(Purpose::Inventory, bridge, SwitchSet::of(switch), request);
        }
    }

    /// Reads a bridge anew without taking it out of service for longer than that.
    pub(crate) fn request_resync(&mut self, switch: SwitchIndex, bridge: Bridge) {
        if self.switches[switch].session(bridge).is_up() {
            self.request_inventory(switch, bridge);
        }
    }

    /// All answers are there: compare, mend, and take the bridge into service.
    pub(crate) fn inventory_complete(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        let session = self.switches[switch].session_mut(bridge);
        let SessionState::Syncing(inventory) =
            std::mem::replace(&mut session.state, SessionState::Up)
        else {
            return;
        };
        match bridge {
            Bridge::Virt => {
                self.verdicts.adopt(SwitchSet::of(switch));
                self.compare_virt(switch, inventory, now);
            }
            Bridge::Edge => self.compare_edge(switch, &inventory.flows),
        }
        self.announce_ports(None);
    }

    fn compare_virt(&mut self, switch: SwitchIndex, inventory: Inventory, now: Instant) {
        let here = SwitchSet::of(switch);
        let needed = self.executors.all().contains(switch);
        let before = self.verdicts.in_flight();
        self.refresh_all_patch_config();
        let surplus = self.compare_flows(switch, &inventory.flows, needed);
        for rule in surplus {
            self.send_own_flow(rule, here, now);
        }
        self.compare_meters(here, &inventory.meters, needed, now);
        self.compare_groups(switch, &inventory.groups, needed, now);
        let present: HashMap<RuleKey, &FlowStats> = inventory
            .flows
            .iter()
            .filter_map(|f| Some((key_of(f)?, f)))
            .collect();
        let missing: Vec<_> = self
            .truth
            .tables
            .iter()
            .filter(|r| self.executors.of_rule(r).contains(switch))
            .cloned()
            .collect();
        for rule in missing {
            let copy = copy_of(&rule, self.executors.of_rule(&rule).len(), now);
            if !present
                .get(&rule.key)
                .is_some_and(|there| is_copy(there, &copy))
            {
                self.send_own_flow(copy, here, now);
            }
        }
        let changes = self.verdicts.in_flight() - before;
        self.switches[switch].repairs += changes as u64;
        info!(target: "southbound", switch = %self.switches[switch].name, found = inventory.flows.len(), changes, "virt is in step");
    }

    /// Removals of rules that should not be there.
    fn compare_flows(
        &self,
        switch: SwitchIndex,
        found: &[FlowStats],
        needed: bool,
    ) -> Vec<FlowMod> {
        let expected = |key: &RuleKey| {
            needed
                && self
                    .truth
                    .tables
                    .get(key)
                    .is_some_and(|rule| self.executors.of_rule(rule).contains(switch))
        };
        let surplus: Vec<&FlowStats> = found
            .iter()
            .filter(|f| !key_of(f).is_some_and(|key| expected(&key)))
            .collect();
        if !surplus.is_empty() && surplus.len() == found.len() {
            return vec![remove_all()];
        }
        surplus.into_iter().map(removal).collect()
    }

    fn compare_meters(
        &mut self,
        here: SwitchSet,
        found: &[MeterConfig],
        needed: bool,
        now: Instant,
    ) {
        let meters: Vec<Arc<Meter>> = if needed {
            self.truth.meters.values().cloned().collect()
        } else {
            Vec::new()
        };
        let wanted: HashSet<u32> = meters.iter().map(|m| m.id).collect();
        for surplus in found.iter().filter(|m| !wanted.contains(&m.meter_id)) {
            let message = MeterMod {
                command: MeterModCommand::Delete,
                flags: 0,
                meter_id: surplus.meter_id,
                bands: Box::default(),
            };
            self.send_own(&Message::MeterMod(message), here, now);
        }
        for meter in meters {
            let there = found.iter().find(|m| m.meter_id == meter.id);
            if there.is_some_and(|m| m.flags == meter.flags && m.bands == meter.bands) {
                continue;
            }
            let command = if there.is_some() {
                MeterModCommand::Modify
            } else {
                MeterModCommand::Add
            };
            let message = MeterMod {
                command,
                flags: meter.flags,
                meter_id: meter.id,
                bands: meter.bands.clone(),
            };
            self.send_own(&Message::MeterMod(message), here, now);
        }
    }

    fn compare_groups(
        &mut self,
        switch: SwitchIndex,
        found: &[GroupDesc],
        needed: bool,
        now: Instant,
    ) {
        let here = SwitchSet::of(switch);
        let mut groups: Vec<GroupMod> = if needed {
            self.truth
                .groups
                .values()
                .map(|g| physical_group(g))
                .collect()
        } else {
            Vec::new()
        };
        groups.push(self.flood_group(switch));
        let wanted: HashSet<u32> = groups.iter().map(|g| g.group_id).collect();
        for surplus in found.iter().filter(|g| !wanted.contains(&g.group_id)) {
            self.send_own(
                &Message::GroupMod(group_removal(surplus.group_id)),
                here,
                now,
            );
        }
        for mut group in groups {
            let there = found.iter().find(|g| g.group_id == group.group_id);
            if there.is_some_and(|g| g.group_type == group.group_type && g.buckets == group.buckets)
            {
                continue;
            }
            group.command = if there.is_some() {
                GroupModCommand::Modify
            } else {
                GroupModCommand::Add
            };
            self.send_own(&Message::GroupMod(group), here, now);
        }
    }

    /// The hidden flood group of `switch` (flood.rs), as an addition.
    pub(crate) fn flood_group(&self, switch: SwitchIndex) -> GroupMod {
        let buckets = Buckets::from_bytes(self.flood.current().buckets(switch)).unwrap_or_default();
        GroupMod {
            command: GroupModCommand::Add,
            group_type: group_type::ALL,
            group_id: FLOOD_GROUP,
            buckets,
        }
    }

    fn compare_edge(&mut self, switch: SwitchIndex, found: &[FlowStats]) {
        let mut installed = EdgeRules::new();
        let mut foreign = Vec::new();
        for flow in found {
            let ours = flow.cookie == COOKIE && flow.priority == PRIORITY;
            match (ours, flow.matching.canonical()) {
                (true, Ok(key)) => {
                    let actions = applied_actions(&flow.instructions);
                    installed.insert(
                        (flow.table_id, key),
                        EdgeRule {
                            table: flow.table_id,
                            matching: flow.matching.clone(),
                            actions,
                        },
                    );
                }
                _ => foreign.push(removal(flow)),
            }
        }
        if !foreign.is_empty() {
            warn!(target: "southbound", switch = %self.switches[switch].name, rules = foreign.len(), "edge has rules that are not ours; removing them");
            foreign.into_iter().for_each(|f| {
                self.send_to(switch, Bridge::Edge, &Message::FlowMod(f));
            });
        }
        let group = GroupMod {
            command: GroupModCommand::AddOrModify,
            group_type: group_type::SELECT,
            group_id: REPARSE_GROUP,
            buckets: Buckets::from_bytes(reparse_bucket()).unwrap_or_default(),
        };
        self.send_to(switch, Bridge::Edge, &Message::GroupMod(group));
        self.switches[switch].installed = installed;
        let changes = self.update_edge(switch);
        info!(target: "southbound", switch = %self.switches[switch].name, found = found.len(), changes, "edge is in step");
    }

    /// Brings `edge` of one switch to what the port map asks for, in one atomic bundle; returns the number of changes.
    pub(crate) fn update_edge(&mut self, switch: SwitchIndex) -> usize {
        if !self.switches[switch].edge.is_up() {
            return 0;
        }
        let links: Vec<_> = self.switches.iter().map(|s| s.link.clone()).collect();
        let session = &self.switches[switch].edge;
        let number_of = |name: &str| session.number_of(name);
        let wanted = EdgeInput {
            switch,
            links: &links,
            ports: &self.ports,
            flood: &self.flood,
            number_of: &number_of,
        }
        .rules();
        let installed = &self.switches[switch].installed;
        let mut changes: Vec<FlowMod> = Vec::new();
        for (key, rule) in &wanted {
            if installed
                .get(key)
                .is_none_or(|there| there.actions != rule.actions)
            {
                changes.push(edge_flow(rule, FlowModCommand::Add));
            }
        }
        for (_, rule) in installed
            .iter()
            .filter(|(key, _)| !wanted.contains_key(key))
        {
            changes.push(edge_flow(rule, FlowModCommand::DeleteStrict));
        }
        let count = changes.len();
        if count > 0 {
            self.send_bundle(switch, changes);
        }
        self.switches[switch].installed = wanted;
        count
    }

    pub(crate) fn update_edges(&mut self) {
        (0..self.switches.len()).for_each(|switch| {
            self.update_edge(switch);
        });
    }

    fn send_bundle(&mut self, switch: SwitchIndex, changes: Vec<FlowMod>) {
        let to = Destination::Switch(switch, Bridge::Edge);
        self.switches[switch].bundles = self.switches[switch].bundles.wrapping_add(1);
        let id = self.switches[switch].bundles;
        let open = bundle::encode_open(self.fresh_xid(), id);
        self.outbox.put(to, &open);
        for change in changes {
            let inner = wire(self.fresh_xid(), &Message::FlowMod(change));
            match bundle::encode_add(id, &inner) {
                Ok(frame) => self.outbox.put(to, &frame),
                Err(oversize) => {
                    tracing::error!(target: "core", length = oversize.length, "an edge rule is too long for a bundle")
                }
            }
        }
        let commit = bundle::encode_commit(self.fresh_xid(), id);
        self.outbox.put(to, &commit);
        self.verdicts.touch(switch, Bridge::Edge);
    }

    /// Installs what `new` asks for beyond `old`. Copies whose idle timer changes owner are written anew.
    pub(crate) fn install_copies(&mut self, old: &Executors, new: &Executors, now: Instant) {
        if old == new {
            return;
        }
        self.verdicts.adopt(new.all().intersection(self.up()));
        for switch in new.all().minus(old.all()).intersection(self.up()).iter() {
            self.compare_meters(SwitchSet::of(switch), &[], true, now);
            let groups: Vec<GroupMod> = self
                .truth
                .groups
                .values()
                .map(|g| physical_group(g))
                .collect();
            for group in groups {
                self.send_own(&Message::GroupMod(group), SwitchSet::of(switch), now);
            }
        }
        let rules: Vec<_> = self.truth.tables.iter().cloned().collect();
        for rule in rules {
            let (had, needs) = (old.of_rule(&rule), new.of_rule(&rule));
            let timer_moves = rule.idle_timeout != 0
                && new.share_idle_timer(&rule)
                && !old.share_idle_timer(&rule);
            if timer_moves {
                self.idle.start(now);
            }
            let targets = if timer_moves { needs } else { needs.minus(had) };
            if !targets.is_empty() {
                self.send_own_flow(copy_of(&rule, needs.len(), now), targets, now);
            }
        }
    }

    /// Removes what `new` asks for no more.
    pub(crate) fn remove_copies(&mut self, old: &Executors, new: &Executors, now: Instant) {
        if old == new {
            return;
        }
        let rules: Vec<_> = self.truth.tables.iter().cloned().collect();
        for rule in rules {
            let (had, needs) = (old.of_rule(&rule), new.of_rule(&rule));
            self.send_own_flow(removal_of(&rule), had.minus(needs), now);
            if rule.idle_timeout != 0 && had.len() > 1 && needs.len() == 1 {
                self.send_own_flow(copy_of(&rule, 1, now), needs, now);
            }
        }
        for switch in old.all().minus(new.all()).iter() {
            let groups: Vec<u32> = self.truth.groups.keys().copied().collect();
            for id in groups {
                self.send_own(
                    &Message::GroupMod(group_removal(id)),
                    SwitchSet::of(switch),
                    now,
                );
            }
            let message = MeterMod {
                command: MeterModCommand::Delete,
                flags: 0,
                meter_id: meter_no::ALL,
                bands: Box::default(),
            };
            self.send_own(&Message::MeterMod(message), SwitchSet::of(switch), now);
        }
    }
}

pub(crate) fn key_of(flow: &FlowStats) -> Option<RuleKey> {
    Some(RuleKey {
        table: flow.table_id,
        priority: flow.priority,
        matching: flow.matching.canonical().ok()?,
    })
}

/// Whether what a switch reports is the copy that we would write. The hard timeout counts down, so only its presence is compared.
fn is_copy(there: &FlowStats, copy: &FlowMod) -> bool {
    there.cookie == copy.cookie
        && there.flags == copy.flags
        && there.idle_timeout == copy.idle_timeout
        && (there.hard_timeout == 0) == (copy.hard_timeout == 0)
        && there.instructions == copy.instructions
}

fn physical_group(group: &Group) -> GroupMod {
    let buckets = if group.facts.floods {
        Buckets::from_bytes(buckets_with_flood_group(group.buckets.as_bytes()))
            .unwrap_or_else(|_| group.buckets.clone())
    } else {
        group.buckets.clone()
    };
    GroupMod {
        command: GroupModCommand::Add,
        group_type: group.group_type,
        group_id: group.id,
        buckets,
    }
}

pub(crate) fn group_removal(group_id: u32) -> GroupMod {
    GroupMod {
        command: GroupModCommand::Delete,
        group_type: group_type::ALL,
        group_id,
        buckets: Buckets::default(),
    }
}

fn applied_actions(instructions: &Instructions) -> ActionList {
    let applied = instructions.iter().find_map(|i| match i {
        Instruction::ApplyActions(actions) => {
            ActionList::from_bytes(actions.as_bytes().to_vec()).ok()
        }
        _ => None,
    });
    applied.unwrap_or_default()
}

fn blank(command: FlowModCommand, table_id: u8, priority: u16, matching: Match) -> FlowMod {
    FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table_id,
        command,
        idle_timeout: 0,
        hard_timeout: 0,
        priority,
        buffer_id: NO_BUFFER,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        flags: 0,
        matching,
        instructions: Instructions::default(),
    }
}

fn edge_flow(rule: &EdgeRule, command: FlowModCommand) -> FlowMod {
    let instructions = match command {
        FlowModCommand::Add => Instructions::apply(&rule.actions),
        _ => Instructions::default(),
    };
    FlowMod {
        cookie: COOKIE,
        instructions,
        ..blank(command, rule.table, PRIORITY, rule.matching.clone())
    }
}

fn removal(flow: &FlowStats) -> FlowMod {
    blank(
        FlowModCommand::DeleteStrict,
        flow.table_id,
        flow.priority,
        flow.matching.clone(),
    )
}

fn remove_all() -> FlowMod {
    blank(
        FlowModCommand::Delete,
        crate::tables::ALL_TABLES,
        0,
        Match::any(),
    )
}

/// A flow statistics request without any filter.
pub(crate) fn everything() -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: crate::tables::ALL_TABLES,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: Match::any(),
    }
}
