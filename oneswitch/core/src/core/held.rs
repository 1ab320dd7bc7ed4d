//! Messages that wait until all ports execute at one switch; those after them wait, too, so that the order stays.

use crate::api::ControllerId;
use crate::controllers::Incoming;
use crate::core::bundle_parts::{checkable, lacks_header};
use crate::core::Core;
use crate::model::facts::Facts;
use crate::model::truth::{Changes, Request};
use crate::moves::gather::Gathered;
use crate::server::executors::HUB;
use crate::switch_set::SwitchSet;
use std::collections::VecDeque;
use std::time::Instant;
use tracing::warn;

#[derive(Debug, Default)]
pub struct Held {
    frames: VecDeque<(ControllerId, Box<[u8]>)>,
    since: Option<Instant>,
    /// When the core began to hold messages, for whatever reason.
    began: Option<Instant>,
    /// The batch that the first message waits for instead, which commits a bundle.
    until: Option<u64>,
    /// The ports could not be gathered: what needs it is refused.
    is_refusing: bool,
    /// Whether the hypervisor is checking the first message.
    checks_first: bool,
    /// The message that is being handled was checked.
    is_checked: bool,
}

impl Held {
    /// Adds a message to those that wait.
    pub fn put(&mut self, frame: (ControllerId, Box<[u8]>)) {
        self.frames.push_back(frame);
    }

    /// Drops the first message, which the hypervisor has refused.
    pub fn drop_checked(&mut self) {
        if std::mem::take(&mut self.checks_first) {
            self.frames.pop_front();
        }
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
        self.held.since.is_some()
            || self.links.are_awaited()
            || self.held.until.is_some()
            || self.commit.is_some()
            || self.aside.is_some()
            || self.switches.tells_properties()
            || self.switches.tells_version10(&self.server)
    }

    /// Notes when the core begins to hold messages, and gives bundles the time back once it no longer does.
    pub(in crate::core) fn follow_hold(&mut self, now: Instant) {
        if self.is_holding() {
            self.held.began.get_or_insert(now);
        } else if let Some(began) = self.held.began.take() {
            let held = now.saturating_duration_since(began);
            self.controllers.extend_bundles(held, now);
        }
    }

    /// Holds a message until the messages of a batch are settled.
    pub(in crate::core) fn hold_until_settled(&mut self, incoming: Incoming<'_>, batch: u64) {
        let frame = (incoming.origin.controller, incoming.sent.into());
        self.held.frames.push_back(frame);
        self.held.until = Some(batch);
    }

    /// Holds all messages until the latest one has its verdict.
    pub(in crate::core) fn hold_behind_operation(&mut self) {
        self.held.until = Some(self.switches.verdicts.current_batch());
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
        facts.stateful.is_some()
            && (self.holds_until_checked(incoming, now) || self.holds(incoming, now))
    }

    /// Holds a message until the hypervisor has found that it can be carried out: ports are not gathered for a malformed one. It is only in
    /// a bundle that Open vSwitch checks a message without carrying it out.
    fn holds_until_checked(&mut self, incoming: Incoming<'_>, now: Instant) -> bool {
        let is_apart = self.server.executors.all().len() > 1 && self.moves.gathering.is_allowed;
        let is_part = self.switches.verdicts.is_modifying();
        let holds = is_apart && !is_part && self.can_check_first();
        if holds {
            self.hold_until_checked(incoming, incoming.frame, now);
        }
        holds
    }

    /// Holds a modification that becomes several messages until the hypervisor has found that it can be carried out: otherwise rules would
    /// have its actions until they are repaired. `check`: a message that is refused as the whole would be.
    pub(in crate::core) fn holds_modification(
        &mut self,
        incoming: Incoming<'_>,
        check: &[u8],
        now: Instant,
    ) -> bool {
        let holds = self.can_check_first();
        if holds {
            self.hold_until_checked(incoming, check, now);
        }
        holds
    }

    /// Tells whether the hypervisor can check the present message, and has not yet done so. A bundle is checked by its switches.
    fn can_check_first(&self) -> bool {
        let is_known = self.held.is_checked || self.held.is_refusing || self.held.since.is_some();
        let is_up = SwitchSet::of(HUB).minus(self.switches.up()).is_empty();
        !is_known && self.commit.is_none() && is_up
    }

    fn hold_until_checked(&mut self, incoming: Incoming<'_>, check: &[u8], now: Instant) {
        let (origin, sent) = (Some(incoming.origin), Some(incoming.sent.into()));
        let (request, changes) = (Request::Check, Changes::default());
        let hub = SwitchSet::of(HUB);
        let verdicts = &mut self.switches.verdicts;
        let xid = verdicts.push(origin, sent, request, changes, hub, now);
        self.check_at_hub(check, xid);
        let batch = self.switches.verdicts.current_batch();
        self.held.checks_first = true;
        self.hold_until_settled(incoming, batch);
    }

    /// Lets the hypervisor check a message, over OpenFlow 1.5 if only that says it all. `xid`: of the operation that gets the verdict.
    pub(in crate::core) fn check_at_hub(&mut self, message: &[u8], xid: u32) {
        let is_newer =
            lacks_header(message) && self.switches.properties.rounds.links().contains(HUB);
        if is_newer {
            return self.speaking_newer(|core| core.switches.check_part(HUB, message, xid));
        }
        let checked = checkable(message);
        self.switches
            .check_part(HUB, checked.as_deref().unwrap_or(message), xid);
    }

    /// As [`Self::holds_until_gathered`], for a new meter.
    pub(in crate::core) fn holds_meter(&mut self, incoming: Incoming<'_>, now: Instant) -> bool {
        self.moves.gathering.includes_meters && self.holds(incoming, now)
    }

    /// As [`Self::holds_until_gathered`], for what was checked before.
    pub(in crate::core) fn holds(&mut self, incoming: Incoming<'_>, now: Instant) -> bool {
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
        let mut is_checked = std::mem::take(&mut self.held.checks_first);
        for (id, frame) in std::mem::take(&mut self.held.frames) {
            self.held.is_checked = std::mem::take(&mut is_checked);
            self.controller_message(id, &frame, now);
        }
        self.held.is_checked = false;
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
