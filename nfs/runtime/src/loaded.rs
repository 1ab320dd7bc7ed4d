//! A network function on its state, and the place where workers find it.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use nf_arena::{Arena, ArenaBuilder, Clock};

use crate::{
    state::{Repairs, StateBuilder},
    NetworkFunction, Refusal,
};

/// A network function and the state it was created on.
pub struct Loaded<N> {
    pub function: N,
    pub arena: Arena,
    pub clock: Clock,
    pub repairs: Repairs,
}

impl<N: NetworkFunction> Loaded<N> {
    /// Creates the function on this arena, without telling it that the state is its own: see [`Instance::install`](crate::Instance::install).
    ///
    /// # Errors
    /// If the configuration is wrong, or the state incompatible.
    pub fn new(arena: ArenaBuilder, config: N::Config) -> Result<Self, Refusal> {
        let mut state = StateBuilder::new(arena);
        let function = N::create(config, &mut state)?;
        let (arena, clock, repairs) = state.finish()?;
        Ok(Self {
            function,
            arena,
            clock,
            repairs,
        })
    }
}

/// A function whose configuration has been accepted, before any port is opened.
pub struct Prepared<N: NetworkFunction> {
    pub(crate) loaded: Loaded<N>,
    pub(crate) config: N::Config,
    pub(crate) ports: usize,
    pub(crate) is_adopted: bool,
}

impl<N: NetworkFunction> Prepared<N> {
    /// Creates the function for this number of ports, on fresh state, or on that of an instance that has ended; nothing else may use that any more.
    ///
    /// # Errors
    /// If the configuration is wrong, or the state incompatible.
    pub fn new(config: N::Config, ports: usize, arena: Option<OwnedFd>) -> Result<Self, Refusal> {
        N::fits(&config, ports)?;
        let is_adopted = arena.is_some();
        let arena = match arena {
            Some(file) => ArenaBuilder::adopt(file, N::KIND, N::SCHEMA)?,
            None => ArenaBuilder::fresh(N::KIND, N::SCHEMA)?,
        };
        Ok(Self {
            loaded: Loaded::new(arena, config.clone())?,
            config,
            ports,
            is_adopted,
        })
    }
}

/// The function that the workers run; they check for another one whenever they take orders.
pub(crate) struct Slot<N>(Mutex<Option<Arc<Loaded<N>>>>);

impl<N> Slot<N> {
    pub(crate) fn empty() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn get(&self) -> Option<Arc<Loaded<N>>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the function that was there.
    pub(crate) fn set(&self, loaded: Arc<Loaded<N>>) -> Option<Arc<Loaded<N>>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.replace(loaded)
    }
}
