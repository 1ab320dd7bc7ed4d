//! Keeps the `edge` bridges in sync with the port map.

use crate::api::{Bridge, Destination, SwitchIndex};
use crate::layout::carrier;
use crate::layout::edge::{self, EdgeInput, EdgeRule, EdgeRules, COOKIE};
use crate::layout::findings::{lacking, Findings, FOREIGN};
use crate::layout::messages::{flood_groups, removal};
use crate::layout::offload;
use crate::layout::repair::{self, diff};
use crate::server::flood::Step;
use crate::server::Server;
use crate::switches::session::Inventory;
use crate::switches::Switches;
use crate::wire::wire;
use openflow13::{
    bundle, ActionList, FlowMod, FlowModCommand, FlowStats, GroupDesc, GroupMod, GroupModCommand,
    Instruction, Instructions, Message,
};
use std::time::Instant;

impl Switches {
    /// Compares `edge`; returns false if that was not possible.
    pub fn compare_edge(
        &mut self,
        server: &mut Server,
        switch: SwitchIndex,
        inventory: &Inventory,
        now: Instant,
    ) -> bool {
        if !inventory.after_gap && inventory.bundles != self.list[switch].bundles {
            // It was read before it received its current rules.
            self.list[switch].edge.again = true;
            return false;
        }
        let mut found = Findings::default();
        let mut installed = EdgeRules::new();
        let mut foreign = Vec::new();
        let is_offload = |flow: &&FlowStats| offload::is_ours(flow.table_id, flow.priority);
        let (offloaded, own): (Vec<_>, Vec<_>) = inventory.flows.iter().partition(is_offload);
        for flow in own {
            let ours = flow.cookie == COOKIE && flow.priority == edge::priority(&flow.matching);
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
                _ => {
                    let edge = &self.list[switch].edge;
                    found.add(FOREIGN, || {
                        edge.rule_name(flow.table_id, flow.priority, &flow.matching)
                    });
                    foreign.push(Message::FlowMod(removal(flow)));
                }
            }
        }
        let is_target = |group: &GroupDesc| offload::is_target(group.group_id);
        let there = inventory.groups.iter().cloned();
        let (targets, there): (Vec<_>, Vec<_>) = there.partition(is_target);
        let groups = carrier::groups().map(|group| (group.group_id, group));
        let groups = repair::groups(&there, groups.into(), |_| false);
        for message in foreign.iter().chain(&groups.messages) {
            self.send_to(switch, Bridge::Edge, message);
        }
        found.append(groups.found);
        self.list[switch].installed = installed;
        found.append(self.compare_offload(
            server,
            switch,
            &offloaded,
            (targets, &inventory.meters),
            now,
        ));
        found.append(self.update_edge(server, switch));
        self.keep_findings(switch, Bridge::Edge, inventory.after_gap, found, now);
        true
    }

    /// Derives something from the server as one switch's `edge` sees it.
    pub(crate) fn with_edge_input<R>(
        &self,
        server: &Server,
        switch: SwitchIndex,
        derive: impl FnOnce(&EdgeInput<'_>) -> R,
    ) -> R {
        let links: Vec<_> = self.list.iter().map(|s| s.link.clone()).collect();
        let session = &self.list[switch].edge;
        derive(&EdgeInput {
            switch,
            links: &links,
            ports: &server.ports,
            flood: &server.flood,
            offload: &server.offload,
            number_of: &|name| session.number_of(name),
        })
    }

    /// Brings `edge` of one switch to the state required by the port map, in one atomic bundle; returns the differences.
    pub fn update_edge(&mut self, server: &mut Server, switch: SwitchIndex) -> Findings {
        let mut found = Findings::default();
        if let Some(space) = self.id_space() {
            server.ports.id_space = space;
        }
        self.place_offload(server, switch, false);
        if !self.list[switch].edge.is_up() {
            return found;
        }
        let wanted = self.with_edge_input(server, switch, |input| input.rules());
        let session = &self.list[switch].edge;
        let installed = &self.list[switch].installed;
        let difference = diff(installed, &wanted, |there, rule| {
            there.actions == rule.actions
        });
        let mut changes = Vec::new();
        let mut change = |kind, rule: &EdgeRule, command| {
            found.add(kind, || {
                let priority = edge::priority(&rule.matching);
                session.rule_name(rule.table, priority, &rule.matching)
            });
            changes.push(edge_flow(rule, command));
        };
        for (rule, there) in difference.lacking {
            change(lacking(&there), rule, FlowModCommand::Add);
        }
        for rule in difference.surplus {
            change(FOREIGN, rule, FlowModCommand::DeleteStrict);
        }
        if !changes.is_empty() {
            self.send_bundle(switch, changes);
        }
        self.list[switch].installed = wanted;
        found
    }

    pub fn update_edges(&mut self, server: &mut Server) {
        (0..self.list.len()).for_each(|switch| {
            self.update_edge(server, switch);
        });
    }

    fn send_bundle(&mut self, switch: SwitchIndex, changes: Vec<FlowMod>) {
        let to = Destination::Switch(switch, Bridge::Edge);
        self.list[switch].bundles = self.list[switch].bundles.wrapping_add(1);
        let id = self.list[switch].bundles;
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

    /// Brings every `edge` to the port map, and starts a new flood generation if its members changed: receivers first, senders when those
    /// are settled.
    pub fn refresh_paths(&mut self, server: &mut Server) {
        server.flood.refresh(&server.ports);
        server.unsettled = true;
        self.update_edges(server);
        let batch = self.verdicts.current_batch();
        server.flood.sent(batch);
        server.ports.quarantine.sent(batch);
    }

    /// Records which switches no longer have rules with quarantined flow-ids.
    pub fn confirm_retired_ids(&mut self, server: &mut Server, now: Instant) {
        let all = || 0..self.list.len();
        let unconfirmed = all().filter(|s| !self.is_confirmed(*s, Bridge::Edge));
        let (unconfirmed, gone) = (unconfirmed.collect(), all().filter(|s| self.is_gone(*s)));
        let (gone, verdicts) = (gone.collect(), &self.verdicts);
        let is_settled = |batch| verdicts.is_settled(batch);
        let quarantine = &mut server.ports.quarantine;
        quarantine.confirm(unconfirmed, gone, is_settled, now);
    }

    /// Points every switch's flood group to the receivers' lists once these are in place. A receiver without the list would drop packets
    /// flooded by it, and a sender without the change floods by the previous list: it waits for both (doubt.rs).
    pub fn advance_flood(&mut self, server: &mut Server) {
        let verdicts = &self.verdicts;
        match server.flood.next_step(|batch| verdicts.is_settled(batch)) {
            Some(Step::PointSenders) if !self.all_confirmed(Bridge::Edge) => {}
            Some(Step::InForce) if !self.all_confirmed(Bridge::Virt) => {}
            Some(Step::PointSenders) => {
                for switch in self.up().iter() {
                    for group in flood_groups(&server.hidden, server.flood.current(), switch) {
                        let command = GroupModCommand::Modify;
                        self.send_hidden(switch, GroupMod { command, ..group });
                    }
                }
                let batch = self.verdicts.current_batch();
                server.flood.senders_pointed(batch);
            }
            Some(Step::InForce) => server.flood.in_force(),
            None => {}
        }
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

fn edge_flow(rule: &EdgeRule, command: FlowModCommand) -> FlowMod {
    let instructions = match command {
        FlowModCommand::Add => Instructions::apply(&rule.actions),
        _ => Instructions::default(),
    };
    FlowMod {
        cookie: COOKIE,
        instructions,
        ..FlowMod::new(
            command,
            rule.table,
            edge::priority(&rule.matching),
            rule.matching.clone(),
        )
    }
}
