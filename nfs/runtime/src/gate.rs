//! The gate: controls which packets a worker may process, with a handshake for changes. Migration moves an instance by it.
//!
//! Each worker is in a [`Mode`]. The controller gives all workers [`Order`]s at once; each worker takes its own between two batches and answers,
//! if it must stop sending only after everything it sent has left. When [`Gate::order`] returns, the orders are in force everywhere.
//!
//! A worker's packets come, in this order, from the injected sources, from its store, and from its ports. It takes no packet from
//! further back while an earlier one has, or may yet have, packets: so no packet overtakes another that arrived by the same queue.
//!
//! ```text
//! mode    injected sources      store           ports
//! Run     processed             processed       processed when the others are empty, else into the store
//! Hold    processed             kept            into the store
//! Relay   into the sink         into the sink   into the sink when the others are empty
//! ```
//!
//! A part of the held frames may be released before the rest ([`Order::Fence`], [`Order::Release`]): it is processed when no source has a frame now.
//!
//! If a store or a sink has no room, frames stay in the port's queue. The port counts frames lost there.

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
pub use store::{FrameSink, FrameSource, FrameStore, FrameWatch, MemoryStore, Taken};

/// A worker's treatment of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It processes them all.
    Run,
    /// It processes injected packets and stores those from its ports.
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

/// Lets the worker that ticks do so at once although it is idle: for threads of a network function that have something for it.
#[derive(Clone, Default)]
pub struct Waker(Option<Arc<Gate>>);

impl Waker {
    pub(crate) fn of(gate: &Arc<Gate>) -> Self {
        Self(Some(Arc::clone(gate)))
    }

    pub fn wake(&self) {
        if let Some(gate) = &self.0 {
            gate.wake_all();
        }
    }
}

/// An order to a worker.
pub enum Order {
    /// [`Mode::Run`].
    Run,
    /// [`Mode::Hold`], with a store for frames from ports. A store that still has frames stays in use, and this one is dropped.
    Hold(Box<dyn FrameStore>),
    /// [`Mode::Relay`], into this sink. Refused while a worker has sources: their frames would appear twice if the move is rolled back.
    Relay(Box<dyn FrameSink>),
    /// Offers frames from ports to this watch before they are stored or relayed, until [`Order::Run`].
    Watch(Arc<dyn FrameWatch>),
    /// Sends frames, each by the port with this index, behind the worker's earlier frames. A full port drops them.
    Send(Vec<(usize, Box<[u8]>)>),
    /// Adds a source of frames after the existing ones.
    Inject(Box<dyn FrameSource>),
    /// Sets the fence after the frames in the store now.
    Fence,
    /// Lets frames before the last [`Order::Fence`] be processed.
    Release,
    /// Delays the answer until the frames that the worker has sent have left.
    Flush,
    /// Delays the answer until each port of the worker was found empty after this order, and its frames are where they belong.
    Sweep,
    /// Ends the worker.
    Stop,
}

/// The handshake between the controller and the workers.
pub struct Gate {
    desks: Vec<Desk>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The desk of one worker.
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
    /// The number of batches of orders given, and the number answered.
    given: u64,
    answered: u64,
    /// The problem reported by the last answer.
    problem: Option<String>,
    sources: usize,
    ended: bool,
}

impl Gate {
    /// Creates a gate for this many workers, all in this mode.
    ///
    /// # Errors
    /// If no file descriptors are left.
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

    /// Returns the mode ordered last.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.state().mode
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each worker the orders that `orders` returns for its index; a worker takes them together. Returns when all have answered.
    ///
    /// # Errors
    /// If a worker did not answer in time: the orders are on their way all the same, so ask again (`Sweep`, for example) or abandon the instance.
    /// If the orders are refused and none was given (code `busy`), see [`Order::Relay`]. If sent frames cannot leave, because the interface takes no more: the orders are in force.
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
            let detail = "packets of the previous move are still being processed; retry";
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

    /// Waits until no worker has an injected source left: each was read to its end.
    ///
    /// # Errors
    /// If the time is over.
    pub fn wait_injected(&self, timeout: Duration) -> Result<(), Refusal> {
        self.wait(self.state(), timeout, |_, worker| {
            (worker.sources == 0).then_some(Ok(()))
        })
    }

    /// Waits until `done` is true for each worker, and returns the first problem.
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

    /// Wakes all workers: a condition that they check when idle may have changed.
    pub fn wake_all(&self) {
        (0..self.desks.len()).for_each(|index| self.wake(index));
    }

    fn wake(&self, index: usize) {
        // Fails when the bell has 2^64 - 2 unread rings, which are noticed as well.
        let _ = rustix::io::write(&self.desks[index].bell, &1_u64.to_ne_bytes());
    }

    // ---- for workers

    /// Returns a descriptor that is readable when the worker must look around.
    pub(crate) fn bell(&self, worker: usize) -> BorrowedFd<'_> {
        self.desks[worker].bell.as_fd()
    }

    pub(crate) fn silence(&self, worker: usize) {
        let _ = rustix::io::read(&self.desks[worker].bell, &mut [0; 8]);
    }

    /// Tells whether there are orders. One load, for every turn of the worker's loop.
    #[inline]
    pub(crate) fn is_waiting(&self, worker: usize) -> bool {
        self.desks[worker].waiting.load(Ordering::Acquire)
    }

    /// Takes the orders, and the number to answer with.
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

    /// Sets the worker's number of sources.
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
    /// Tells whether the answer must wait until sent frames have left. This holds if the worker will not send by itself any more: with queueing
    /// disciplines, or over another path, another sender's frames could overtake them.
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
            Self::Watch(_)
            | Self::Send(_)
            | Self::Inject(_)
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
