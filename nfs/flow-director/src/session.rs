//! The state that the function's side and the worker share: requests and events of the present session.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nf_offload::{Event, Request};

/// Requests that wait for the worker.
pub(crate) const WAITING: usize = 4096;

/// A call at the card that takes longer has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The state of the table.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The number of the session, which grows with each opening.
    pub(crate) session: u64,
    /// Whether the card has only rules of this session.
    pub(crate) is_clear: bool,
    pub(crate) requests: VecDeque<Request>,
    pub(crate) events: VecDeque<Event>,
    /// The start of the call at the card that has not returned.
    pub(crate) calling: Option<Instant>,
    /// Whether the worker has ended.
    pub(crate) has_ended: bool,
    /// Whether the function has ended.
    pub(crate) is_closed: bool,
}

impl State {
    /// Returns the reason for which nothing can be asked of the card.
    pub(crate) fn obstacle(&self) -> Option<String> {
        if self.has_ended {
            return Some("the thread of the network card's rules has ended".to_owned());
        }
        let since = self.calling?.elapsed();
        (since >= PATIENCE).then(|| {
            format!(
                "the network card has not answered for {} s; packets take the slow path",
                since.as_secs()
            )
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the worker.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, at most for this time.
    pub(crate) fn wait(&self, most: Duration) {
        let is_idle = |state: &mut State| {
            !state.is_closed && state.requests.is_empty() && (state.is_clear || state.session == 0)
        };
        drop(self.changed.wait_timeout_while(self.state(), most, is_idle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_hangs_and_a_thread_that_has_ended_are_obstacles() {
        let mut state = State {
            calling: Some(Instant::now()),
            ..State::default()
        };
        assert_eq!(state.obstacle(), None);
        state.calling = Instant::now().checked_sub(PATIENCE);
        let why = state.obstacle().unwrap_or_default();
        assert!(why.contains("has not answered for 5 s"), "{why}");
        state.has_ended = true;
        let why = state.obstacle().unwrap_or_default();
        assert!(why.contains("has ended"), "{why}");
    }
}
