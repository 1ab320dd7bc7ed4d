//! The connections that a rule of the switch can carry, and what it then does.

use nf_offload::TargetId;
use nf_packet::protocol;

use super::DENIED;
use crate::{
    config::Action,
    flows::{connection, flag, stage, Hot},
    live::{Live, Treatment},
    pass::{action, code},
    state::{word, State},
};

/// The treatment by a rule of the switch, and the row for which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carry {
    pub is_denied: bool,
    pub row: u16,
}

impl Carry {
    pub fn of_backend(backend: u16) -> Self {
        Self {
            is_denied: backend >= DENIED,
            row: backend % DENIED,
        }
    }

    pub fn backend(self) -> u16 {
        self.row + if self.is_denied { DENIED } else { 0 }
    }

    /// Returns the target for packets that come by a port. Its number modulo the ports is that port.
    pub fn target(self, ingress: usize, ports: usize) -> TargetId {
        let kind = usize::from(self.is_denied);
        TargetId((kind * ports + ingress) as u32)
    }

    /// Returns what a rule of the switch would do for a treatment. None: it cannot.
    pub fn of(live: &Live, treatment: Treatment) -> Option<Self> {
        let rule = live.rule(treatment);
        let is_plain = rule.is_none_or(|rule| rule.rate.is_none() && !rule.log);
        if treatment.is_undecided || !is_plain || treatment.action == Action::Reject {
            return None;
        }
        Some(Self {
            is_denied: treatment.action == Action::Drop,
            row: live.row(treatment.rule),
        })
    }
}

/// The records of connections, and the rules that decide them.
pub struct Deciding<'a> {
    pub state: &'a State,
    pub live: &'a Live,
    /// The number of the function's ports.
    pub ports: usize,
}

impl Deciding<'_> {
    /// Returns what a rule can do for a connection, whose record is up to date then. None: the firewall must see its packets.
    pub fn carry(&self, slot: u32) -> Option<Carry> {
        let mut hot = self.state.flows.hot(slot);
        let is_decided = hot.stage == stage::DECIDED && hot.key.vlan == 0;
        let has_ports = matches!(hot.key.protocol, protocol::TCP | protocol::UDP);
        if !is_decided || !has_ports || hot.connection == connection::CLOSING {
            return None;
        }
        let generation = self.state.word(word::GENERATION);
        let old = Treatment {
            action: action(hot.action),
            rule: self.live.index_of(hot.row),
            is_undecided: hot.flags & flag::UNDECIDED != 0,
        };
        let carry = if hot.generation == generation {
            Carry::of(self.live, old)?
        } else {
            let carry = Carry::of(self.live, self.evaluate(slot, &hot, self.live))?;
            let new = code(match carry.is_denied {
                true => Action::Drop,
                false => Action::Allow,
            });
            let was_special = hot.flags & (flag::RATED | flag::UNDECIDED) != 0;
            if was_special || (new, carry.row) != (hot.action, hot.row) {
                // The next packet of the connection finds out, and tells what has changed.
                return None;
            }
            hot.generation = generation;
            self.state.flows.put_hot(slot, &hot);
            carry
        };
        // One side alone could fill the table, and the sender may still replace inspected bytes that the other side has not acknowledged.
        let is_answered = hot.connection != connection::UNANSWERED;
        let is_guarded = hot.flags & (flag::GUARDED * 3) != 0;
        (carry.is_denied || is_answered && !is_guarded).then_some(carry)
    }

    /// Returns the treatment of a connection by a configuration.
    fn evaluate(&self, slot: u32, hot: &Hot, live: &Live) -> Treatment {
        let known = self.state.known(slot, hot, &self.state.flows.cold(slot));
        let opening = hot.key.opening(hot.client, hot.port.into(), self.ports);
        live.treat(&opening, known.as_ref())
    }

    /// Tells whether a new configuration, whose rules have no rows yet, treats a connection as its rule of the switch does.
    pub fn stays(&self, slot: u32, carry: Carry, new: &Live) -> bool {
        let hot = self.state.flows.hot(slot);
        let treatment = self.evaluate(slot, &hot, new);
        let old = self.live.index_of(carry.row);
        let old = old.and_then(|index| self.live.rules.rules.get(index));
        let name = new.rule(treatment).map(|rule| rule.name.as_str());
        Carry::of(new, treatment).is_some_and(|it| it.is_denied == carry.is_denied)
            && name == old.map(|rule| rule.name.as_str())
    }
}
