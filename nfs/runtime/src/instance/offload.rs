//! The thread on which a network function exchanges requests and events with a faster table.

use std::{
    sync::{Arc, PoisonError, Weak},
    thread,
    time::Duration,
};

use nf_offload::Table;

use super::Instance;
use crate::{gate::Mode, Context, NetworkFunction, Refusal};

/// The time between two exchanges.
const TURN: Duration = Duration::from_millis(20);

impl<N: NetworkFunction> Instance<N> {
    /// Starts the thread that exchanges requests and events with this table; it ends with the instance.
    ///
    /// # Errors
    /// If no threads are left.
    pub fn offload_to(self: &Arc<Self>, table: Box<dyn Table>) -> Result<(), Refusal> {
        let instance = Arc::downgrade(self);
        let spawned = thread::Builder::new()
            .name("offload".into())
            .spawn(move || run(&instance, table));
        spawned.map(drop).map_err(|error| {
            Refusal::new(
                "system",
                format!("cannot start the thread for the offload: {error}"),
            )
        })
    }

    /// Waits for its end. False: it has not come within this time.
    fn has_ended(&self, within: Duration) -> bool {
        let ending = self.ending();
        let asked = |ending: &mut super::Ending| !ending.asked;
        let waited = self.ended.wait_timeout_while(ending, within, asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.asked
    }

    fn offload(&self, table: &mut dyn Table) {
        // A change may take long; the next turn is soon.
        let Ok(_changes) = self.changes.try_lock() else {
            return;
        };
        let Some(loaded) = self.loaded() else {
            return;
        };
        if self.gate.mode() == Mode::Run {
            let context = Context::new(loaded.clock.now(), 0, self.gate.workers(), &self.macs);
            loaded.function.offload(&context, table);
        } else {
            loaded.function.leave_table();
        }
    }
}

fn run<N: NetworkFunction>(instance: &Weak<Instance<N>>, mut table: Box<dyn Table>) {
    while let Some(instance) = instance.upgrade() {
        if instance.has_ended(TURN) {
            return;
        }
        instance.offload(&mut *table);
    }
}
