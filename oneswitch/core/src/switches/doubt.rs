//! Bridges that may lack rules: disconnected ones, and those that refused a message and were not read since.
//!
//! A closed session does not tell about the data path, which may still use outdated rules. So nothing that needs a bridge's rules proceeds
//! before the bridge has confirmed them, unless its whole switch is gone (docs/architecture.md, "A move").

use crate::api::{Bridge, SwitchIndex};
use crate::switches::Switches;
use std::time::{Duration, Instant};

/// An older doubt will not end soon: oneswitchd retries a switch at least once a second.
pub const LASTING: Duration = Duration::from_secs(4);

/// The doubt about one bridge.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    since: Instant,
    /// Whether it is older than [`LASTING`].
    is_lasting: bool,
    /// The batch of the missing rules, once the bridge was compared.
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

    /// Tells whether to stop waiting for its end.
    fn is_given_up(&self) -> bool {
        self.is_lasting && self.ends_with.is_none()
    }
}

impl Switches {
    /// Starts doubting a bridge that is disconnected, or refused a message: it is trusted again once it has been compared.
    pub fn doubt(&mut self, switch: SwitchIndex, bridge: Bridge, now: Instant) {
        let doubt = &mut self.list[switch].session_mut(bridge).doubt;
        let doubt = doubt.get_or_insert(Doubt::new(now));
        doubt.ends_with = None;
    }

    /// Records that a bridge was compared with an inventory, which had `begun` then, and sent what it lacked.
    pub fn compared(&mut self, switch: SwitchIndex, bridge: Bridge, begun: u64) {
        let batch = self.verdicts.current_batch();
        let session = self.list[switch].session_mut(bridge);
        session.compared = Some((begun, batch));
        if let Some(doubt) = &mut session.doubt {
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

    /// Marks lasting doubts.
    pub fn age_doubts(&mut self, now: Instant) {
        for switch in &mut self.list {
            for session in [&mut switch.virt, &mut switch.edge] {
                if let Some(doubt) = &mut session.doubt {
                    doubt.is_lasting |= doubt.since + LASTING <= now;
                }
            }
        }
    }

    /// Tells whether a bridge is known to have its wanted state, apart from the open batches.
    pub fn is_confirmed(&self, switch: SwitchIndex, bridge: Bridge) -> bool {
        let session = self.list[switch].session(bridge);
        let is_told = bridge == Bridge::Edge
            || !self.tells_properties_to(switch) && !self.tells_version10_to(switch);
        session.is_up() && session.doubt.is_none() && is_told
    }

    /// Tells whether a bridge has been disconnected, or has refused messages, for long.
    pub fn is_given_up(&self, switch: SwitchIndex, bridge: Bridge) -> bool {
        let doubt = &self.list[switch].session(bridge).doubt;
        doubt.as_ref().is_some_and(Doubt::is_given_up)
    }

    /// Tells whether both bridges of a switch have been disconnected for long. While one of them is connected, Open vSwitch runs and
    /// forwards.
    pub fn is_gone(&self, switch: SwitchIndex) -> bool {
        let is_gone = |bridge| {
            self.list[switch].session(bridge).is_down() && self.is_given_up(switch, bridge)
        };
        is_gone(Bridge::Virt) && is_gone(Bridge::Edge)
    }

    /// Tells whether this bridge is confirmed on every switch, except those with lasting doubts.
    pub fn all_confirmed(&self, bridge: Bridge) -> bool {
        let mut all = 0..self.list.len();
        all.all(|s| self.is_confirmed(s, bridge) || self.is_given_up(s, bridge))
    }
}
