//! The interface of an instance to migration, independent of its network function.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nf_arena::{Arena, ArenaBuilder};
use nf_ports::{Mac, MAX_FRAME, MAX_LARGE_FRAME};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{gate::Gate, refusal::Refused, Instance, Loaded, NetworkFunction, Refusal};

pub(super) trait Subject: Send + Sync {
    fn kind(&self) -> &'static str;
    fn arena(&self) -> Result<Arena, Refusal>;
    fn gate(&self) -> &Arc<Gate>;
    /// Returns the indices and addresses of the ports that can send.
    fn live_ports(&self) -> Vec<(usize, Mac)>;
    /// Returns the length of the longest frame that its packets can hold.
    fn longest_frame(&self) -> usize;
    fn configuration(&self) -> Value;
    /// Starts or stops refusing new configurations, since the other instance was started with this one.
    fn keep_configuration(&self, keep: bool);
    /// Prepares to adopt the state of an instance that still uses it.
    fn adopt(&self, state: OwnedFd) -> Result<(), Refusal>;
    /// Returns what the function keeps outside its state.
    fn secrets(&self) -> Result<Option<Zeroizing<Vec<u8>>>, Refusal>;
    /// Gives the function that will take over what the previous instance keeps outside its state.
    fn inherit(&self, secrets: &[u8]) -> Result<(), Refusal>;
    /// Takes over the adopted or copied state.
    fn take_over(&self, repair: bool) -> Result<(), Refusal>;
    /// Frees the memory of the function that the one with the state has replaced.
    fn drop_replaced(&self);
    /// Returns the counters of refusals.
    fn refused(&self) -> Arc<Refused>;
    /// Shows the migration in `status`.
    fn show(&self, migration: Value);
}

/// An instance, and the state that it will take over.
pub(super) struct Moving<N: NetworkFunction> {
    instance: Arc<Instance<N>>,
    pending: Mutex<Option<Arc<Loaded<N>>>>,
    /// The function that the taken-over one has replaced.
    replaced: Mutex<Option<Arc<Loaded<N>>>>,
}

impl<N: NetworkFunction> Moving<N> {
    pub(super) fn new(instance: &Arc<Instance<N>>) -> Self {
        Self {
            instance: Arc::clone(instance),
            pending: Mutex::new(None),
            replaced: Mutex::new(None),
        }
    }

    fn pending(&self) -> MutexGuard<'_, Option<Arc<Loaded<N>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replaced(&self) -> MutexGuard<'_, Option<Arc<Loaded<N>>>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self) -> Result<Arc<Loaded<N>>, Refusal> {
        self.instance
            .loaded()
            .ok_or_else(|| Refusal::new("not-yet", "the instance has no state yet"))
    }
}

impl<N: NetworkFunction> Subject for Moving<N> {
    fn kind(&self) -> &'static str {
        N::KIND
    }

    fn longest_frame(&self) -> usize {
        if N::LARGE_FRAMES {
            MAX_LARGE_FRAME
        } else {
            MAX_FRAME
        }
    }

    fn arena(&self) -> Result<Arena, Refusal> {
        Ok(self.loaded()?.arena.clone())
    }

    fn gate(&self) -> &Arc<Gate> {
        self.instance.gate()
    }

    fn live_ports(&self) -> Vec<(usize, Mac)> {
        self.instance.live_ports()
    }

    fn configuration(&self) -> Value {
        serde_json::to_value(self.instance.config()).unwrap_or_default()
    }

    fn keep_configuration(&self, keep: bool) {
        self.instance.keep_configuration(keep);
    }

    fn adopt(&self, state: OwnedFd) -> Result<(), Refusal> {
        let arena = ArenaBuilder::adopt(state, N::KIND, N::SCHEMA)?;
        let loaded = Loaded::new(arena, self.instance.config())?;
        // Now, because packets wait while it takes over.
        loaded.arena.prefault();
        *self.pending() = Some(Arc::new(loaded));
        Ok(())
    }

    fn secrets(&self) -> Result<Option<Zeroizing<Vec<u8>>>, Refusal> {
        Ok(self.loaded()?.function.secrets())
    }

    fn inherit(&self, secrets: &[u8]) -> Result<(), Refusal> {
        let pending = self.pending().clone();
        let loaded = match pending {
            Some(loaded) => loaded,
            None => self.loaded()?,
        };
        loaded.function.inherit(secrets)
    }

    fn take_over(&self, repair: bool) -> Result<(), Refusal> {
        let _changes = self.instance.changes();
        let pending = self.pending().take();
        let loaded = match pending {
            Some(loaded) => loaded,
            None => self.loaded()?,
        };
        if repair {
            loaded.repairs.run();
        }
        *self.replaced() = self.instance.install(loaded);
        Ok(())
    }

    fn drop_replaced(&self) {
        *self.replaced() = None;
    }

    fn refused(&self) -> Arc<Refused> {
        self.instance.refused()
    }

    fn show(&self, migration: Value) {
        self.instance.note("migration", migration);
    }
}
