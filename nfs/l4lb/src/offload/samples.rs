//! Samples of the packets that the function processes, from its workers to the thread that decides about rules.

use std::sync::{
    atomic::{AtomicU32, AtomicU64, Ordering},
    Mutex, PoisonError,
};

use nf_balancing::cells::Stripes;
use nf_offload::FlowKey;

use super::pins::key_of;
use crate::{
    flow::Flow,
    records::{Change, Listener},
};

/// Samples that a worker keeps until they are fetched.
const KEPT: usize = 4096;

/// A worker's samples, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Part {
    countdown: AtomicU32,
    found: Mutex<Vec<FlowKey>>,
}

/// The packets and bytes that were sent by their mark, since the start.
#[derive(Default)]
pub struct Marked([AtomicU64; 2]);

impl Marked {
    pub fn add(&self, more: [u64; 2]) {
        for (sum, more) in self.0.iter().zip(more) {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub fn get(&self) -> [u64; 2] {
        [0, 1].map(|part| self.0[part].load(Ordering::Relaxed))
    }
}

/// The samples of all workers.
pub struct Samples {
    /// A worker samples every packet of this number; 0: none.
    every: AtomicU32,
    parts: [Part; Stripes::PARTS],
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            every: AtomicU32::new(0),
            parts: std::array::from_fn(|_| Part::default()),
        }
    }
}

impl Samples {
    /// Samples every packet of this number from now on; 0: none.
    pub fn want(&self, every: u32) {
        self.every.store(every, Ordering::Relaxed);
    }

    /// Takes all samples.
    pub fn take(&self) -> Vec<FlowKey> {
        let mut all = Vec::new();
        for part in &self.parts {
            all.append(&mut part.found.lock().unwrap_or_else(PoisonError::into_inner));
        }
        all
    }

    #[inline]
    fn count<F: Flow>(&self, worker: usize, flow: &F, every: u32) {
        let part = &self.parts[worker];
        let left = part.countdown.load(Ordering::Relaxed);
        if left > 0 {
            part.countdown.store(left - 1, Ordering::Relaxed);
            return;
        }
        part.countdown.store(every - 1, Ordering::Relaxed);
        // Packets do not wait: while the samples are fetched, one is lost.
        if let Ok(mut found) = part.found.try_lock() {
            if found.len() < KEPT {
                found.push(key_of(&flow.tuple()));
            }
        }
    }
}

/// A worker's sampling of the packets that have a record.
#[derive(Clone, Copy)]
pub struct Sampler<'a> {
    samples: &'a Samples,
    worker: usize,
}

impl<'a> Sampler<'a> {
    pub fn new(samples: &'a Samples, worker: usize) -> Self {
        let worker = worker % Stripes::PARTS;
        Self { samples, worker }
    }
}

impl Listener for Sampler<'_> {
    #[inline(always)]
    fn connection<F: Flow>(&self, flow: &F, change: Change) {
        let every = self.samples.every.load(Ordering::Relaxed);
        if every > 0 && matches!(change, Change::Refreshed(_)) {
            self.samples.count(self.worker, flow, every);
        }
    }
}
