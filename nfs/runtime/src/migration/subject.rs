//! The interface of an instance to migration, independent of its network function.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use nf_arena::{Arena, ArenaBuilder};
use serde_json::Value;

use crate::{gate::Gate, refusal::Refused, Instance, Loaded, NetworkFunction, OldState, Refusal};

pub(super) trait Subject: Send + Sync {
    fn kind(&self) -> &'static str;
    fn arena(&self) -> Result<Arena, Refusal>;
    fn gate(&self) -> &Gate;
    fn configuration(&self) -> Value;
    /// Starts or stops refusing new configurations, since the other instance was started with this one.
    fn keep_configuration(&self, keep: bool);
    /// Prepares to adopt the state of an instance that still uses it.
    fn adopt(&self, state: OwnedFd) -> Result<(), Refusal>;
    /// Takes over the adopted or copied state.
    fn take_over(&self, repair: bool) -> Result<(), Refusal>;
    /// Returns the counters of refusals.
    fn refused(&self) -> Arc<Refused>;
    /// Shows the migration in `status`.
    fn show(&self, migration: Value);
}

/// An instance, and the state that it will take over.
pub(super) struct Moving<N: NetworkFunction> {
    instance: Arc<Instance<N>>,
    pending: Mutex<Option<Pending<N>>>,
}

enum Pending<N> {
    Adopted(Arc<Loaded<N>>),
    /// State of another schema: its content moves to the fresh state once nothing changes it any more.
    Upgrade(OldState),
}

impl<N: NetworkFunction> Moving<N> {
    pub(super) fn new(instance: &Arc<Instance<N>>) -> Self {
        Self {
            instance: Arc::clone(instance),
            pending: Mutex::new(None),
        }
    }

    fn fresh(&self) -> Result<Loaded<N>, Refusal> {
        Loaded::new(
            ArenaBuilder::fresh(N::KIND, N::SCHEMA)?,
            self.instance.config(),
        )
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

    fn arena(&self) -> Result<Arena, Refusal> {
        Ok(self.loaded()?.arena.clone())
    }

    fn gate(&self) -> &Gate {
        self.instance.gate()
    }

    fn configuration(&self) -> Value {
        serde_json::to_value(self.instance.config()).unwrap_or_default()
    }

    fn keep_configuration(&self, keep: bool) {
        self.instance.keep_configuration(keep);
    }

    fn adopt(&self, state: OwnedFd) -> Result<(), Refusal> {
        let again = state.try_clone().map_err(|error| {
            Refusal::new("system", format!("cannot duplicate a descriptor: {error}"))
        })?;
        let adopted = ArenaBuilder::adopt(state, N::KIND, N::SCHEMA).map_err(Refusal::from);
        let pending = match adopted.and_then(|arena| Loaded::new(arena, self.instance.config())) {
            Ok(loaded) => Pending::Adopted(Arc::new(loaded)),
            Err(differs) if differs.code == "schema" => {
                // Tries the upgrade now, on state that is thrown away, since it must not fail after the commit. The refusal that names the region is the clearer one.
                let old = OldState::new(again, N::KIND);
                N::upgrade(&old, &self.fresh()?.function).map_err(|_| differs)?;
                Pending::Upgrade(old)
            }
            Err(refusal) => return Err(refusal),
        };
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
        Ok(())
    }

    fn take_over(&self, repair: bool) -> Result<(), Refusal> {
        let _changes = self.instance.changes();
        let loaded = match self
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            Some(Pending::Adopted(loaded)) => loaded,
            Some(Pending::Upgrade(old)) => {
                let fresh = self.fresh()?;
                N::upgrade(&old, &fresh.function)?;
                Arc::new(fresh)
            }
            None => self.loaded()?,
        };
        if repair {
            loaded.repairs.run();
        }
        self.instance.install(loaded);
        Ok(())
    }

    fn refused(&self) -> Arc<Refused> {
        self.instance.refused()
    }

    fn show(&self, migration: Value) {
        self.instance.note("migration", migration);
    }
}
