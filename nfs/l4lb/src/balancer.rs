//! The load balancer: its state, and the snapshot in force.

use std::sync::{
    atomic::{AtomicBool, AtomicU64, Ordering},
    Arc, Mutex, MutexGuard, PoisonError,
};

use arc_swap::{ArcSwap, Guard};
use nf_balancing::{checks::Checks, link::Upkeep};
use nf_runtime::{state::StateBuilder, Refusal};
use nf_tables::Lifetimes;

use crate::{
    check::check, config::Config, offload::Offload, records::RecordTables, rows::Patience,
    snapshot::Snapshot, state::State,
};

const MILLISECOND: u64 = 1_000_000;

/// The network function `l4lb`.
pub struct L4lb {
    pub(crate) state: State,
    pub(crate) records: RecordTables,
    pub(crate) offload: Offload,
    snapshot: ArcSwap<Snapshot>,
    /// Held while the next snapshot is made.
    changing: Mutex<()>,
    pub(crate) checks: Checks,
    /// See `Pass::flooded`. Every tick evaluates it again.
    pub(crate) flooded: AtomicBool,
    /// The time of the latest tick or, up to a millisecond ago, batch.
    pub(crate) now: AtomicU64,
    pub(crate) aged: AtomicU64,
    pub(crate) upkeep: Upkeep,
}

impl L4lb {
    pub(crate) fn new(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let lifetimes = check(&config)?;
        let records = RecordTables::declare(&config.tables, state)?;
        let offload = Offload::declare(&config.tables, state)?;
        let state = State::declare(&config.tables, state)?;
        let empty = Snapshot::waiting(config, lifetimes, &state);
        Ok(Self {
            state,
            records,
            offload,
            snapshot: ArcSwap::from_pointee(empty),
            changing: Mutex::new(()),
            checks: Checks::default(),
            flooded: AtomicBool::new(false),
            now: AtomicU64::new(0),
            aged: AtomicU64::new(0),
            upkeep: Upkeep::default(),
        })
    }

    /// Returns the snapshot in force. Workers call it for each batch, so it writes to no memory that they share.
    pub(crate) fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// Notes the time of a batch: to the millisecond, because all workers write it, and each of their packets needs what is beside it.
    pub(crate) fn see(&self, now: u64) {
        if now > self.now.load(Ordering::Relaxed) + MILLISECOND {
            self.now.store(now, Ordering::Relaxed);
        }
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a configuration in force.
    pub(crate) fn install(
        &self,
        config: Config,
        now: u64,
        patience: Patience,
    ) -> Result<(), Refusal> {
        let lifetimes = check(&config)?;
        self.install_checked(config, lifetimes, now, patience)
    }

    /// Puts a configuration in force that `check` has accepted before.
    pub(crate) fn install_checked(
        &self,
        config: Config,
        lifetimes: Lifetimes,
        now: u64,
        patience: Patience,
    ) -> Result<(), Refusal> {
        let _changing = self.change();
        let is_named = |number| self.offload.names(number);
        let rows = self.state.assign(&config, now, patience, is_named)?;
        {
            let _records = self.checks.lock();
            let fold = |from, into| self.offload.fold(from, into);
            self.state.occupy(&config, &rows, now, &fold);
        }
        let old = self.snapshot();
        let new = Snapshot::new(config, lifetimes, &rows, &self.state, Some(&old), now);
        self.publish(new, now);
        self.upkeep.renew();
        Ok(())
    }

    fn publish(&self, snapshot: Snapshot, now: u64) {
        snapshot.network.resolve(&self.state.neighbours, now);
        self.snapshot.store(Arc::new(snapshot));
    }

    /// Rebuilds the snapshot from the same configuration after a backend's condition changed.
    pub(crate) fn renew(&self) {
        let _changing = self.change();
        let old = self.snapshot();
        let now = self.now.load(Ordering::Relaxed);
        let rows = old.rows();
        let new = Snapshot::new(
            old.config.clone(),
            old.lifetimes,
            &rows,
            &self.state,
            Some(&old),
            now,
        );
        self.publish(new, now);
    }

    pub(crate) fn set_drained(&self, number: u16, on: bool) {
        {
            let _records = self.checks.lock();
            let mut record = self.state.backends.get(number.into());
            record.drained = on.into();
            self.state.backends.put(number.into(), &record);
        }
        self.renew();
    }
}
