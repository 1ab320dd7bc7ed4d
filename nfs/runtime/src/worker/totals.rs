//! A worker's counters: only the worker writes, any thread reads.

use std::sync::{
    atomic::{AtomicU64, Ordering},
    OnceLock,
};

use super::pauses::Pauses;

/// The number of drop reasons counted separately; the others are counted together.
const REASONS: usize = 64;

/// The counters of one worker since it started. No two workers' are on one cache line, nor on the pair of lines that processors prefetch.
#[repr(align(128))]
pub(crate) struct Totals {
    received: AtomicU64,
    received_bytes: AtomicU64,
    stored: AtomicU64,
    processed: AtomicU64,
    busy_ns: AtomicU64,
    batches: AtomicU64,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    not_emitted: AtomicU64,
    dropped: Box<[(OnceLock<&'static str>, AtomicU64)]>,
    dropped_otherwise: AtomicU64,
    pub(crate) pauses: Pauses,
}

/// A copy of the counters, or their sum over several workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) stored: u64,
    pub(crate) processed: u64,
    /// The nanoseconds of turns that brought packets; empty turns do not count.
    pub(crate) busy_ns: u64,
    pub(crate) batches: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) not_emitted: u64,
    /// Drops by reason, in the order in which the reasons appeared.
    pub(crate) dropped: Vec<(&'static str, u64)>,
}

impl Default for Totals {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            received: zero(),
            received_bytes: zero(),
            stored: zero(),
            processed: zero(),
            busy_ns: zero(),
            batches: zero(),
            sent: zero(),
            sent_bytes: zero(),
            not_emitted: zero(),
            dropped: (0..REASONS).map(|_| Default::default()).collect(),
            dropped_otherwise: zero(),
            pauses: Pauses::default(),
        }
    }
}

/// Adds without an atomic addition, since there is only one writer.
#[inline]
fn add(to: &AtomicU64, count: u64) {
    to.store(to.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

impl Totals {
    pub(crate) fn received(&self, packets: usize, bytes: usize) {
        add(&self.received, packets as u64);
        add(&self.received_bytes, bytes as u64);
    }

    pub(crate) fn stored(&self, frames: usize) {
        add(&self.stored, frames as u64);
    }

    pub(crate) fn processed(&self, packets: usize) {
        add(&self.processed, packets as u64);
    }

    pub(crate) fn busy(&self, nanoseconds: u64) {
        add(&self.busy_ns, nanoseconds);
        add(&self.batches, 1);
    }

    pub(crate) fn sent(&self, packets: usize, bytes: usize) {
        add(&self.sent, packets as u64);
        add(&self.sent_bytes, bytes as u64);
    }

    pub(crate) fn not_emitted(&self, frames: u64) {
        if frames > 0 {
            add(&self.not_emitted, frames);
        }
    }

    pub(crate) fn dropped(&self, reason: &'static str) {
        for (name, count) in &self.dropped {
            if *name.get_or_init(|| reason) == reason {
                return add(count, 1);
            }
        }
        add(&self.dropped_otherwise, 1);
    }

    pub(crate) fn add_to(&self, sums: &mut Sums) {
        let get = |from: &AtomicU64| from.load(Ordering::Relaxed);
        sums.received += get(&self.received);
        sums.received_bytes += get(&self.received_bytes);
        sums.stored += get(&self.stored);
        sums.processed += get(&self.processed);
        sums.busy_ns += get(&self.busy_ns);
        sums.batches += get(&self.batches);
        sums.sent += get(&self.sent);
        sums.sent_bytes += get(&self.sent_bytes);
        sums.not_emitted += get(&self.not_emitted);
        let named = self
            .dropped
            .iter()
            .map_while(|(name, count)| Some((*name.get()?, get(count))));
        let otherwise =
            Some(("other reasons", get(&self.dropped_otherwise))).filter(|(_, count)| *count > 0);
        for (reason, count) in named.chain(otherwise) {
            match sums.dropped.iter_mut().find(|(name, _)| *name == reason) {
                Some((_, sum)) => *sum += count,
                None => sums.dropped.push((reason, count)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_cover_all_workers() {
        let count = |times: usize| {
            let totals = Totals::default();
            for _ in 0..times {
                totals.received(3, 400);
                totals.stored(5);
                totals.processed(6);
                totals.busy(70);
                totals.sent(8, 900);
                totals.not_emitted(10);
                totals.not_emitted(0);
                totals.dropped("asked to");
            }
            totals
        };
        let mut sums = Sums::default();
        [count(2), count(1)]
            .iter()
            .for_each(|totals| totals.add_to(&mut sums));
        let expected = Sums {
            received: 9,
            received_bytes: 1200,
            stored: 15,
            processed: 18,
            busy_ns: 210,
            batches: 3,
            sent: 24,
            sent_bytes: 2700,
            not_emitted: 30,
            dropped: vec![("asked to", 3)],
        };
        assert_eq!(sums, expected);
    }

    #[test]
    fn drops_are_counted_by_a_bounded_number_of_reasons() {
        let totals = Totals::default();
        for number in 0..REASONS + 5 {
            let reason: &'static str = Box::leak(format!("reason {number}").into_boxed_str());
            totals.dropped(reason);
            totals.dropped("reason 0");
        }
        let mut sums = Sums::default();
        totals.add_to(&mut sums);
        totals.add_to(&mut sums);
        assert_eq!(sums.dropped[0], ("reason 0", 2 * (REASONS as u64 + 6)));
        assert_eq!(sums.dropped[1], ("reason 1", 2));
        assert_eq!(sums.dropped.last(), Some(&("other reasons", 10)));
        assert_eq!(sums.dropped.len(), REASONS + 1);
    }
}
