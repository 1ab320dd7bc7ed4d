//! The state that the owner's threads and the supervisor share.

use std::sync::{
    atomic::{AtomicBool, AtomicU64, Ordering},
    Mutex, MutexGuard, OnceLock, PoisonError,
};

use crate::{life::Life, quarantine::Quarantine, rings::Garbage, Catalogue};

/// The stage of the program's life, which limits its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is none.
    #[default]
    Down,
    /// It waits for what flows have sent so far.
    Replay,
    Live,
}

#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The number of programs started.
    pub(crate) generation: AtomicU64,
    /// The phase is Live: for a look without the lock.
    pub(crate) live: AtomicBool,
    pub(crate) catalogue: OnceLock<Catalogue>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) life: Option<Life>,
    pub(crate) phase: Phase,
    pub(crate) quarantine: Quarantine,
    /// Why the program is being killed.
    pub(crate) sentence: Option<String>,
    pub(crate) last_end: Option<String>,
    pub(crate) accused: u64,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_phase(&self, state: &mut State, phase: Phase) {
        state.phase = phase;
        self.live.store(phase == Phase::Live, Ordering::Release);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

impl State {
    /// Kills a program that wrote what cannot be. The supervisor sees its end.
    pub(crate) fn condemn(&mut self, garbage: Garbage) {
        self.sentence
            .get_or_insert(format!("it wrote garbage: {garbage}"));
        if let Some(life) = &mut self.life {
            life.kill();
        }
    }
}
