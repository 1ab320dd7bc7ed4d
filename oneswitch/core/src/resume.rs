//! Moves that go on after a restart: what the journal is told of them, and how they are taken up again.

use crate::api::{MoveStage, HOME};
use crate::journal::moves::{self, Reached, SavedMove};
use crate::ports::{Executor, Move, NOT_SENT};
use crate::Core;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// After a restart a move waits for all switches, but not longer.
const RESUME_LIMIT: Duration = Duration::from_secs(2);

impl Core {
    /// For the journal.
    pub(crate) fn saved_moves(&self) -> Vec<u8> {
        let switch_name = |switch: usize| self.switches[switch].name.clone();
        let saved = self.ports.iter().filter_map(|port| {
            let (moving, is_done) = match (&port.moving, &port.unsaved) {
                (Some(moving), _) => (moving, false),
                (None, Some((_, done))) => (done, true),
                (None, None) => return None,
            };
            let (number, name) = (port.number, &port.name);
            Some(SavedMove::of(number, name, moving, is_done, &switch_name))
        });
        moves::encode(&saved.collect::<Vec<_>>())
    }

    /// Whether the port map is not where a restarted daemon finds it: the journal knew of moves that it does not know.
    pub fn has_unsaved_ports(&self) -> bool {
        self.ports.iter().any(|port| port.unsaved.is_some())
    }

    /// The port map of this revision is where a restarted daemon finds it: what the journal keeps of moves that led to it can go.
    pub fn ports_are_saved(&mut self, revision: u64) {
        for port in self.ports.iter_mut() {
            if port.unsaved.take_if(|(at, _)| *at <= revision).is_some() {
                self.journal.unsettled = true;
            }
        }
    }

    /// Goes on with a move that the journal tells of, before anybody is connected. One that was done has led to where it says, also where
    /// the port map was not saved any more; one to a place that is gone is forgotten.
    pub(crate) fn resume_move(&mut self, saved: &SavedMove, now: Instant) {
        let number = saved.number;
        let goal = self.locate(&saved.switch, &saved.interface);
        let executor = self.executor_named(saved.executor.as_deref().unwrap_or(HOME));
        let (Ok(to), Ok(executor)) = (goal, executor) else {
            warn!(target: "core", port = number, to = %saved.switch, "move: forgotten, since there is no such switch or interface any more");
            return;
        };
        let taken = self.ports.at(&to).is_some_and(|p| p.number != number);
        let named = self.ports.get(number).filter(|p| p.name == saved.name);
        if taken || named.is_none() {
            return;
        }
        if executor != Executor::Home && self.ports.allocate_ingress(number).is_err() {
            return;
        }
        let revision = self.ports.revision + 1;
        let Some(port) = self.ports.get_mut(number) else {
            return;
        };
        let stage = match saved.reached {
            Reached::Old => MoveStage::Preparing,
            Reached::New => MoveStage::Flipping,
            Reached::Done => {
                port.executor_chosen |= port.executor != executor;
                port.executor = executor;
                port.home = to.clone();
                let done = Move::new(to, executor, saved.until);
                port.unsaved = Some((revision, done));
                self.ports.revision = revision;
                return;
            }
        };
        port.moving = Some(Move {
            stage,
            settle: saved.settle,
            grace: saved.grace,
            deadline: Some(now + RESUME_LIMIT),
            counted_before: saved.baseline(),
            ..Move::new(to, executor, saved.until)
        });
        info!(target: "core", port = number, to = %saved.switch, interface = %saved.interface, "move: goes on");
    }

    /// A move that was restored reaches its stage anew once the switches have been compared with what they should have.
    pub(crate) fn take_up(&mut self, number: u32, now: Instant) {
        let in_step = self.is_in_step();
        let moving = self.ports.get_mut(number).and_then(|p| p.moving.as_mut());
        let waiting = moving.filter(|m| m.after_batch == NOT_SENT);
        let ready = waiting.filter(|m| in_step || m.deadline.is_some_and(|d| d <= now));
        if let Some(moving) = ready {
            moving.deadline = None;
            let stage = moving.stage;
            self.enter_stage(number, stage);
        }
    }
}
