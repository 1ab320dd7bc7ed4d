//! The core's knowledge of a list of actions or instructions; it passes everything else on unread.

use crate::model::hidden::Hidden;
use openflow13::openflow10::ends_idle_enqueue;
use openflow13::{actions, group_no, port_no, Action, Actions, Buckets, Instruction, Instructions};

/// Nicira action subtypes that matter here (Open vSwitch, lib/ofp-actions.c).
pub mod nicira {
    pub const RESUBMIT: u16 = 1;
    pub const REG_MOVE: u16 = 6;
    pub const REG_LOAD: u16 = 7;
    pub const RESUBMIT_TABLE: u16 = 14;
    pub const LEARN: u16 = 16;
    pub const FIN_TIMEOUT: u16 = 19;
    pub const CONTROLLER: u16 = 20;
    pub const STACK_POP: u16 = 28;
    pub const REG_LOAD2: u16 = 33;
    pub const CT: u16 = 35;
    pub const CONTROLLER2: u16 = 37;
    pub const RESUBMIT_TABLE_CT: u16 = 44;
    pub const LEARN2: u16 = 45;

    /// Tells whether an action writes to in_port. `body` follows the subtype (ten bytes into the action).
    pub fn writes_in_port(subtype: u16, body: &[u8]) -> bool {
        let header = match subtype {
            // struct nx_action_reg_move: n_bits, src_ofs, dst_ofs, src, dst; struct nx_action_reg_load: ofs_nbits, dst.
            REG_MOVE => 10,
            // struct nx_action_stack: offset, field.
            REG_LOAD | STACK_POP => 2,
            REG_LOAD2 => 6,
            _ => return false,
        };
        let field = body.get(header..header + 3);
        field.is_some_and(|h| super::is_in_port(u16::from_be_bytes([h[0], h[1]]), h[2] >> 1))
    }
}

pub const OFPP_IN_PORT_16: u16 = 0xfff8;

/// Facts about one rule or group, kept with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Outputs to FLOOD or ALL.
    pub floods: bool,
    /// Changes in_port for later lookups, so rules of other ports can apply at this executor.
    pub moves_in_port: bool,
    pub has_group: bool,
    pub has_meter: bool,
    /// Has a meter that is not before all actions, which no version before OpenFlow 1.5 has.
    pub has_meter_inside: bool,
    /// Of a group: some bucket watches a possible virtual port.
    pub watches: bool,
    /// Of a group: some bucket has OpenFlow 1.0's `enqueue`, which does nothing there.
    pub enqueues_idly: bool,
    /// Of a group: some bucket watches a group.
    pub watches_group: bool,
    /// Keeps state that one switch would share between all ports.
    pub stateful: Option<Stateful>,
}

/// Actions whose state cannot be split over several executors; of several, the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stateful {
    Normal,
    ConnectionTracking,
    /// The switch changes rules by itself: `learn`, and `fin_timeout`.
    Learn,
}

impl Facts {
    pub fn of_instructions(instructions: &Instructions) -> Self {
        let mut facts = Self::default();
        for instruction in instructions.iter() {
            match instruction {
                Instruction::ApplyActions(list) | Instruction::WriteActions(list) => {
                    facts.visit(list)
                }
                Instruction::Meter(_) => facts.has_meter = true,
                _ => {}
            }
        }
        facts
    }

    pub fn of_actions(list: Actions<'_>) -> Self {
        let mut facts = Self::default();
        facts.visit(list);
        facts
    }

    pub fn of_buckets(buckets: &Buckets) -> Self {
        let mut facts = Self::default();
        for bucket in buckets.iter() {
            facts.visit(bucket.actions);
            facts.enqueues_idly |= bucket
                .actions
                .iter()
                .any(|item| ends_idle_enqueue(item.raw));
            facts.watches |= Hidden::instead_of((bucket.watch_port, bucket.watch_group)).is_some();
            facts.watches_group |= bucket.watch_group != group_no::ANY;
        }
        facts
    }

    /// Tells whether it makes the switch change rules.
    pub fn learns(&self) -> bool {
        self.stateful == Some(Stateful::Learn)
    }

    /// Tells whether a group differs between switches and controllers.
    pub fn is_translated_group(&self) -> bool {
        self.floods || self.watches || self.enqueues_idly
    }

    fn visit(&mut self, list: Actions<'_>) {
        actions::flatten(list, &mut |item| match item.action {
            Action::Output {
                port: port_no::FLOOD | port_no::ALL,
                ..
            } => self.floods = true,
            Action::Output {
                port: port_no::NORMAL,
                ..
            } => self.keeps(Stateful::Normal),
            Action::Group(_) => self.has_group = true,
            Action::SetField(field) if is_in_port(field.class, field.field) => {
                self.moves_in_port = true
            }
            Action::Nicira { subtype, body } => self.visit_nicira(subtype, body),
            _ => self.has_meter_inside |= item.meter().is_some(),
        });
    }

    fn keeps(&mut self, state: Stateful) {
        self.stateful = self.stateful.max(Some(state));
    }

    /// `body` follows the subtype (ten bytes into the action).
    fn visit_nicira(&mut self, subtype: u16, body: &[u8]) {
        self.moves_in_port |= nicira::writes_in_port(subtype, body);
        match subtype {
            nicira::RESUBMIT | nicira::RESUBMIT_TABLE | nicira::RESUBMIT_TABLE_CT => {
                let port = body.get(..2).map(|b| u16::from_be_bytes([b[0], b[1]]));
                self.moves_in_port |= port != Some(OFPP_IN_PORT_16);
            }
            nicira::LEARN | nicira::LEARN2 | nicira::FIN_TIMEOUT => self.keeps(Stateful::Learn),
            nicira::CT => self.keeps(Stateful::ConnectionTracking),
            _ => {}
        }
    }
}

/// OXM_OF_IN_PORT or NXM_OF_IN_PORT.
pub fn is_in_port(class: u16, field: u8) -> bool {
    field == 0 && (class == 0x8000 || class == 0)
}

/// Tells whether some action outputs to `port`, as the out_port filter of flow-mods and statistics requires.
pub fn outputs_to(instructions: &Instructions, port: u32) -> bool {
    any_action(instructions, |action| match action {
        Action::Output { port: to, .. } => to == port,
        Action::Nicira { subtype, .. } => {
            port == port_no::CONTROLLER
                && matches!(subtype, nicira::CONTROLLER | nicira::CONTROLLER2)
        }
        _ => false,
    })
}

/// Visits the groups that buckets send to or watch.
pub fn groups_of_buckets(buckets: &Buckets, visit: &mut impl FnMut(u32)) {
    for bucket in buckets.iter() {
        groups_of_actions(bucket.actions, visit);
        if bucket.watch_group != group_no::ANY {
            visit(bucket.watch_group);
        }
    }
}

/// Tells whether some bucket sends to a group, or watches it.
pub fn is_named_by_buckets(buckets: &Buckets, id: u32) -> bool {
    let mut found = false;
    groups_of_buckets(buckets, &mut |named| found |= named == id);
    found
}

/// Visits the groups that actions send to.
pub fn groups_of_actions(list: Actions<'_>, visit: &mut impl FnMut(u32)) {
    actions::flatten(list, &mut |item| {
        if let Action::Group(id) = item.action {
            visit(id);
        }
    });
}

/// Visits the group of each action that sends to one.
pub fn groups(instructions: &Instructions, mut visit: impl FnMut(u32)) {
    instructions.for_each_action(&mut |item| {
        if let Action::Group(id) = item.action {
            visit(id);
        }
    });
}

/// Tells whether some action sends to group `id`.
pub fn uses_group(instructions: &Instructions, id: u32) -> bool {
    any_action(
        instructions,
        |action| matches!(action, Action::Group(g) if g == id),
    )
}

/// Iterates over the meters that meter instructions name.
pub fn meters(instructions: &Instructions) -> impl Iterator<Item = u32> + '_ {
    instructions.iter().filter_map(|i| match i {
        Instruction::Meter(id) => Some(id),
        _ => None,
    })
}

/// Tells whether the meter instruction names `id`.
pub fn uses_meter(instructions: &Instructions, id: u32) -> bool {
    meters(instructions).any(|m| m == id)
}

fn any_action(instructions: &Instructions, test: impl Fn(Action<'_>) -> bool) -> bool {
    let mut found = false;
    instructions.for_each_action(&mut |item| found |= test(item.action));
    found
}

#[cfg(test)]
mod tests;
