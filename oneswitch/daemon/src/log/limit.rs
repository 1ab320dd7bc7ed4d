//! Limits lines per minute from one place in the code, and counts the dropped ones.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;

use super::level::Level;

/// Lines per minute, and in a burst, per place.
const PER_MINUTE: u32 = 60;
const REFILL: Duration = Duration::from_secs(60);

/// The treatment of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write it, after the count of dropped ones.
    Pass {
        dropped: Option<Dropped>,
    },
    Drop,
}

/// The count of dropped lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Dropped {
    count: u64,
    since: Duration,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "dropped {} lines like the next one in the last {} seconds",
            self.count,
            self.since.as_secs()
        )
    }
}

struct Bucket {
    tokens: u32,
    filled: Instant,
    dropped: u64,
    first_drop: Instant,
}

/// A token bucket per place in the code. Debug and trace lines are not limited.
#[derive(Default)]
pub struct Limiter {
    buckets: HashMap<Identifier, Bucket>,
}

impl Limiter {
    pub fn check(&mut self, place: Identifier, level: Level, now: Instant) -> Verdict {
        if level >= Level::Debug {
            return Verdict::Pass { dropped: None };
        }
        let bucket = self.buckets.entry(place).or_insert(Bucket {
            tokens: PER_MINUTE,
            filled: now,
            dropped: 0,
            first_drop: now,
        });
        let step = REFILL / PER_MINUTE;
        while bucket.tokens < PER_MINUTE && now.duration_since(bucket.filled) >= step {
            bucket.tokens += 1;
            bucket.filled += step;
        }
        if bucket.tokens == PER_MINUTE {
            bucket.filled = now;
        }
        if bucket.tokens == 0 {
            if bucket.dropped == 0 {
                bucket.first_drop = now;
            }
            bucket.dropped += 1;
            return Verdict::Drop;
        }
        bucket.tokens -= 1;
        let count = std::mem::take(&mut bucket.dropped);
        let since = now.duration_since(bucket.first_drop);
        Verdict::Pass {
            dropped: (count > 0).then_some(Dropped { count, since }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place;
    static PLACE: Place = Place;

    impl tracing::Callsite for Place {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}

        fn metadata(&self) -> &tracing::Metadata<'_> {
            panic!("the limiter does not look")
        }
    }

    #[test]
    fn a_burst_passes_then_one_per_second_with_the_count_of_the_rest() {
        let mut limiter = Limiter::default();
        let start = Instant::now();
        let mut at = |seconds: u64| {
            limiter.check(
                Identifier(&PLACE),
                Level::Info,
                start + Duration::from_secs(seconds),
            )
        };
        for _ in 0..PER_MINUTE {
            assert_eq!(at(0), Verdict::Pass { dropped: None });
        }
        for _ in 0..5 {
            assert_eq!(at(0), Verdict::Drop);
        }
        let dropped = Dropped {
            count: 5,
            since: Duration::from_secs(3),
        };
        assert_eq!(
            dropped.to_string(),
            "dropped 5 lines like the next one in the last 3 seconds"
        );
        assert_eq!(
            at(3),
            Verdict::Pass {
                dropped: Some(dropped)
            }
        );
        assert_eq!(at(3), Verdict::Pass { dropped: None });
        assert_eq!(at(3), Verdict::Pass { dropped: None });
        assert_eq!(at(3), Verdict::Drop);
        for _ in 0..PER_MINUTE {
            assert!(matches!(at(1_000), Verdict::Pass { .. }));
        }
        assert_eq!(at(1_000), Verdict::Drop);
    }

    #[test]
    fn debug_lines_are_never_dropped() {
        let mut limiter = Limiter::default();
        let now = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(
                limiter.check(Identifier(&PLACE), Level::Debug, now),
                Verdict::Pass { dropped: None }
            );
        }
    }
}
