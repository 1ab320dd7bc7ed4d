//! Bridges that may lack what they should have: one that is away, or that refused a message and was not read since.
//!
//! A closed session says nothing about the data path, which may go on with the rules of yesterday. So nothing that needs a bridge's
//! rules goes on before the bridge has confirmed them, unless its whole switch is gone (docs/architecture.md, "A move").

use crate::api::{Bridge, SwitchIndex};
use crate::switches::Switches;
use std::time::{Duration, Instant};

/// A doubt that is older will not end soon: a switch is dialled at least once a second.
pub const LASTING: Duration = Duration::from_secs(4);

/// The doubt about one bridge.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    since: Instant,
    /// It is older than [`LASTING`].
    is_lasting: bool,
    /// The bridge was compared, and what it lacked is in this batch.
    ends_with: Option<u64>,
}

impl Doubt {
    pub fn new(since: Instant) -> Self {
        Self {
            since,
            is_lasting: false,
            ends_with: None,
        }
    }

    /// Whether waiting for its end is given up.
    fn is_given_up(&self) -> bool {
        self.is_lasting && self.ends_with.is_none()
    }
}

impl Switches {
    /// A bridge is away, or refused a message: it is trusted again when it has been compared.
    pub fn doubt(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        let doubt = &mut self.list[switch].session_mut(bridge).doubt;
        let doubt = doubt.get_or_insert(Doubt::new(now));
        doubt.ends_with = None;
    }

    /// A bridge was compared, and sent what it lacked.
    pub fn compared(&mut self, switch: SwitchIndex, bridge: Bridge) {
        let batch = self.verdicts.current_batch();
        if let Some(doubt) = &mut self.list[switch].session_mut(bridge).doubt {
            doubt.ends_with = Some(batch);
        }
    }

    /// Ends the doubts about bridges that have confirmed what they lacked.
    pub fn end_doubts(&mut self) {
        let verdicts = &self.verdicts;
        let confirmed = |doubt: &mut Doubt| doubt.ends_with.is_some_and(|b| verdicts.is_settled(b));
        for switch in &mut self.list {
            for session in [&mut switch.virt, &mut switch.edge] {
                if session.doubt.take_if(confirmed).is_some() {
                    (session.retries, session.refusal) = (0, None);
                }
            }
        }
    }

    pub fn next_lasting_doubt(&self) -> Option<Instant> {
        let sessions = self.list.iter().flat_map(|s| [&s.virt, &s.edge]);
        let doubts = sessions.filter_map(|s| s.doubt.as_ref());
        let fresh = doubts.filter(|doubt| !doubt.is_lasting);
        fresh.map(|doubt| doubt.since + LASTING).min()
    }

    /// Notes which doubts are lasting by now.
    pub fn age_doubts(&mut self, now: Instant) {
        for switch in &mut self.list {
            for session in [&mut switch.virt, &mut switch.edge] {
                if let Some(doubt) = &mut session.doubt {
                    doubt.is_lasting |= doubt.since + LASTING <= now;
                }
            }
        }
    }

    /// Whether a bridge is known to have what it should have, but for what the open batches bring.
    pub fn is_confirmed(&self, switch: SwitchIndex, bridge: Bridge) -> bool {
        let session = self.list[switch].session(bridge);
        session.is_up() && session.doubt.is_none()
    }

    /// Whether nothing is to be expected of a bridge: it has been away, or has refused messages, for long.
    pub fn is_given_up(&self, switch: SwitchIndex, bridge: Bridge) -> bool {
        let doubt = &self.list[switch].session(bridge).doubt;
        doubt.as_ref().is_some_and(Doubt::is_given_up)
    }

    /// Whether a switch has been away for long with both its bridges. While one of them is there, Open vSwitch runs and forwards.
    pub fn is_gone(&self, switch: SwitchIndex) -> bool {
        let is_gone = |bridge| {
            self.list[switch].session(bridge).is_down() && self.is_given_up(switch, bridge)
        };
        is_gone(Bridge::Virt) && is_gone(Bridge::Edge)
    }

    /// Whether this bridge of every switch is confirmed, but for those that are given up.
    pub fn all_confirmed(&self, bridge: Bridge) -> bool {
        let mut all = 0..self.list.len();
        all.all(|s| self.is_confirmed(s, bridge) || self.is_given_up(s, bridge))
    }
}
