//! Which packets a worker may process, and the handshake by which that changes: what migration moves an instance with.
//!
//! Each worker is in a [`Mode`]. Whoever controls gives all workers [`Order`]s at once; each takes its own between two batches and answers;
//! where it is to send no more, after everything that it sent has left. When [`Gate::order`] returns, the orders are in force everywhere.
//!
//! A worker's packets come, in this order, from the sources that were injected, from its store, and from its ports. It never takes one from
//! further back while there is one, or may yet be one, further in front: so no packet overtakes another that came in by the same queue.
//!
//! ```text
//! mode    injected sources      store           ports
//! Run     processed             processed       processed when the others are empty, else into the store
//! Hold    processed             kept            into the store
//! Relay   into the sink         into the sink   into the sink when the others are empty
//! ```
//!
//! A part of what is held may be let go before the rest ([`Order::Fence`], [`Order::Release`]): it is processed when no source has a frame now.
//!
//! Where a store or a sink has no room, frames stay in the port's queue. What is lost there, the port counts.

mod intake;
mod release;
mod store;

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{eventfd, EventfdFlags},
    fd::{AsFd, BorrowedFd, OwnedFd},
};

use crate::Refusal;

pub(crate) use intake::Intake;
pub use store::{FrameSink, FrameSource, FrameStore, MemoryStore, Taken};

/// What a worker does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It processes them.
    Run,
    /// It processes those that are injected and keeps what its ports deliver.
    Hold,
    /// It processes none: all go into a sink.
    Relay,
}

impl Mode {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Hold => "hold",
            Self::Relay => "relay",
        }
    }
}

/// What a worker is told.
pub enum Order {
    /// [`Mode::Run`].
    Run,
    /// [`Mode::Hold`], with a store for what ports deliver. One that has frames already stays in use, and this one is dropped.
    Hold(Box<dyn FrameStore>),
    /// [`Mode::Relay`], into this sink. Not while a worker has sources: what comes out of them would come out twice if the move is given up.
    Relay(Box<dyn FrameSink>),
    /// One more source of frames, behind those that it has.
    Inject(Box<dyn FrameSource>),
    /// Remembers what is in the store now.
    Fence,
    /// What was in the store at the last [`Order::Fence`] may be processed.
    Release,
    /// The answer waits until what the worker has sent has left.
    Flush,
    /// The answer waits until each port of the worker was found empty after this, and what was received is where it belongs.
    Sweep,
    /// The worker ends.
    Stop,
}

/// The handshake between whoever controls and the workers.
pub struct Gate {
    desks: Vec<Desk>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What only one worker looks at.
struct Desk {
    bell: OwnedFd,
    waiting: AtomicBool,
}

struct State {
    mode: Mode,
    workers: Vec<WorkerState>,
}

#[derive(Default)]
struct WorkerState {
    orders: Vec<Order>,
    /// Batches of orders given, and answered.
    given: u64,
    answered: u64,
    /// Why the last answer was none.
    problem: Option<String>,
    sources: usize,
    ended: bool,
}

impl Gate {
    /// For so many workers, all in this mode already.
    ///
    /// # Errors
    /// No more file descriptors.
    pub fn new(workers: usize, mode: Mode) -> Result<Arc<Self>, Refusal> {
        let desk = |_| {
            let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
            bell.map(|bell| Desk {
                bell,
                waiting: AtomicBool::new(false),
            })
        };
        let desks = (0..workers).map(desk).collect::<Result<_, _>>();
        let desks = desks
            .map_err(|error| Refusal::new("system", format!("cannot make an eventfd: {error}")))?;
        Ok(Arc::new(Self {
            desks,
            state: Mutex::new(State {
                mode,
                workers: (0..workers).map(|_| WorkerState::default()).collect(),
            }),
            changed: Condvar::new(),
        }))
    }

    #[must_use]
    pub fn workers(&self) -> usize {
        self.desks.len()
    }

    /// The mode that was ordered last.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.state().mode
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each worker the orders that `orders` makes for its index; they are taken together. Returns when all have answered.
    ///
    /// # Errors
    /// A worker did not answer in time: the orders are on their way all the same, so ask again (`Sweep`, say) or give up the instance.
    /// They are refused, and none is given (code `busy`), see [`Order::Relay`]. Or what a worker sent cannot leave, because its interface takes nothing more: its orders are in force.
    pub fn order(
        &self,
        timeout: Duration,
        mut orders: impl FnMut(usize) -> Vec<Order>,
    ) -> Result<(), Refusal> {
        let all: Vec<_> = (0..self.workers()).map(&mut orders).collect();
        let mut state = self.state();
        let relays = all
            .iter()
            .flatten()
            .any(|order| matches!(order, Order::Relay(_)));
        if relays && state.workers.iter().any(|worker| worker.sources > 0) {
            let detail = "packets of the move before are not all processed yet; ask again";
            return Err(Refusal::new("busy", detail));
        }
        let mut awaited = Vec::with_capacity(state.workers.len());
        for (index, given) in all.into_iter().enumerate() {
            if let Some(mode) = given.iter().rev().find_map(Order::mode) {
                state.mode = mode;
            }
            let worker = &mut state.workers[index];
            worker.orders.extend(given);
            worker.given += 1;
            awaited.push(worker.given);
            self.desks[index].waiting.store(true, Ordering::Release);
            self.wake(index);
        }
        self.wait(state, timeout, |index, worker| {
            (worker.answered >= awaited[index]).then(|| worker.problem.clone().map_or(Ok(()), Err))
        })
    }

    /// Waits until no worker has a source left that was injected: each was read to its end.
    ///
    /// # Errors
    /// Not in time.
    pub fn wait_injected(&self, timeout: Duration) -> Result<(), Refusal> {
        self.wait(self.state(), timeout, |_, worker| {
            (worker.sources == 0).then_some(Ok(()))
        })
    }

    /// Waits until `done` says so of each worker, and gives the first problem.
    fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        timeout: Duration,
        done: impl Fn(usize, &WorkerState) -> Option<Result<(), String>>,
    ) -> Result<(), Refusal> {
        let end = Instant::now() + timeout;
        for index in 0..self.desks.len() {
            loop {
                let worker = &state.workers[index];
                match done(index, worker) {
                    Some(Ok(())) => break,
                    Some(Err(problem)) => return Err(Refusal::new("worker", problem)),
                    None if worker.ended => {
                        let detail = format!("worker {index} has ended");
                        return Err(Refusal::new("worker", detail));
                    }
                    None => {}
                }
                let Some(left) = end.checked_duration_since(Instant::now()) else {
                    let detail = format!("worker {index} did not answer within {timeout:?}");
                    return Err(Refusal::new("timeout", detail));
                };
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        Ok(())
    }

    /// Has all workers look around: something that they ask for when they are idle may have changed.
    pub fn wake_all(&self) {
        (0..self.desks.len()).for_each(|index| self.wake(index));
    }

    fn wake(&self, index: usize) {
        // It fails when the bell has rung 2^64 - 2 times unheard: heard it is all the same.
        let _ = rustix::io::write(&self.desks[index].bell, &1_u64.to_ne_bytes());
    }

    // ---- for workers

    /// Readable when the worker is to look around.
    pub(crate) fn bell(&self, worker: usize) -> BorrowedFd<'_> {
        self.desks[worker].bell.as_fd()
    }

    pub(crate) fn silence(&self, worker: usize) {
        let _ = rustix::io::read(&self.desks[worker].bell, &mut [0; 8]);
    }

    /// Are there orders? One load, for every turn of the worker's loop.
    #[inline]
    pub(crate) fn is_waiting(&self, worker: usize) -> bool {
        self.desks[worker].waiting.load(Ordering::Acquire)
    }

    /// The orders, and the number to answer with.
    pub(crate) fn take(&self, worker: usize) -> (Vec<Order>, u64) {
        self.desks[worker].waiting.store(false, Ordering::Release);
        let state = &mut self.state().workers[worker];
        (std::mem::take(&mut state.orders), state.given)
    }

    pub(crate) fn answer(&self, worker: usize, number: u64, problem: Option<String>) {
        let state = &mut self.state().workers[worker];
        state.answered = number;
        state.problem = problem;
        self.changed.notify_all();
    }

    /// How many sources the worker has.
    pub(crate) fn set_sources(&self, worker: usize, count: usize) {
        self.state().workers[worker].sources = count;
        self.changed.notify_all();
    }

    pub(crate) fn set_ended(&self, worker: usize) {
        self.state().workers[worker].ended = true;
        self.changed.notify_all();
    }
}

impl Order {
    /// Is what the worker has sent to have left when it answers? So it is where it sends nothing of its own from here on: with queueing disciplines, and
    /// over another path, what somebody else sends could overtake it.
    pub(crate) fn flushes(&self) -> bool {
        matches!(
            self,
            Self::Hold(_) | Self::Relay(_) | Self::Flush | Self::Stop
        )
    }

    fn mode(&self) -> Option<Mode> {
        match self {
            Self::Run => Some(Mode::Run),
            Self::Hold(_) => Some(Mode::Hold),
            Self::Relay(_) => Some(Mode::Relay),
            Self::Inject(_)
            | Self::Fence
            | Self::Release
            | Self::Flush
            | Self::Sweep
            | Self::Stop => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};

    use super::*;

    #[test]
    fn a_bell_rings_until_it_is_heard() {
        let gate = Gate::new(1, Mode::Run).unwrap();
        let rings = || {
            let mut bell = [PollFd::from_borrowed_fd(gate.bell(0), PollFlags::IN)];
            poll(&mut bell, Some(&Timespec::default())).unwrap() == 1
        };
        assert!(!rings());
        gate.wake_all();
        gate.wake_all();
        assert!(rings());
        gate.silence(0);
        assert!(!rings());
    }
}
