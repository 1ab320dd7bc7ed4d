//! Messages that wait until all ports execute at one switch; those after them wait, too, so that the order stays.

use crate::api::ControllerId;
use crate::controllers::Incoming;
use crate::core::Core;
use crate::model::facts::Facts;
use crate::moves::gather::Gathered;
use std::collections::VecDeque;
use std::time::Instant;
use tracing::warn;

#[derive(Debug, Default)]
pub struct Held {
    frames: VecDeque<(ControllerId, Box<[u8]>)>,
    since: Option<Instant>,
    /// The batch that the first message waits for instead, which commits a bundle.
    until: Option<u64>,
    /// The ports could not be gathered: what needs it is refused.
    is_refusing: bool,
}

impl Held {
    /// Adds a message to those that wait.
    pub fn put(&mut self, frame: (ControllerId, Box<[u8]>)) {
        self.frames.push_back(frame);
    }

    pub fn is_empty_of(&self, id: ControllerId) -> bool {
        self.frames.iter().all(|(of, _)| *of != id)
    }
}

impl Core {
    /// Holds a message of a controller if others wait before it. Returns whether it does.
    pub(in crate::core) fn holds_behind_others(&mut self, id: ControllerId, frame: &[u8]) -> bool {
        let waits = self.is_holding();
        if waits {
            self.held.frames.push_back((id, frame.into()));
        }
        waits
    }

    pub(in crate::core) fn is_holding(&self) -> bool {
        let waits = [self.held.since, self.property_links.since];
        waits.iter().any(Option::is_some)
            || self.held.until.is_some()
            || self.commit.is_some()
            || self.switches.tells_properties()
    }

    /// Holds a message until the messages of a batch are settled.
    pub(in crate::core) fn hold_until_settled(&mut self, incoming: Incoming<'_>, batch: u64) {
        let frame = (incoming.origin.controller, incoming.sent.into());
        self.held.frames.push_back(frame);
        self.held.until = Some(batch);
    }

    /// Handles the messages that wait neither for a batch nor for a commit any more.
    pub(in crate::core) fn handle_settled_holds(&mut self, now: Instant) {
        let verdicts = &self.switches.verdicts;
        self.held.until = self.held.until.filter(|until| !verdicts.is_settled(*until));
        if !self.is_holding() {
            self.handle_held(now);
        }
    }

    /// Holds a message that keeps state for all ports until they execute at one switch. Returns false if it can be handled, or refused, now.
    pub(in crate::core) fn holds_until_gathered(
        &mut self,
        incoming: Incoming<'_>,
        facts: &Facts,
        now: Instant,
    ) -> bool {
        facts.stateful.is_some() && self.holds(incoming, now)
    }

    /// As [`Self::holds_until_gathered`], for a new meter.
    pub(in crate::core) fn holds_meter(&mut self, incoming: Incoming<'_>, now: Instant) -> bool {
        self.moves.gathering.includes_meters && self.holds(incoming, now)
    }

    fn holds(&mut self, incoming: Incoming<'_>, now: Instant) -> bool {
        if !self.moves.gathering.is_allowed || self.held.is_refusing {
            return false;
        }
        if self.held.since.is_some() {
            // Another part of the same message of OpenFlow 1.0.
            return true;
        }
        match self.with_moves(now, |moves, below| moves.gather(below)) {
            Ok(Gathered::Together) => false,
            Ok(_) => {
                let frame = (incoming.origin.controller, incoming.sent.into());
                self.held.frames.push_back(frame);
                self.held.since = Some(now);
                true
            }
            Err(error) => {
                warn!(target: "northbound", %error, "cannot gather the ports at one switch");
                false
            }
        }
    }

    /// Continues gathering the ports, and handles the messages that waited for it.
    pub(in crate::core) fn advance_gathering(&mut self, now: Instant) {
        let since = self.held.since;
        match self.with_moves(now, |moves, below| moves.advance_gathering(below, since)) {
            Gathered::Apart => {}
            Gathered::Together => self.replay(false, now),
            Gathered::Failed(reason) => {
                warn!(target: "core", %reason, "cannot gather the ports at one switch");
                self.replay(true, now);
            }
        }
    }

    fn replay(&mut self, is_refusing: bool, now: Instant) {
        if self.held.since.take().is_none() {
            return;
        }
        self.held.is_refusing = is_refusing;
        self.handle_held(now);
        self.held.is_refusing = false;
    }

    fn handle_held(&mut self, now: Instant) {
        for (id, frame) in std::mem::take(&mut self.held.frames) {
            self.controller_message(id, &frame, now);
        }
        self.forget_left();
    }

    /// Tells whether something in the virtual tables needs all ports at one switch.
    pub(in crate::core) fn needs_one_executor(&self) -> bool {
        self.moves.gathering.is_needed_by(&self.truth)
    }

    pub(in crate::core) fn gathering_deadline(&self) -> Option<Instant> {
        let is_away = self.server.ports.gathered().next().is_some();
        self.moves
            .gathering_deadline(is_away && !self.needs_one_executor(), self.held.since)
    }
}
