//! One verdict per message from several switches.
//!
//! A message goes to all its switches at once and changes the virtual tables at once. At the end of each round every affected switch gets a
//! barrier; when all have answered, the round's *batch* is settled: refused messages are undone (later ones are undone and redone around
//! them, as the switches never saw the refused ones), each refusal goes to its controller once, and everything that waited for the batch
//! (barrier replies, moves) proceeds.
//!
//! Packet-outs change nothing, so only their verdict is not requested at once: each would cost its switch a barrier, and us another
//! wake-up, while the packet is in flight. A batch of packet-outs only stays open until something waits for it, a switch refuses one, or it
//! is [`PATIENCE`] old.

use crate::api::{Bridge, ControllerId, SwitchIndex};
use crate::journal::records::Journal;
use crate::model::in_flight::InFlight;
use crate::model::rule::{Rule, RuleKey};
use crate::model::tables::Change;
use crate::model::truth::{Changes, Request, Truth};
use crate::switch_set::SwitchSet;
use openflow13::{ErrorCode, ErrorMessage, Message};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use folds::Vanished;
pub use folds::{each_counted, CountedRules};
pub use settled::{Forwarded, Refused, Settled, MANY};

/// Set in the xid of everything except operations, which are found by counting from the oldest one.
pub const NOT_AN_OPERATION: u32 = 0x8000_0000;

/// Limits of time and number for packet-outs without a verdict, unless something waits for it.
pub const PATIENCE: Duration = Duration::from_millis(100);
const PATIENT: usize = 1_024;

/// The sender of a message, and its place among the controller's replies.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub controller: ControllerId,
    pub xid: u32,
    pub place: u64,
}

#[derive(Debug)]
struct Operation {
    /// `None`: our own (installing copies, repairing).
    origin: Option<Origin>,
    /// The controller's message, if the switches got another one.
    original: Option<Box<[u8]>>,
    request: Request,
    changes: Changes,
    at: Instant,
    targets: SwitchSet,
    /// Switches to repair if it is refused, because messages to them relied on it.
    copied_to: SwitchSet,
    /// Whether all its switches disconnected.
    abandoned: bool,
    /// Its expected error, provided that all earlier messages have their expected verdict.
    expected: Option<ErrorCode>,
    /// Whether it went to one switch only, for its error.
    in_part: bool,
    /// Switches that have told of changes by it (switches/learning.rs).
    executed: SwitchSet,
    refused_by: SwitchSet,
    refusal: Option<Refusal>,
    /// Counters of what it created, or since it reset them.
    folded: Vec<Vanished>,
    /// Whether it is part of a bundle.
    is_joined: bool,
    /// The number of the first operation of the same message, or bundle.
    message: u64,
    /// Whether it carries out a modification in another way.
    is_modification: bool,
    /// Whether it is refused because an earlier operation of the same modification is, which tells the error.
    follows_refusal: bool,
    /// The reason why the rule that it removes has timed out.
    expired: Option<u8>,
    /// Estimate of its bytes.
    size: usize,
}

impl Operation {
    /// Estimates the bytes of a message and of its changes.
    fn size(original: Option<&[u8]>, request: &Request, changes: &Changes) -> usize {
        let changed = changes.flows.len() + changes.groups.len() + changes.meters.len();
        std::mem::size_of::<Self>()
            + original.map_or(0, <[u8]>::len)
            + request.size()
            + changed * std::mem::size_of::<Rule>()
    }

    fn forget(&mut self, switch: SwitchIndex) {
        self.abandoned |= self.targets == SwitchSet::of(switch);
        self.targets.remove(switch);
    }

    /// Decides as one bridge with exactly `truth` would, if the switches could not: all had disconnected, or had other rules, such as
    /// copies of refused ones.
    fn decide(&mut self, truth: &Truth) {
        if let Some(refusal) = &self.refusal {
            if truth.disproves(&self.request, refusal.error) {
                self.refusal = None;
            }
        }
        if self.refusal.is_some() {
            return;
        }
        let abandoned = self.abandoned && self.origin.is_some();
        let error = abandoned
            .then(|| truth.refuses(&self.request))
            .flatten()
            .or(self.expected);
        self.refusal = error.map(|error| Refusal {
            error,
            data: wire(0, &self.request).into(),
        });
    }

    /// Refuses it if `refused`, the message of an earlier operation that was refused, is its own: a message is refused as a whole, once.
    fn follow(&mut self, refused: &mut Option<(u64, ErrorCode)>) {
        if !self.is_modification {
            return;
        }
        match (*refused, &self.refusal) {
            (Some((message, error)), _) if message == self.message => {
                self.follows_refusal = true;
                let data = Box::default();
                self.refusal.get_or_insert(Refusal { error, data });
            }
            (_, Some(refusal)) => *refused = Some((self.message, refusal.error)),
            _ => {}
        }
    }

    /// Tells whether the switches' verdict contradicts the expectation, or is missing.
    fn is_unforeseen(&self) -> bool {
        self.refusal.is_some() != self.expected.is_some() || self.abandoned
    }
}

fn wire(xid: u32, request: &Request) -> Vec<u8> {
    match request {
        Request::Flow { message, .. } => {
            crate::wire::wire(xid, &Message::FlowMod((**message).clone()))
        }
        Request::Group { message, .. } => {
            crate::wire::wire(xid, &Message::GroupMod(message.clone()))
        }
        Request::Meter(message) => crate::wire::wire(xid, &Message::MeterMod(message.clone())),
        Request::TlvTable(message) => crate::wire::wire(xid, &message.message()),
        Request::Rule(_)
        | Request::PacketOut
        | Request::Part(_)
        | Request::Check
        | Request::Other => Vec::new(),
    }
}

/// The error of the first switch that refused a message.
#[derive(Debug)]
struct Refusal {
    error: ErrorCode,
    /// The message as the switch got it.
    data: Box<[u8]>,
}

#[derive(Debug)]
struct Batch {
    number: u64,
    barrier: u32,
    operations: usize,
    awaited: Bridges,
}

/// Bridges of some switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridges {
    pub virt: SwitchSet,
    pub edge: SwitchSet,
    /// `virt` over OpenFlow 1.5.
    pub newer: SwitchSet,
}

impl Bridges {
    fn is_empty(self) -> bool {
        self.virt.is_empty() && self.edge.is_empty() && self.newer.is_empty()
    }

    fn of(&mut self, bridge: Bridge) -> &mut SwitchSet {
        match bridge {
            Bridge::Virt => &mut self.virt,
            Bridge::Edge => &mut self.edge,
        }
    }

    fn contains(mut self, switch: SwitchIndex, bridge: Bridge) -> bool {
        self.of(bridge).contains(switch)
    }
}

#[derive(Debug, Default)]
pub struct Verdicts {
    operations: VecDeque<Operation>,
    /// xid of `operations[0]`.
    first: u32,
    /// Estimate of the operations' bytes.
    bytes: usize,
    batches: VecDeque<Batch>,
    /// Number of all operations so far.
    pushed: u64,
    /// Operations that no barrier covers yet.
    open: usize,
    /// Bridges that got a message of the open batch.
    touched: Bridges,
    /// Whether the open batch must be closed: it changes something, or something waits for it.
    due: bool,
    /// The number of the first operation of a bundle that is being tried. The open batch stays open until then.
    joined: Option<u64>,
    /// The number of the first operation of a message that modifies rules in another way.
    modification: Option<u64>,
    /// Whether that message is for all tables.
    modifies_all_tables: bool,
    /// Whether someone wants to know which rules have changed.
    pub is_watched: bool,
    /// The first packet-out of the open batch.
    since: Option<Instant>,
    /// The newest batch that something waits for.
    awaited: u64,
    closed: u64,
    settled: u64,
}

impl Verdicts {
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    /// Returns the bytes of the messages in flight and their changes.
    pub fn bytes_in_flight(&self) -> usize {
        self.bytes
    }

    /// Returns the batch to wait for so that everything sent until now is settled.
    pub fn current_batch(&mut self) -> u64 {
        self.due = true;
        let batch = self.closed + u64::from(self.is_open());
        self.awaited = self.awaited.max(batch);
        self.awaited
    }

    /// Returns the batch of the next message.
    pub fn next_batch(&self) -> u64 {
        self.closed + 1
    }

    /// Returns the newest settled batch.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    pub fn is_settled(&self, batch: u64) -> bool {
        batch <= self.settled
    }

    /// Tells whether a bridge has not answered a barrier of `batch` or of an older one.
    pub fn is_awaited(&self, switch: SwitchIndex, bridge: Bridge, batch: u64) -> bool {
        let mut closed = self.batches.iter().take_while(|b| b.number <= batch);
        closed.any(|b| b.awaited.contains(switch, bridge))
            || batch > self.closed && self.touched.contains(switch, bridge)
    }

    fn is_open(&self) -> bool {
        self.open > 0 || !self.touched.is_empty()
    }

    /// Records an operation and returns its xid. `original`: the controller's message, if another one is sent.
    pub fn push(
        &mut self,
        origin: Option<Origin>,
        original: Option<Box<[u8]>>,
        request: Request,
        changes: Changes,
        targets: SwitchSet,
        at: Instant,
    ) -> u32 {
        let xid = self.first.wrapping_add(self.operations.len() as u32) & !NOT_AN_OPERATION;
        if matches!(request, Request::PacketOut) {
            self.since.get_or_insert(at);
        } else {
            self.due = true;
        }
        let size = Operation::size(original.as_deref(), &request, &changes);
        self.bytes += size;
        self.operations.push_back(Operation {
            origin,
            original,
            request,
            changes,
            at,
            targets,
            copied_to: SwitchSet::EMPTY,
            abandoned: false,
            expected: None,
            in_part: false,
            executed: SwitchSet::EMPTY,
            refused_by: SwitchSet::EMPTY,
            refusal: None,
            folded: Vec::new(),
            is_joined: self.joined.is_some(),
            message: self.joined.or(self.modification).unwrap_or(self.pushed),
            is_modification: self.modification.is_some(),
            follows_refusal: false,
            expired: None,
            size,
        });
        self.open += 1;
        self.due |= self.open >= PATIENT;
        self.pushed += 1;
        self.touched.virt = self.touched.virt.union(targets);
        xid
    }

    /// Marks the latest operation as sent to one switch (or none, if it is disconnected) for its refusal, `error`, and not applied to the
    /// virtual tables. If it does not overlap after all, because the overlapping rules were refused, it is applied then, and all switches
    /// are repaired.
    pub fn expect_refusal(&mut self, error: ErrorCode) {
        if let Some(latest) = self.operations.back_mut() {
            latest.expected = Some(error);
            latest.in_part = true;
            latest.abandoned = latest.targets.is_empty();
        }
    }

    /// Gives the reason why the rule that the latest operation removes has timed out.
    pub fn expires(&mut self, reason: u8) {
        if let Some(latest) = self.operations.back_mut() {
            latest.expired = Some(reason);
        }
    }

    /// Makes the next operations those of one message that modifies rules, until [`Self::end_modification`].
    pub fn begin_modification(&mut self, of_all_tables: bool) {
        self.modification = Some(self.pushed);
        self.modifies_all_tables = of_all_tables;
    }

    pub fn is_modifying(&self) -> bool {
        self.modification.is_some()
    }

    pub fn modifies_all_tables(&self) -> bool {
        self.is_modifying() && self.modifies_all_tables
    }

    pub fn end_modification(&mut self) {
        self.modification = None;
    }

    /// Marks `switches` for repair if messages in flight are refused, because they were sent copies of the virtual tables.
    pub fn adopt(&mut self, switches: SwitchSet) {
        self.operations
            .iter_mut()
            .for_each(|o| o.copied_to = o.copied_to.union(switches));
    }

    /// Does the same as [`Self::adopt`] for a switch that was compared: messages sent to it have their own verdict.
    pub fn adopt_others(&mut self, switch: SwitchIndex) {
        for operation in &mut self.operations {
            if !operation.targets.contains(switch) {
                operation.copied_to.insert(switch);
            }
        }
    }

    /// Returns what messages change that `switch` got since `sequence`, or refused.
    pub fn in_flight_at(&self, switch: SwitchIndex, sequence: u64) -> InFlight {
        let mut found = InFlight::default();
        let first = self.pushed - self.operations.len() as u64;
        for (number, operation) in (first..).zip(&self.operations) {
            let later = number >= sequence || operation.refused_by.contains(switch);
            if later && operation.targets.contains(switch) {
                found.add(&operation.changes);
            }
        }
        found
    }

    /// Returns the changes of all messages without a verdict.
    pub fn all_in_flight(&self) -> InFlight {
        let mut found = InFlight::default();
        self.operations.iter().for_each(|o| found.add(&o.changes));
        found
    }

    /// Returns the messages that `switch` got since operation number `since`, and those of a bundle, which it gets at its commit.
    pub(in crate::switches) fn requests_since(
        &self,
        switch: SwitchIndex,
        since: u64,
    ) -> impl Iterator<Item = &Request> {
        let first = self.pushed - self.operations.len() as u64;
        let numbered = (first..).zip(&self.operations);
        let later = numbered.filter(move |(number, o)| {
            (*number >= since || o.is_joined) && o.targets.contains(switch)
        });
        later.map(|(_, o)| &o.request)
    }

    /// Notes that `switch` has changed rules because of operation `xid`.
    pub fn executed(&mut self, xid: u32, switch: SwitchIndex) {
        let index = (xid.wrapping_sub(self.first) & !NOT_AN_OPERATION) as usize;
        if let Some(operation) = self.operations.get_mut(index) {
            operation.executed.insert(switch);
        }
    }

    /// Tells whether a message that `switch` has not carried out yet writes a rule. Of a bundle, it tells only once.
    pub fn will_write(&self, switch: SwitchIndex, key: &RuleKey) -> bool {
        let executed = |o: &&Operation| o.executed.contains(switch);
        let is_committed = self.operations.iter().filter(executed).any(|o| o.is_joined);
        let ahead = |o: &&Operation| !(executed(o) || o.is_joined && is_committed);
        let is_it = |change: &Change| change.after.as_ref().is_some_and(|rule| rule.key == *key);
        let mut sent = self
            .operations
            .iter()
            .filter(|o| o.targets.contains(switch));
        sent.any(|o| o.request.adds() && ahead(&o) && o.changes.flows.iter().any(is_it))
    }

    /// Returns the number of operations so far.
    pub fn sequence(&self) -> u64 {
        self.pushed
    }

    /// Tells whether a change made at `time` can be in flight.
    pub fn may_be_in_flight(&self, time: Instant) -> bool {
        self.oldest_change().is_some_and(|oldest| time >= oldest.at)
    }

    /// Tells whether anything but packet-outs is in flight.
    pub fn changes_in_flight(&self) -> bool {
        self.oldest_change().is_some()
    }

    fn oldest_change(&self) -> Option<&Operation> {
        self.operations
            .iter()
            .find(|o| !matches!(o.request, Request::PacketOut))
    }

    /// Records a message other than an operation that the batch's barrier must cover.
    pub fn touch(&mut self, switch: SwitchIndex, bridge: Bridge) {
        self.due = true;
        self.touched.of(bridge).insert(switch);
    }

    /// Returns when the open batch is due by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + PATIENCE)
    }

    pub fn hurry_overdue(&mut self, now: Instant) {
        self.due |= self.deadline().is_some_and(|deadline| deadline <= now);
    }

    /// Closes the open batch if it is due; returns the bridges to send a barrier with `barrier` as xid.
    pub fn close(&mut self, barrier: u32) -> Option<Bridges> {
        if self.joined.is_some() || !std::mem::take(&mut self.due) {
            return None;
        }
        // The only switch of a batch may have disconnected since.
        if !self.is_open() && self.awaited <= self.closed {
            return None;
        }
        self.since = None;
        self.closed += 1;
        let awaited = std::mem::take(&mut self.touched);
        self.batches.push_back(Batch {
            number: self.closed,
            barrier,
            operations: std::mem::take(&mut self.open),
            awaited,
        });
        Some(awaited)
    }

    /// Records an error of `switch` about operation `xid`; returns false if that operation does not exist.
    pub fn refuse(&mut self, xid: u32, switch: SwitchIndex, error: ErrorMessage) -> bool {
        let index = (xid.wrapping_sub(self.first) & !NOT_AN_OPERATION) as usize;
        let closed = self.operations.len() - self.open;
        let Some(operation) = self.operations.get_mut(index) else {
            return false;
        };
        self.due |= index >= closed;
        operation.refused_by.insert(switch);
        operation.refusal.get_or_insert(Refusal {
            error: error.error,
            data: error.data,
        });
        true
    }

    pub fn barrier_reply(&mut self, xid: u32, switch: SwitchIndex, bridge: Bridge) {
        if let Some(batch) = self.batches.iter_mut().find(|b| b.barrier == xid) {
            batch.awaited.of(bridge).remove(switch);
        }
    }

    /// Stops waiting for a disconnected bridge (it is synchronised again when it reconnects).
    pub fn forget(&mut self, switch: SwitchIndex, bridge: Bridge) {
        for batch in &mut self.batches {
            batch.awaited.of(bridge).remove(switch);
        }
        self.touched.of(bridge).remove(switch);
        if bridge == Bridge::Virt {
            self.operations.iter_mut().for_each(|o| o.forget(switch));
        }
    }

    /// Settles the oldest batch if all its barriers are answered.
    pub fn settle(&mut self, truth: &mut Truth, journal: &mut Journal) -> Option<Settled> {
        self.batches.front().filter(|b| b.awaited.is_empty())?;
        let batch = self.batches.pop_front()?;
        let mut settled = Settled::default();
        if self
            .operations
            .iter()
            .take(batch.operations)
            .any(Operation::is_unforeseen)
        {
            let believed = self.removed_rules();
            self.redo(truth, batch.operations);
            settled.compare_removed(believed, self.removed_rules());
        }
        let begun = journal.length();
        let joins = |o: &Operation| o.is_joined;
        let joined = self.operations.range(..batch.operations).any(joins);
        let first = self.pushed - self.operations.len() as u64;
        let operations = self.operations.drain(..batch.operations);
        for (number, operation) in (first..).zip(operations) {
            self.bytes -= operation.size;
            settled.add(number, operation, self.is_watched, journal);
        }
        if joined {
            journal.join(begun);
        }
        self.first = self.first.wrapping_add(batch.operations as u32) & !NOT_AN_OPERATION;
        self.settled = batch.number;
        Some(settled)
    }

    fn removed_rules(&self) -> Vec<Arc<Rule>> {
        let changes = self.operations.iter().flat_map(|o| &o.changes.flows);
        let removals = changes.filter(|c| c.after.is_none());
        removals.filter_map(|c| c.before.clone()).collect()
    }

    /// Reapplies all operations, without the refused ones of the oldest `batch` and, beyond it, without those expected to be refused.
    fn redo(&mut self, truth: &mut Truth, batch: usize) {
        for operation in self.operations.iter_mut().rev() {
            truth.revert(std::mem::take(&mut operation.changes));
        }
        let mut refused_message = None;
        for (index, operation) in self.operations.iter_mut().enumerate() {
            if operation.request.checks_overlap() {
                let overlaps = truth.forbids_overlap(&operation.request);
                operation.expected = overlaps.then_some(ErrorCode::FLOW_MOD_FAILED_OVERLAP);
            }
            let refused = if index < batch {
                operation.decide(truth);
                operation.follow(&mut refused_message);
                operation.refusal.is_some()
            } else {
                operation.expected.is_some()
            };
            if !refused {
                operation.changes = truth.apply(&operation.request, operation.at);
                operation.folded.iter().for_each(|f| f.add_to(truth));
            }
        }
    }
}

mod folds;
mod joined;
mod newer;
mod settled;
#[cfg(test)]
mod tests;
