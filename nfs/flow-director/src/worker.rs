//! The work at the card: one request after another, each of which may take milliseconds.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use nf_offload::{Event, FlowKey, Refused, Request, RuleId};
use nf_ports::{is_refusal, Match, Matcher, Moment};

use crate::session::Shared;

/// Removals that one wait at the card covers.
const TOGETHER: usize = 256;
/// The time between two looks whether packets with a removed mark were processed, or until a failed call is repeated.
const LOOK: Duration = Duration::from_millis(2);
/// The time that an idle worker sleeps at most.
const IDLE: Duration = Duration::from_secs(1);

/// The worker's treatment of the rules that it finds.
#[derive(Debug)]
enum Clearing {
    Done,
    /// The card may have rules. `is_lost`: the writer must be told that it has lost its own.
    Due {
        is_lost: bool,
    },
    /// Packets that have arrived until this moment may carry marks.
    Waiting {
        is_lost: bool,
        moment: Moment,
    },
}

/// A rule that the card does not have any more, and what to tell once no packet carries its mark.
#[derive(Clone, Copy, Debug)]
struct Removed {
    rule: RuleId,
    told: Event,
}

/// The work of a [`FlowDirector`](crate::FlowDirector).
pub struct Worker {
    matcher: Box<dyn Matcher>,
    shared: Arc<Shared>,
    session: u64,
    clearing: Clearing,
    rules: HashMap<RuleId, Match>,
    /// Rules that the card has or does not have: the answer to their installation is missing. They are removed, and refused then.
    doubtful: Vec<(RuleId, Refused)>,
    /// Rules that the card has removed since the last wait.
    removed: Vec<Removed>,
    /// Rules whose marks packets may carry that arrived until a moment.
    leaving: VecDeque<(Moment, Vec<Removed>)>,
}

impl Worker {
    pub(crate) fn new(matcher: Box<dyn Matcher>, shared: Arc<Shared>) -> Self {
        Self {
            matcher,
            shared,
            session: 0,
            clearing: Clearing::Done,
            rules: HashMap::new(),
            doubtful: Vec::new(),
            removed: Vec::new(),
            leaving: VecDeque::new(),
        }
    }

    /// Works until the table is dropped.
    pub(crate) fn run(mut self) {
        while !self.shared.state().is_closed {
            if !self.turn() {
                match self.is_waiting() {
                    true => std::thread::sleep(LOOK),
                    false => self.shared.wait(IDLE),
                }
            }
        }
        // Packets must not get marks any more. If that fails, the next process removes the rules.
        let _ = self.remove_all();
    }

    /// Tells whether something will be due without a change by the function.
    fn is_waiting(&self) -> bool {
        let is_leaving =
            !self.doubtful.is_empty() || !self.removed.is_empty() || !self.leaving.is_empty();
        let is_clearing = !matches!(self.clearing, Clearing::Done);
        is_leaving || is_clearing || !self.shared.state().requests.is_empty()
    }

    /// Handles one request. False: there is nothing to do now.
    pub fn turn(&mut self) -> bool {
        let Some(request) = self.next() else {
            return self.clear();
        };
        let is_idle = request.is_none();
        self.remove_doubtful();
        if let Some(request) = request {
            if !self.handle(request) {
                self.put_back(request);
                return false;
            }
        }
        if !self.removed.is_empty() && (is_idle || self.removed.len() >= TOGETHER) {
            if let Ok(moment) = self.call(|matcher| matcher.wait()) {
                self.leaving
                    .push_back((moment, std::mem::take(&mut self.removed)));
            }
        }
        let has_left = self.tell_effective();
        !is_idle || has_left
    }

    /// Takes the next request, if there is one. None: the card must be cleared first.
    fn next(&mut self) -> Option<Option<Request>> {
        let mut state = self.shared.state();
        if state.session != self.session {
            self.session = state.session;
            self.clearing = Clearing::Due { is_lost: false };
        }
        matches!(self.clearing, Clearing::Done).then(|| state.requests.pop_front())
    }

    /// Puts a failed request back: later ones must not overtake it.
    fn put_back(&self, request: Request) {
        let mut state = self.shared.state();
        if state.session == self.session {
            state.requests.push_front(request);
        }
    }

    /// Calls the card, and notes since when.
    fn call<R>(&mut self, call: impl FnOnce(&mut dyn Matcher) -> io::Result<R>) -> io::Result<R> {
        self.shared.state().calling = Some(Instant::now());
        let result = call(&mut *self.matcher);
        self.shared.state().calling = None;
        if let Err(error) = &result {
            if is_gone(error) && matches!(self.clearing, Clearing::Done) {
                self.clearing = Clearing::Due { is_lost: true };
            }
        }
        result
    }

    /// Tells an event of the present session.
    fn tell(&self, event: Event) {
        let mut state = self.shared.state();
        if state.session == self.session {
            state.events.push_back(event);
        }
    }

    /// Removes all rules, and waits until no packet carries their marks. False: nothing more can be done now.
    fn clear(&mut self) -> bool {
        match std::mem::replace(&mut self.clearing, Clearing::Done) {
            Clearing::Done => true,
            Clearing::Due { is_lost } => {
                // A card that is gone has no rules, and marks no packet.
                let done = match self.remove_all() {
                    Err(error) if !is_gone(&error) => Err(error),
                    _ => Ok(()),
                };
                let moment = done.and_then(|()| self.call(|matcher| matcher.wait()));
                self.clearing = match moment {
                    Ok(moment) => Clearing::Waiting { is_lost, moment },
                    Err(_) => Clearing::Due { is_lost },
                };
                matches!(self.clearing, Clearing::Waiting { .. })
            }
            Clearing::Waiting { is_lost, moment } => {
                if !self.matcher.is_past(&moment) {
                    self.clearing = Clearing::Waiting { is_lost, moment };
                    return false;
                }
                let mut state = self.shared.state();
                if state.session == self.session {
                    state.is_clear = true;
                    if is_lost {
                        state.requests.clear();
                        state.events.clear();
                        state.events.push_back(Event::Reset);
                    }
                }
                true
            }
        }
    }

    fn remove_all(&mut self) -> io::Result<()> {
        for (rule, flow) in self.rules.clone() {
            self.call(|matcher| matcher.remove(&flow))?;
            self.rules.remove(&rule);
        }
        self.doubtful.clear();
        self.removed.clear();
        self.leaving.clear();
        self.call(|matcher| matcher.clear())
    }

    /// Handles a request. False: it must be repeated.
    fn handle(&mut self, request: Request) -> bool {
        match request {
            // The mark is the target's number: the function knows its meaning.
            Request::PutTarget(..) | Request::DropTarget(_) => {}
            Request::Install(rule, flow, target, ..) => {
                let flow = match_of(&flow);
                match self.call(|matcher| matcher.put(&flow, target.0)) {
                    Ok(()) => {
                        self.rules.insert(rule, flow);
                        self.tell(Event::Installed(rule));
                    }
                    Err(error) if is_refusal(&error) => {
                        self.tell(Event::Refused(rule, reason(&error)));
                    }
                    Err(error) => {
                        self.rules.insert(rule, flow);
                        self.doubtful.push((rule, reason(&error)));
                    }
                }
            }
            Request::Remove(rule) => match self.rules.get(&rule).copied() {
                Some(_) if !self.remove(rule, Event::Effective(rule)) => return false,
                Some(_) => {}
                None if self.is_leaving(rule) => {}
                None => self.tell(Event::Effective(rule)),
            },
        }
        true
    }

    /// Removes a rule that the card may have. False: that must be repeated.
    fn remove(&mut self, rule: RuleId, told: Event) -> bool {
        let Some(flow) = self.rules.get(&rule).copied() else {
            return true;
        };
        let is_removed = self.call(|matcher| matcher.remove(&flow)).is_ok();
        if is_removed {
            self.rules.remove(&rule);
            self.removed.push(Removed { rule, told });
        }
        is_removed
    }

    fn remove_doubtful(&mut self) {
        for (rule, why) in std::mem::take(&mut self.doubtful) {
            if !self.remove(rule, Event::Refused(rule, why)) {
                self.doubtful.push((rule, why));
            }
        }
    }

    fn is_leaving(&self, rule: RuleId) -> bool {
        let batches = self.leaving.iter().flat_map(|(_, rules)| rules);
        let mut all = self.removed.iter().chain(batches);
        all.any(|removed| removed.rule == rule)
    }

    /// Tells the removals that are effective. False: none.
    fn tell_effective(&mut self) -> bool {
        let mut any = false;
        while let Some((moment, _)) = self.leaving.front() {
            if !self.matcher.is_past(moment) {
                break;
            }
            let all = self.leaving.pop_front().into_iter();
            for removed in all.flat_map(|(_, rules)| rules) {
                self.tell(removed.told);
            }
            any = true;
        }
        any
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.state().has_ended = true;
    }
}

fn match_of(flow: &FlowKey) -> Match {
    Match {
        source: flow.source,
        destination: flow.destination,
        source_port: flow.source_port,
        destination_port: flow.destination_port,
        protocol: flow.protocol as u8,
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

/// Returns the meaning of a card's refusal.
fn reason(error: &io::Error) -> Refused {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::E2BIG | libc::ENOMEM) => Refused::Full,
        Some(libc::EEXIST) => Refused::Collision,
        Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ETIMEDOUT) => Refused::Rate,
        _ => Refused::Unsupported,
    }
}
