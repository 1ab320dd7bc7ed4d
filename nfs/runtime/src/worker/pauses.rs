//! Records when a worker processed nothing, so that outages can later be told from steady service, to the microsecond.

use std::{
    collections::VecDeque,
    sync::{
        atomic::{AtomicU64, Ordering},
        Mutex, PoisonError,
    },
};

/// The shortest pause that is kept: with any traffic there are too many shorter ones.
const SHORTEST_US: u64 = 10_000;
/// The number of pauses kept, the newest ones.
const KEPT: usize = 256;
const OPEN: u64 = u64::MAX;

/// A time without packets, in microseconds since its instance started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) from: u64,
    /// None: it is not over.
    pub(crate) to: Option<u64>,
}

/// The pauses of one worker: only the worker writes, any thread reads.
#[derive(Default)]
pub(crate) struct Pauses {
    last: AtomicU64,
    ended: Mutex<VecDeque<Pause>>,
}

impl Pauses {
    /// Notes that packets have just been processed.
    #[inline]
    pub(crate) fn processed(&self, now: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= SHORTEST_US {
            self.keep(last, now);
        }
        self.last.store(now, Ordering::Release);
    }

    #[cold]
    fn keep(&self, from: u64, to: u64) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() == KEPT {
            ended.pop_front();
        }
        ended.push_back(Pause { from, to: Some(to) });
    }

    /// Returns the newest pauses, oldest first; one that is not over is the last.
    pub(crate) fn all(&self) -> Vec<Pause> {
        // Locks first: a pause that ends meanwhile then appears once, as not over.
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.last.load(Ordering::Acquire);
        let lasts = Pause { from, to: None };
        let before = ended.iter().filter(|pause| pause.from < from);
        before.copied().chain([lasts]).collect()
    }
}

/// Intersects two lists, keeping the intervals that are long enough.
pub(crate) fn common(one: &[Pause], other: &[Pause]) -> Vec<Pause> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut found = Vec::new();
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let (a_to, b_to) = (a.to.unwrap_or(OPEN), b.to.unwrap_or(OPEN));
        let (from, to) = (a.from.max(b.from), a_to.min(b_to));
        if to.saturating_sub(from) >= SHORTEST_US {
            let to = (to != OPEN).then_some(to);
            found.push(Pause { from, to });
        }
        if a_to <= b_to {
            one.next();
        } else {
            other.next();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(of: &[(u64, u64)], last: u64) -> Vec<Pause> {
        let ended = of.iter().map(|&(from, to)| Pause { from, to: Some(to) });
        let lasts = Pause {
            from: last,
            to: None,
        };
        ended.chain([lasts]).collect()
    }

    #[test]
    fn long_pauses_and_the_current_one_are_kept() {
        let worker = Pauses::default();
        assert_eq!(worker.all(), pauses(&[], 0));
        for now in [9_999, 19_998, 29_998, 30_000, 70_000] {
            worker.processed(now);
        }
        assert_eq!(
            worker.all(),
            pauses(&[(19_998, 29_998), (30_000, 70_000)], 70_000)
        );
    }

    #[test]
    fn the_oldest_pauses_are_forgotten() {
        let worker = Pauses::default();
        for number in 1..=KEPT as u64 + 3 {
            worker.processed(number * SHORTEST_US);
        }
        let all = worker.all();
        assert_eq!(all.len(), KEPT + 1);
        assert_eq!(all[0].from, 3 * SHORTEST_US);
    }

    #[test]
    fn a_pause_is_common_to_all_workers() {
        let one = pauses(&[(0, 50_000), (100_000, 200_000)], 300_000);
        let other = pauses(
            &[(20_000, 30_000), (45_000, 120_000), (191_000, 400_000)],
            450_000,
        );
        let both = pauses(
            &[(20_000, 30_000), (100_000, 120_000), (300_000, 400_000)],
            450_000,
        );
        assert_eq!(common(&one, &other), both);
        assert_eq!(common(&other, &one), both);
    }
}
