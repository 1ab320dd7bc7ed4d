//! The knowledge about waiting flows outside the arena. A move rebuilds all of it from the state.

use std::collections::VecDeque;

use crate::{
    flows::{flag, stage},
    inspection::{Inspection, Refused, Request},
    live::Live,
    prefix::Stored,
    state::State,
};

/// The requests of a replay between two looks at answers and packets.
const STEP: usize = 256;

/// The inspector, and the requests that it is to get.
pub struct Desk<I> {
    pub inspector: Option<I>,
    /// The generation of the inspector that has got everything that was submitted.
    generation: u64,
    replay: Option<Replay>,
    /// Flows with packets that the inspector took no more room for, by number.
    pub backlog: VecDeque<u64>,
    /// When a packet must leave at the latest: the time, the number of its flow, and its index in the prefix.
    pub deadlines: VecDeque<(u64, u64, u8)>,
    pub outstanding: usize,
    /// The time of the latest packet that the inspector has got: its time must not go back.
    pub latest: u64,
    pub restarts: u64,
}

/// The prefixes of all flows on their way to a new inspector.
struct Replay {
    generation: u64,
    /// Sequence, slot, and index in the prefix, in order.
    packets: Vec<(u64, u32, u8)>,
    next: usize,
    /// The packet is there, and the request for a guess after it is not.
    is_guess_due: bool,
}

impl<I: Inspection> Desk<I> {
    pub fn new(inspector: Option<I>) -> Self {
        Self {
            inspector,
            generation: 0,
            replay: None,
            backlog: VecDeque::new(),
            deadlines: VecDeque::new(),
            outstanding: 0,
            latest: 0,
            restarts: 0,
        }
    }

    /// Tells whether there is something to do without packets.
    pub fn is_busy(&self) -> bool {
        !self.deadlines.is_empty()
            || !self.backlog.is_empty()
            || self.outstanding > 0
            || self.is_behind()
    }

    /// Tells whether the inspector has something to answer.
    pub fn is_inspecting(&self) -> bool {
        self.outstanding > 0 || !self.backlog.is_empty() || self.is_behind()
    }

    /// Tells whether the inspector does not know all that it should.
    pub fn is_behind(&self) -> bool {
        self.inspector
            .as_ref()
            .is_some_and(|inspector| inspector.generation() != self.generation)
    }

    /// Forgets another state, and begins to replay this one.
    pub fn begin(&mut self, state: &State, now: u64, wait: u64) {
        self.generation = 0;
        self.replay = None;
        self.backlog.clear();
        self.outstanding = 0;
        self.watch(state, now, wait);
    }

    /// Sets the deadlines of all packets that wait, which are not in the state.
    fn watch(&mut self, state: &State, now: u64, wait: u64) {
        self.deadlines.clear();
        for slot in state.flows.slots() {
            if state.flows.hot(slot).stage != stage::WAITING {
                continue;
            }
            let cold = state.flows.cold(slot);
            if cold.released < cold.stored {
                self.deadlines
                    .push_back((now + wait, cold.id, cold.stored - 1));
            }
        }
    }

    /// Goes on with a replay, or begins one if the inspector is new. True: the inspector knows everything. Deadlines stay.
    pub fn catch_up(&mut self, state: &State, live: &Live) -> bool {
        let Some(inspector) = &self.inspector else {
            return false;
        };
        let generation = inspector.generation();
        if generation == self.generation {
            return true;
        }
        if self
            .replay
            .as_ref()
            .is_none_or(|replay| replay.generation != generation)
        {
            self.restarts += u64::from(self.generation != 0);
            self.outstanding = 0;
            self.backlog.clear();
            self.latest = 0;
            self.replay = Some(Replay::of(state, generation));
        }
        let (Some(replay), Some(inspector)) = (&mut self.replay, &self.inspector) else {
            return false;
        };
        let sent = replay.step(state, inspector);
        self.outstanding += sent.0;
        if !sent.1 || !inspector.replayed(generation) {
            return false;
        }
        self.generation = generation;
        self.replay = None;
        let limit = live.config.inspection.packets;
        let slots = state.flows.slots();
        let late = slots.filter(|slot| is_late(state, *slot, limit));
        let late = late.map(|slot| state.flows.cold(slot).id);
        self.backlog.extend(late);
        true
    }
}

/// Tells whether the inspector is to get more about a flow than the replay had: what could not be submitted during it. A handshake alone is not: it
/// costs the inspector nothing until payload follows.
fn is_late(state: &State, slot: u32, limit: u8) -> bool {
    let hot = state.flows.hot(slot);
    let cold = state.flows.cold(slot);
    if hot.flags & flag::KNOWN != 0 {
        return false;
    }
    if cold.submitted > 0 {
        return cold.submitted < cold.stored || cold.lacks_guess(limit);
    }
    let is_telling = |_, stored: &Stored| stored.is_telling(hot.key.protocol);
    state.prefixes.find(&cold, is_telling).is_some()
}

impl Replay {
    fn of(state: &State, generation: u64) -> Self {
        let mut packets = Vec::new();
        for slot in state.flows.slots() {
            let mut cold = state.flows.cold(slot);
            if cold.submitted == 0 {
                continue;
            }
            cold.answered = 0;
            state.flows.put_cold(slot, &cold);
            let submitted = cold.submitted;
            state.prefixes.heads(&cold, |index, stored, _| {
                if index < submitted {
                    packets.push((stored.sequence, slot, index));
                }
                index + 1 < submitted
            });
        }
        packets.sort_unstable();
        Self {
            generation,
            packets,
            next: 0,
            is_guess_due: false,
        }
    }

    /// Sends some packets. Returns the number of requests, and whether all were sent.
    fn step(&mut self, state: &State, inspector: &impl Inspection) -> (usize, bool) {
        let mut sent = 0;
        while let Some((sequence, slot, index)) = self.packets.get(self.next) {
            if sent >= STEP {
                return (sent, false);
            }
            let cold = state.flows.cold(*slot);
            // The flow may have ended since then, and its slot belong to another one.
            let stored = state.prefixes.packet(&cold, *index);
            let Some((stored, frame)) = stored.filter(|(stored, _)| stored.sequence == *sequence)
            else {
                self.next += 1;
                self.is_guess_due = false;
                continue;
            };
            let request = if self.is_guess_due {
                Request::GiveUp {
                    flow: cold.id,
                    sequence: *sequence,
                }
            } else {
                stored.request(cold.id, &frame, 0)
            };
            match inspector.replay(self.generation, request) {
                Ok(()) => sent += 1,
                Err(Refused::Later) => return (sent, false),
                Err(Refused::Never) => {}
            }
            let is_last = index + 1 == cold.submitted;
            if !self.is_guess_due && is_last && cold.given_up != 0 {
                self.is_guess_due = true;
            } else {
                self.is_guess_due = false;
                self.next += 1;
            }
        }
        (sent, true)
    }
}
