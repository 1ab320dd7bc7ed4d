//! Numbers of requests in the arena: a row for each route and each backend.

use std::sync::atomic::Ordering;

use nf_arena::{Memory, Region};
use nf_runtime::{state::StateBuilder, CounterSink, Refusal};

/// The upper bounds of the buckets of durations, in microseconds; one more bucket has the rest.
const BOUNDS: [u64; 13] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// Columns of a row.
mod column {
    pub const REQUESTS: usize = 0;
    /// Answers of the function itself.
    pub const OWN: usize = 1;
    /// Answers of backends from 1xx to 5xx.
    pub const CLASSES: usize = 2;
    pub const MICROSECONDS: usize = 7;
    pub const BUCKETS: usize = 8;
}

/// The words of a row.
pub const COLUMNS: usize = column::BUCKETS + BOUNDS.len() + 1;

/// The row of a route or a backend.
pub struct Row<'a> {
    pub region: &'a Region,
    pub at: usize,
}

impl Row<'_> {
    fn add(&self, column: usize, count: u64) {
        self.region.words()[self.at + column].fetch_add(count, Ordering::Relaxed);
        self.region.touch(self.at + column);
    }

    fn get(&self, column: usize) -> u64 {
        self.region.words()[self.at + column].load(Ordering::Relaxed)
    }

    pub fn requested(&self) {
        self.add(column::REQUESTS, 1);
    }

    /// Counts an answer of the function itself.
    pub fn answered_itself(&self) {
        self.add(column::OWN, 1);
    }

    /// Counts an answer of a backend, which ended this time after the request began.
    pub fn answered(&self, status: u16, nanoseconds: u64) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.add(column::CLASSES + class, 1);
        let microseconds = nanoseconds / 1000;
        self.add(column::MICROSECONDS, microseconds);
        let bucket = BOUNDS.iter().position(|bound| microseconds <= *bound);
        self.add(column::BUCKETS + bucket.unwrap_or(BOUNDS.len()), 1);
    }

    /// Reports its numbers. `of`: `route` or `backend`.
    pub fn report(&self, of: &str, labels: &[(&str, &str)], out: &mut CounterSink) {
        out.counter(
            &format!("{of}_requests"),
            labels,
            self.get(column::REQUESTS),
        );
        out.counter(&format!("{of}_own_answers"), labels, self.get(column::OWN));
        for (index, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
            let labels = [labels, &[("class", class)]].concat();
            let count = self.get(column::CLASSES + index);
            out.counter(&format!("{of}_answers"), &labels, count);
        }
        let counts: Vec<u64> = (0..=BOUNDS.len())
            .map(|index| self.get(column::BUCKETS + index))
            .collect();
        let sum = self.get(column::MICROSECONDS) as f64 / 1e6;
        let bounds = BOUNDS.map(|bound| bound as f64 / 1e6);
        let name = format!("{of}_duration_seconds");
        out.histogram(&name, labels, &bounds, &counts, sum);
    }
}

/// The numbers of routes.
pub struct Routes {
    region: Region,
    count: usize,
}

/// The first word of a route's row: the hash of its listener's and its own name; 0: the row is free.
const KEY: usize = 0;
const STRIDE: usize = 1 + COLUMNS;

impl Routes {
    /// # Errors
    /// If memory runs out, or the adopted state has another shape.
    pub fn declare(count: usize, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let words = count.saturating_mul(STRIDE);
        Ok(Self {
            region: state.region("routes", "routes v1", words)?,
            count,
        })
    }

    pub fn row(&self, row: u16) -> Option<Row<'_>> {
        (usize::from(row) < self.count).then(|| Row {
            region: &self.region,
            at: usize::from(row) * STRIDE + 1,
        })
    }

    fn key(&self, row: usize) -> u64 {
        self.region.words()[row * STRIDE + KEY].load(Ordering::Relaxed)
    }

    /// Assigns rows to routes by their keys: each its own, or a free one, whose numbers start at zero. None: there are more keys than rows.
    pub fn assign(&self, keys: &[u64]) -> Option<Vec<u16>> {
        let all = 0..self.count;
        let mut free = all.clone().filter(|row| !keys.contains(&self.key(*row)));
        keys.iter()
            .map(|key| {
                let own = all.clone().find(|row| self.key(*row) == *key);
                let row = own.or_else(|| {
                    let row = free.next()?;
                    let words = &self.region.words()[row * STRIDE..][..STRIDE];
                    for (column, word) in words.iter().enumerate() {
                        word.store(if column == KEY { *key } else { 0 }, Ordering::Relaxed);
                        self.region.touch(row * STRIDE + column);
                    }
                    Some(row)
                });
                row.map(|row| row as u16)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use nf_arena::ArenaBuilder;

    use super::*;

    #[test]
    fn routes_keep_their_rows_and_free_rows_start_at_zero() {
        let mut state = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
        let routes = Routes::declare(2, &mut state).unwrap();
        let _arena = state.finish().unwrap();
        assert_eq!(routes.assign(&[7, 8]), Some(vec![0, 1]));
        for row in [0, 1] {
            routes.row(row).unwrap().requested();
        }
        assert_eq!(routes.assign(&[9, 8]), Some(vec![0, 1]));
        let requests = [0, 1].map(|row| routes.row(row).unwrap().get(column::REQUESTS));
        assert_eq!(requests, [0, 1]);
        assert_eq!(routes.assign(&[1, 2, 3]), None);
        assert!(routes.row(2).is_none());
    }

    #[test]
    fn durations_fall_into_the_first_bucket_with_room() {
        let mut state = StateBuilder::new(ArenaBuilder::fresh("test", 1).unwrap());
        let routes = Routes::declare(1, &mut state).unwrap();
        let _arena = state.finish().unwrap();
        let row = routes.row(0).unwrap();
        for (nanoseconds, bucket) in [
            (0, 0),
            (1_000_999, 0),
            (1_001_000, 1),
            (10_000_000_000, 12),
            (10_000_001_000, 13),
        ] {
            let before = row.get(column::BUCKETS + bucket);
            row.answered(204, nanoseconds);
            assert_eq!(
                row.get(column::BUCKETS + bucket),
                before + 1,
                "{nanoseconds}"
            );
        }
        assert_eq!(row.get(column::CLASSES + 1), 5);
        assert_eq!(row.get(column::MICROSECONDS), 20_002_002);
    }
}
