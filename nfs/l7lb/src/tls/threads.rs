//! The threads that run this process's handshakes.

use std::sync::OnceLock;

use nf_runtime::Context;
use nf_tls::{Handshakes, Outcome};

use crate::tables::random;

/// The most threads.
const MOST: usize = 8;

/// The threads of this process, which start with the first handshake.
pub struct Threads {
    handshakes: OnceLock<Handshakes>,
    /// Differs from that of the process that had the state before.
    pub(super) process: u64,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            handshakes: OnceLock::new(),
            process: random()[0] | 1,
        }
    }
}

impl Threads {
    pub(super) fn get(&self, context: &Context<'_>) -> &Handshakes {
        self.handshakes.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let waker = context.waker();
            Handshakes::start(cores.min(MOST), move || waker.wake())
        })
    }

    pub(super) fn take(&self) -> Option<Outcome> {
        self.handshakes.get()?.take()
    }
}
