//! How fast what was held leaves again.

use std::time::{Duration, Instant};

use crate::Batch;

/// So many times as fast as it came in: who took it in at that rate before can, and the first frames, which have waited longest, do not wait longer.
const FASTER: f64 = 3.0;
/// Frames per second that anybody can take in.
const SLOWEST: f64 = 2000.0;
/// Without a limit after that, so that it ends whatever comes in meanwhile.
const LONGEST: Duration = Duration::from_secs(2);

/// Counts what is held and spreads its release: at full speed it would overflow the queue that it goes to, a switch's port for instance.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// When the first frame came.
    since: Option<Instant>,
    held: usize,
    begun: Option<Begun>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Instant,
    lasts: Duration,
    /// Frames per second.
    rate: f64,
    released: usize,
}

impl Release {
    pub(super) fn holds(&mut self, frames: usize) {
        if frames > 0 {
            self.since.get_or_insert_with(Instant::now);
            self.held += frames;
        }
    }

    pub(super) fn released(&mut self, frames: usize) {
        if let Some(begun) = &mut self.begun {
            begun.released += frames;
        }
    }

    /// How many frames may leave now; the first call begins the release.
    pub(super) fn quota(&mut self, now: Instant) -> usize {
        let (since, held) = (self.since.unwrap_or(now), self.held);
        let begun = *self.begun.get_or_insert_with(|| {
            let waited = now.saturating_duration_since(since);
            let came_in = held as f64 / waited.as_secs_f64().max(1e-6);
            Begun {
                at: now,
                lasts: waited.min(LONGEST),
                rate: (FASTER * came_in).max(SLOWEST),
                released: 0,
            }
        });
        let elapsed = now.saturating_duration_since(begun.at);
        if elapsed >= begun.lasts {
            return usize::MAX;
        }
        let due = Batch::MAX + (begun.rate * elapsed.as_secs_f64()) as usize;
        due.saturating_sub(begun.released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn release(frames: usize, held: Duration) -> (Release, Instant) {
        let mut release = Release::default();
        release.holds(frames);
        let begin = release.since.unwrap() + held;
        (release, begin)
    }

    #[test]
    fn it_leaves_three_times_as_fast_as_it_came() {
        let (mut release, begin) = release(10_000, after(100));
        assert_eq!(release.quota(begin), Batch::MAX);
        release.released(Batch::MAX);
        assert_eq!(release.quota(begin), 0);
        assert_eq!(release.quota(begin + after(10)), 3000);
    }

    #[test]
    fn little_leaves_at_a_rate_that_anybody_takes() {
        let (mut release, begin) = release(100, after(200));
        release.quota(begin);
        release.released(Batch::MAX);
        assert_eq!(release.quota(begin + after(10)), 20);
    }

    #[test]
    fn it_ends_whatever_comes_in_meanwhile() {
        let (mut release, begin) = release(1000, after(50));
        release.quota(begin);
        assert_eq!(release.quota(begin + after(50)), usize::MAX);
        let (mut release, begin) = self::release(1000, after(5000));
        release.quota(begin);
        assert_ne!(release.quota(begin + after(1999)), usize::MAX);
        assert_eq!(release.quota(begin + LONGEST), usize::MAX);
    }
}
