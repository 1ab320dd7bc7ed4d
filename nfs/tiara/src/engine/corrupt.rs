//! The error of a queue that the other side has damaged.

/// A queue whose counts are impossible: the other process wrote nonsense. Detach it, and make a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    pub produced: u64,
    pub consumed: u64,
    pub capacity: usize,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            produced,
            consumed,
            capacity,
        } = self;
        write!(
            f,
            "a queue of {capacity} records has {produced} produced and {consumed} consumed, which is impossible: the other side damaged it; \
             attach a new one"
        )
    }
}

impl std::error::Error for Corrupt {}
