//! The behaviour of an idle worker: it polls for a moment where packets come fast, else it sleeps.

use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::gate::{Gate, Intake};

/// The time for which a busy worker keeps polling: about what it costs to sleep and to be woken, so that it never costs more than twice the better choice.
const SPIN: Duration = Duration::from_micros(5);
/// The longest sleep. Nothing depends on it.
const LONG: Duration = Duration::from_secs(10);
/// The sleep while waiting for something that cannot signal: a relay that another process writes.
const SHORT: Duration = Duration::from_micros(100);
/// The retry interval for an interface that is down or gone.
const DOWN: Duration = Duration::from_millis(100);

pub(crate) struct Idle {
    now: Instant,
    /// The time since which nothing came.
    since: Option<Instant>,
    /// Whether the last wait was so short that polling would have been as good.
    fast: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            now: Instant::now(),
            since: None,
            fast: false,
        }
    }
}

impl Idle {
    /// Returns the time of the last wait or work.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn busy(&mut self) {
        self.now = Instant::now();
        self.since = None;
    }

    /// Waits until there may be something to do, at most until `tick`. Returns whether another thread has rung the bell.
    pub(crate) fn wait(
        &mut self,
        gate: &Gate,
        worker: usize,
        intake: &Intake,
        tick: Option<Instant>,
        patient: bool,
    ) -> bool {
        self.now = Instant::now();
        let since = *self.since.get_or_insert(self.now);
        if self.fast && self.now - since < SPIN {
            std::hint::spin_loop();
            return false;
        }
        let down = intake.errors().iter().any(Option::is_some);
        let longest = match (patient, down) {
            (false, _) => SHORT,
            (true, true) => DOWN,
            (true, false) => LONG,
        };
        let until_tick = tick.map(|tick| tick.saturating_duration_since(self.now));
        let timeout = until_tick.map_or(longest, |tick| tick.min(longest));
        let before = self.now;
        let is_rung = sleep(gate, worker, intake, timeout, patient);
        self.now = Instant::now();
        self.fast = self.now - before < SPIN;
        self.since = None;
        is_rung
    }
}

fn sleep(gate: &Gate, worker: usize, intake: &Intake, timeout: Duration, patient: bool) -> bool {
    let bell = PollFd::from_borrowed_fd(gate.bell(worker), PollFlags::IN);
    let mut descriptors = vec![bell];
    // While frames stay in the ports for lack of room elsewhere, a port's descriptor would wake it constantly.
    if patient {
        let queues = intake.queues().iter().zip(intake.errors());
        descriptors.extend(
            queues
                .filter(|(_, error)| error.is_none())
                .flat_map(|(queue, _)| [queue.descriptor(), queue.second_descriptor()])
                .flatten()
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)),
        );
    }
    let timeout = Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // Interrupted or not, the caller checks again.
    let _ = poll(&mut descriptors, Some(&timeout));
    let is_rung = !descriptors[0].revents().is_empty();
    if is_rung {
        gate.silence(worker);
    }
    is_rung
}
