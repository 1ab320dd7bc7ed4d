//! The flows that have, get or lose a rule. One thread changes it; its rows survive with the instance.
//!
//! ```text
//!           install             Installed            remove             Effective
//!  (free) ----------> Asked ----------------> Live ----------> Leaving ------------> (free)
//!                       | Refused: (free)                  Reset, from any state: (free)
//! ```
//!
//! The table counts per backend and direction ([`CounterId`]), not per rule. A row becomes free after its rule's last packets were told, and a backend's
//! number is given to another one only when no row has it ([`Ledger::names`]): so packets count for the backend that they reached.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use bytemuck::{Pod, Zeroable};

use crate::{
    CounterId, Direction, Event, FlowKey, Listing, Refused, Request, RuleId, Target, TargetId,
};

/// Rule numbers of one epoch: enough for 30,000 installs per second during a year.
const RULES_PER_EPOCH: u64 = 1 << 40;

/// The states of a row.
mod state {
    pub const FREE: u8 = 0;
    pub const ASKED: u8 = 1;
    pub const LIVE: u8 = 2;
    pub const LEAVING: u8 = 3;
}

/// A flow with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Row {
    flow: FlowKey,
    rule: u64,
    /// The approximate number of the rule's packets.
    packets: u64,
    target: u32,
    backend: u16,
    state: u8,
    is_answer: u8,
}

impl Row {
    fn direction(&self) -> Direction {
        match self.is_answer {
            0 => Direction::ToBackend,
            _ => Direction::ToClient,
        }
    }

    /// Tells whether its rule may act.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.state != state::FREE
    }

    #[must_use]
    pub fn flow(&self) -> FlowKey {
        self.flow
    }

    #[must_use]
    pub fn backend(&self) -> u16 {
        self.backend
    }
}

/// The packets and bytes of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tally {
    /// The totals that the table told last.
    pub told: [u64; 2],
    /// The packets and bytes that rules have carried for the counter's present backend.
    pub carried: [u64; 2],
}

/// A counter's growth that is being added, complete before any part of it takes effect: after a kill, the next life adds it again, with the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Addition {
    /// The counter's number, from 1 on; 0: none.
    counter: u64,
    tally: Tally,
}

impl Addition {
    pub const WORDS: usize = 5;

    /// Returns its words; the first is `counter`.
    #[must_use]
    pub fn words(&self) -> [u64; Self::WORDS] {
        bytemuck::cast(*self)
    }

    #[must_use]
    pub fn of_words(words: [u64; Self::WORDS]) -> Self {
        bytemuck::cast(words)
    }
}

/// The memory of a ledger, which survives with the instance. Writes take effect in the order of the calls, and within a call word by word.
pub trait Rows {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, row: usize) -> Row;
    fn put(&mut self, row: usize, value: &Row);

    fn addition(&self) -> Addition;
    /// Writes `counter` last, unless it is 0, then first.
    fn put_addition(&mut self, value: &Addition);

    /// Returns the number of counters; theirs are the numbers from 0 on.
    fn counters(&self) -> usize;
    fn tally(&self, counter: CounterId) -> Tally;
    fn put_tally(&mut self, counter: CounterId, value: &Tally);

    /// Tells whether the totals told last include what earlier instances' rules have carried.
    fn has_baseline(&self) -> bool;
    fn put_baseline(&mut self);
}

/// A flow that a rule carries.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub flow: FlowKey,
    pub backend: u16,
    pub target: TargetId,
    pub direction: Direction,
}

/// A change of which the function must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rule carries the flow: its record must stay.
    Used(FlowKey),
    /// The flow has no rule any more, effectively.
    Free(FlowKey),
    Refused(FlowKey, Refused),
    /// Another writer has replaced this one, which must not send either.
    Replaced,
    /// All rules were lost.
    Reset,
}

/// The flows with rules.
pub struct Ledger<R> {
    rows: R,
    places: HashMap<FlowKey, usize>,
    rules: HashMap<RuleId, usize>,
    /// The flow of a connection's answers, by that of its requests.
    answers: HashMap<FlowKey, FlowKey>,
    free: Vec<usize>,
    next: u64,
    targets: BTreeMap<TargetId, Target>,
    /// Targets to be dropped with their last flow.
    leaving: BTreeSet<TargetId>,
    queue: VecDeque<Request>,
}

impl<R: Rows> Ledger<R> {
    /// Opens the ledger of a new instance, or that of an earlier life in its rows; then [`reconcile`](Self::reconcile) must follow.
    pub fn open(mut rows: R, epoch: u64) -> Self {
        complete_addition(&mut rows);
        let mut ledger = Self {
            places: HashMap::with_capacity(rows.len()),
            rules: HashMap::with_capacity(rows.len()),
            answers: HashMap::new(),
            free: Vec::with_capacity(rows.len()),
            next: epoch * RULES_PER_EPOCH,
            targets: BTreeMap::new(),
            leaving: BTreeSet::new(),
            queue: VecDeque::new(),
            rows,
        };
        for place in (0..ledger.rows.len()).rev() {
            let row = ledger.rows.get(place);
            if row.state == state::FREE {
                ledger.free.push(place);
            } else {
                ledger.places.insert(row.flow, place);
                ledger.rules.insert(RuleId(row.rule), place);
            }
        }
        ledger
    }

    /// Compares the ledger with the table's content (`Driver::list`): adopts the rules that a row knows, removes all others, and adds what the counters
    /// have grown by. Writes all targets: call it whenever the table was opened.
    pub fn reconcile(&mut self, listing: &Listing) {
        self.catch_up(&listing.carried);
        let targets = self.targets.iter();
        self.queue = targets
            .map(|(id, target)| Request::PutTarget(*id, *target))
            .collect();
        let listed: HashSet<RuleId> = listing.rules.iter().map(|each| each.rule).collect();
        for place in 0..self.rows.len() {
            let mut row = self.rows.get(place);
            let rule = RuleId(row.rule);
            match row.state {
                state::FREE => continue,
                state::ASKED | state::LIVE if listed.contains(&rule) => row.state = state::LIVE,
                _ => {
                    // The previous life may have polled its events; the table answers the removal of any rule.
                    row.state = state::LEAVING;
                    self.queue.push_back(Request::Remove(rule));
                }
            }
            self.rows.put(place, &row);
        }
        let rules = listing.rules.iter().map(|each| each.rule);
        let unknown = rules.filter(|rule| !self.rules.contains_key(rule));
        self.queue.extend(unknown.map(Request::Remove));
    }

    /// Adds what counters have grown by since an earlier life; for a new instance, the totals of an earlier one are the baseline.
    fn catch_up(&mut self, carried: &[(CounterId, u64, u64)]) {
        let totals: HashMap<CounterId, [u64; 2]> = carried
            .iter()
            .map(|(counter, packets, bytes)| (*counter, [*packets, *bytes]))
            .collect();
        let has_baseline = self.rows.has_baseline();
        for counter in self.counters() {
            let total = totals.get(&counter).copied().unwrap_or_default();
            match has_baseline {
                true => self.add(counter, total),
                false => self.put_told(counter, total),
            }
        }
        self.rows.put_baseline();
    }

    fn counters(&self) -> impl Iterator<Item = CounterId> {
        (0..=u16::MAX).take(self.rows.counters()).map(CounterId)
    }

    fn put_told(&mut self, counter: CounterId, told: [u64; 2]) {
        let tally = self.rows.tally(counter);
        self.rows.put_tally(counter, &Tally { told, ..tally });
    }

    /// Returns the backend of a flow whose rule may act. No other may be chosen for it.
    #[must_use]
    pub fn backend_of(&self, flow: &FlowKey) -> Option<u16> {
        self.places
            .get(flow)
            .map(|place| self.rows.get(*place).backend)
    }

    /// Tells whether a rule that may act leads to a backend: its number must not be given to another one.
    #[must_use]
    pub fn names(&self, backend: u16) -> bool {
        self.places
            .values()
            .any(|place| self.rows.get(*place).backend == backend)
    }

    /// Iterates over the flows that a rule carries.
    pub fn live(&self) -> impl Iterator<Item = Live> + '_ {
        let rows = self.places.values().map(|place| self.rows.get(*place));
        rows.filter(|row| row.state == state::LIVE).map(|row| Live {
            flow: row.flow,
            backend: row.backend,
            target: TargetId(row.target),
            direction: row.direction(),
        })
    }

    /// Notes the flow of a connection's answers: it has a rule only as long as the connection's requests have one.
    pub fn pair(&mut self, flow: FlowKey, answers: FlowKey) {
        self.answers.insert(flow, answers);
    }

    /// Returns the approximate number of packets of a connection's rules, those of its answers included.
    #[must_use]
    pub fn packets_of(&self, flow: &FlowKey) -> u64 {
        [Some(flow), self.answers.get(flow)]
            .into_iter()
            .flatten()
            .filter_map(|flow| self.places.get(flow))
            .map(|place| self.rows.get(*place).packets)
            .sum()
    }

    /// Tells whether a rule that may act has this target, which must not get another meaning then.
    #[must_use]
    pub fn uses(&self, target: TargetId) -> bool {
        self.places
            .values()
            .any(|place| self.rows.get(*place).target == target.0)
    }

    /// Writes a target, if it is new or has changed.
    pub fn put_target(&mut self, id: TargetId, target: Target) {
        self.leaving.remove(&id);
        if self.targets.insert(id, target) != Some(target) {
            self.queue.push_back(Request::PutTarget(id, target));
        }
    }

    /// Removes the rules of a target, and then the target.
    pub fn drop_target(&mut self, id: TargetId) {
        if self.targets.remove(&id).is_none() {
            return;
        }
        self.leaving.insert(id);
        let rows: Vec<Row> = self
            .places
            .values()
            .map(|place| self.rows.get(*place))
            .collect();
        for row in rows.iter().filter(|row| row.target == id.0) {
            self.remove(&row.flow);
        }
        self.drop_if_unused(id);
    }

    /// Asks for a rule. False: the flow has one already, the target does not exist, the backend has no counter, or the ledger is full.
    pub fn install(
        &mut self,
        flow: FlowKey,
        backend: u16,
        target: TargetId,
        direction: Direction,
    ) -> bool {
        if self.places.contains_key(&flow) || !self.targets.contains_key(&target) {
            return false;
        }
        let Some(counter) = CounterId::of(backend, direction) else {
            return false;
        };
        let Some(place) = self.free.pop() else {
            return false;
        };
        let rule = RuleId(self.next);
        self.next += 1;
        self.rows.put(
            place,
            &Row {
                flow,
                rule: rule.0,
                packets: 0,
                target: target.0,
                backend,
                state: state::ASKED,
                is_answer: u8::from(direction == Direction::ToClient),
            },
        );
        self.places.insert(flow, place);
        self.rules.insert(rule, place);
        self.queue
            .push_back(Request::Install(rule, flow, target, counter, direction));
        true
    }

    /// Removes the rule of a flow, if it has one, and that of its answers: the flow is idle, lighter than another one, or its record has ended.
    pub fn remove(&mut self, flow: &FlowKey) {
        if let Some(answers) = self.answers.remove(flow) {
            self.remove_one(&answers);
        }
        self.remove_one(flow);
    }

    fn remove_one(&mut self, flow: &FlowKey) {
        let Some(&place) = self.places.get(flow) else {
            return;
        };
        let mut row = self.rows.get(place);
        if !matches!(row.state, state::ASKED | state::LIVE) {
            return;
        }
        row.state = state::LEAVING;
        self.rows.put(place, &row);
        self.queue.push_back(Request::Remove(RuleId(row.rule)));
    }

    /// Returns the requests that the driver has not taken, in their order.
    pub fn requests(&mut self) -> &[Request] {
        self.queue.make_contiguous()
    }

    /// Removes the first `count` of [`requests`](Self::requests), which the driver has taken.
    pub fn taken(&mut self, count: usize) {
        self.queue.drain(..count.min(self.queue.len()));
    }

    /// Handles an event. Events of rules that the ledger does not know (any more) change nothing.
    pub fn handle(&mut self, event: Event) -> Option<Outcome> {
        match event {
            Event::Reset => return Some(self.reset()),
            Event::Refused(_, Refused::StaleWriter) => return Some(Outcome::Replaced),
            Event::Installed(rule) => {
                let (place, mut row) = self.row_of(rule)?;
                if row.state == state::ASKED {
                    row.state = state::LIVE;
                    self.rows.put(place, &row);
                }
            }
            Event::Refused(rule, why) => {
                // The table answers a removal that is asked for already; that concerns no row then.
                let (place, row) = self.row_of(rule)?;
                self.release(place);
                return Some(Outcome::Refused(row.flow, why));
            }
            Event::Counted(rule, packets) => {
                let (place, mut row) = self.row_of(rule)?;
                let is_used = packets > row.packets;
                row.packets = packets;
                self.rows.put(place, &row);
                return is_used.then_some(Outcome::Used(row.flow));
            }
            Event::Idle(rule) => {
                let (_, row) = self.row_of(rule)?;
                self.remove(&row.flow);
            }
            Event::Carried(counter, packets, bytes) => self.add(counter, [packets, bytes]),
            Event::Effective(rule) => {
                let (place, row) = self.row_of(rule)?;
                self.release(place);
                return Some(Outcome::Free(row.flow));
            }
        }
        None
    }

    fn row_of(&self, rule: RuleId) -> Option<(usize, Row)> {
        let place = *self.rules.get(&rule)?;
        Some((place, self.rows.get(place)))
    }

    /// Adds what a counter's totals have grown by. Totals that have fallen were lost: they count from here on.
    fn add(&mut self, counter: CounterId, totals: [u64; 2]) {
        if usize::from(counter.0) >= self.rows.counters() {
            return;
        }
        let mut tally = self.rows.tally(counter);
        if tally.told == totals {
            return;
        }
        let have_fallen = totals.iter().zip(tally.told).any(|(now, told)| *now < told);
        for part in (0..2).filter(|_| !have_fallen) {
            tally.carried[part] += totals[part] - tally.told[part];
        }
        tally.told = totals;
        self.rows.put_addition(&Addition {
            counter: u64::from(counter.0) + 1,
            tally,
        });
        complete_addition(&mut self.rows);
    }

    fn reset(&mut self) -> Outcome {
        for place in self.places.values().copied().collect::<Vec<_>>() {
            self.rows.put(place, &Row::zeroed());
            self.free.push(place);
        }
        for counter in self.counters() {
            self.put_told(counter, [0, 0]);
        }
        self.places.clear();
        self.rules.clear();
        self.answers.clear();
        self.leaving.clear();
        self.queue = self
            .targets
            .iter()
            .map(|(id, target)| Request::PutTarget(*id, *target))
            .collect();
        Outcome::Reset
    }

    fn release(&mut self, place: usize) {
        let row = self.rows.get(place);
        self.places.remove(&row.flow);
        self.rules.remove(&RuleId(row.rule));
        self.rows.put(place, &Row::zeroed());
        self.free.push(place);
        self.drop_if_unused(TargetId(row.target));
    }

    fn drop_if_unused(&mut self, id: TargetId) {
        if self.leaving.contains(&id) && !self.uses(id) {
            self.leaving.remove(&id);
            self.queue.push_back(Request::DropTarget(id));
        }
    }
}

fn complete_addition<R: Rows>(rows: &mut R) {
    let addition = rows.addition();
    let Some(counter) = addition.counter.checked_sub(1) else {
        return;
    };
    let counter = CounterId(counter as u16);
    rows.put_tally(counter, &addition.tally);
    rows.put_addition(&Addition::zeroed());
}
