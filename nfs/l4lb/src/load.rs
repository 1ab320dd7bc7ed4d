//! How busy it is: util+ of HNLB, section IV.
//!
//! util = time spent on packets / time; util+ = util * (1 + np / (nb * B)) / 2, for np packets in nb bursts of at most B. The burst factor lies between
//! 1/2 and 1, so util+ is 0 without traffic and 1 at the rate where every burst is full and every moment is used; between the two it is a fit, not a law.
//! Time spent is that of a worker's turns that brought packets, receiving and sending included; each is counted with the burst after it.

use nf_runtime::{state::StateBuilder, Batch, Refusal};

use crate::state::{Gauges, Stripes, Worker};

/// Columns of the workers' sums.
const BUSY: usize = 0;
const BURSTS: usize = 1;
const PACKETS: usize = 2;
const COLUMNS: usize = 4;

/// Words of the window: when it began, the sums then, and the last whole window's result.
const SINCE: usize = 0;
const SUMS: usize = 1;
const RESULT: usize = 4;
const WORDS: usize = 8;

/// Windows are of a second.
const WINDOW: u64 = 1_000_000_000;

/// What was used, of what there was.
pub struct Load {
    sums: Stripes,
    window: Gauges,
}

impl Load {
    /// # Errors
    /// As for any region.
    pub fn declare(state: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self {
            sums: Stripes::declare(state, "load", 1, COLUMNS)?,
            window: Gauges::declare(state, "load-window", WORDS)?,
        })
    }

    /// A burst of packets; the one before it took so many nanoseconds.
    #[inline]
    pub fn spent(&self, worker: Worker, nanos: u64, packets: usize) {
        self.sums
            .add_all(worker, 0, BUSY, [nanos, 1, packets as u64]);
    }

    /// Closes the window if it is time.
    pub fn tick(&self, now: u64, workers: usize) {
        let since = self.window.get(SINCE);
        let elapsed = now.saturating_sub(since);
        if since != 0 && elapsed < WINDOW {
            return;
        }
        let sums = [BUSY, BURSTS, PACKETS].map(|column| self.sums.sum(0, column));
        if since != 0 {
            let [busy, bursts, packets] =
                [0, 1, 2].map(|each| sums[each].wrapping_sub(self.window.get(SUMS + each)));
            let result = util_plus(busy, elapsed * workers.max(1) as u64, packets, bursts);
            self.window.set(RESULT, result.to_bits());
        }
        self.window.set(SINCE, now);
        for (each, sum) in sums.into_iter().enumerate() {
            self.window.set(SUMS + each, sum);
        }
    }

    /// util+ of the last whole window.
    #[must_use]
    pub fn util_plus(&self) -> f64 {
        f64::from_bits(self.window.get(RESULT))
    }
}

/// Of `busy` nanoseconds among `available`, in which `bursts` brought `packets`.
#[must_use]
pub fn util_plus(busy: u64, available: u64, packets: u64, bursts: u64) -> f64 {
    if bursts == 0 || available == 0 {
        return 0.0;
    }
    let util = (busy as f64 / available as f64).min(1.0);
    let fullness = packets as f64 / (bursts as f64 * Batch::MAX as f64);
    util * f64::midpoint(1.0, fullness.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_do_is_zero_and_full_bursts_without_pause_are_one() {
        assert!(util_plus(0, 100, 0, 0).abs() < 1e-9);
        assert!((util_plus(100, 100, 640, 10) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn single_packets_count_little_more_than_half() {
        let single = util_plus(100, 100, 10, 10);
        assert!((single - (1.0 + 1.0 / 64.0) / 2.0).abs() < 1e-9);
        // More packets in the same time: more.
        assert!(util_plus(50, 100, 320, 10) < util_plus(50, 100, 640, 10));
    }
}
