//! How fast what was held leaves again.

use std::time::{Duration, Instant};

use crate::Batch;

/// So many times as fast as it came in: who took it in at that rate before can, and the first frames, which have waited longest, do not wait longer.
const FASTER: f64 = 3.0;
/// Frames per second that anybody can take in.
const SLOWEST: f64 = 2000.0;
/// Without a limit after that, so that it ends whatever comes in meanwhile.
const LONGEST: Duration = Duration::from_secs(2);

/// Counts what is held, and what of it may leave: the frames up to a fence, once that is let go, or all.
///
/// ```text
/// the store, oldest first:   leaving | fenced | held
/// ```
#[derive(Debug, Default)]
pub(super) struct Releases {
    leaving: Release,
    fenced: Held,
    held: Held,
    /// All of it leaves.
    empties: bool,
}

/// Frames that came one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// When the first one came.
    since: Option<Instant>,
    frames: usize,
}

/// Spreads the release of frames: at full speed it would overflow the queue that they go to, a switch's port for instance.
#[derive(Debug, Default)]
struct Release {
    of: Held,
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

impl Releases {
    /// So many frames more.
    pub(super) fn holds(&mut self, frames: usize) {
        if frames > 0 {
            self.held.since.get_or_insert_with(Instant::now);
            self.held.frames += frames;
        }
    }

    /// What is held now is before the fence.
    pub(super) fn fence(&mut self) {
        self.fenced = self.fenced.and(std::mem::take(&mut self.held));
    }

    /// What is before the fence may leave.
    pub(super) fn release(&mut self) {
        let of = self.leaving.of.and(std::mem::take(&mut self.fenced));
        self.leaving = Release { of, begun: None };
    }

    /// Nothing may leave.
    pub(super) fn keep(&mut self) {
        self.fence();
        self.release();
        let held = self.leaving.of;
        *self = Self {
            held,
            ..Self::default()
        };
    }

    /// Is there something that may leave before the rest?
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.of.frames > 0
    }

    /// How many frames may leave now; the first call begins.
    pub(super) fn quota(&mut self, now: Instant) -> usize {
        match self.leaving.of.frames {
            0 => 0,
            frames => self.leaving.quota(now).min(frames),
        }
    }

    /// How many may leave where all may; the first call begins.
    pub(super) fn quota_of_all(&mut self, now: Instant) -> usize {
        if !self.empties {
            self.fence();
            self.release();
            self.empties = true;
        }
        self.leaving.quota(now)
    }

    /// The oldest frame has left.
    pub(super) fn released(&mut self) {
        if let Some(begun) = &mut self.leaving.begun {
            begun.released += 1;
        }
        for held in [&mut self.leaving.of, &mut self.fenced, &mut self.held] {
            if held.frames > 0 {
                held.frames -= 1;
                return;
            }
        }
    }
}

impl Held {
    /// These, and then others.
    fn and(self, then: Self) -> Self {
        Self {
            since: if self.frames > 0 {
                self.since
            } else {
                then.since
            },
            frames: self.frames + then.frames,
        }
    }
}

impl Release {
    fn quota(&mut self, now: Instant) -> usize {
        let Held { since, frames } = self.of;
        let begun = *self.begun.get_or_insert_with(|| {
            let waited = now.saturating_duration_since(since.unwrap_or(now));
            let came_in = frames as f64 / waited.as_secs_f64().max(1e-6);
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

    fn releases(frames: usize, held: Duration) -> (Releases, Instant) {
        let mut releases = Releases::default();
        releases.holds(frames);
        let begin = releases.held.since.unwrap() + held;
        (releases, begin)
    }

    fn leave(releases: &mut Releases, frames: usize) {
        (0..frames).for_each(|_| releases.released());
    }

    #[test]
    fn it_leaves_three_times_as_fast_as_it_came() {
        let (mut releases, begin) = releases(10_000, after(100));
        assert_eq!(releases.quota_of_all(begin), Batch::MAX);
        leave(&mut releases, Batch::MAX);
        assert_eq!(releases.quota_of_all(begin), 0);
        assert_eq!(releases.quota_of_all(begin + after(10)), 3000);
    }

    #[test]
    fn little_leaves_at_a_rate_that_anybody_takes() {
        let (mut releases, begin) = releases(100, after(200));
        releases.quota_of_all(begin);
        leave(&mut releases, Batch::MAX);
        assert_eq!(releases.quota_of_all(begin + after(10)), 20);
    }

    #[test]
    fn it_ends_whatever_comes_in_meanwhile() {
        let (mut releases, begin) = releases(1000, after(50));
        releases.quota_of_all(begin);
        assert_eq!(releases.quota_of_all(begin + after(50)), usize::MAX);
        let (mut releases, begin) = self::releases(1000, after(5000));
        releases.quota_of_all(begin);
        assert_ne!(releases.quota_of_all(begin + after(1999)), usize::MAX);
        assert_eq!(releases.quota_of_all(begin + LONGEST), usize::MAX);
    }

    #[test]
    fn what_came_after_the_fence_stays() {
        let (mut releases, begin) = releases(10, after(10));
        assert_eq!(releases.quota(begin), 0);
        releases.fence();
        releases.holds(5);
        assert_eq!(releases.quota(begin), 0, "a fence alone lets nothing go");
        releases.release();
        releases.fence();
        assert_eq!(releases.quota(begin), 10);
        leave(&mut releases, 7);
        assert_eq!(releases.quota(begin), 3);
        releases.holds(2);
        releases.release();
        assert_eq!(releases.quota(begin), 8);
        releases.keep();
        assert_eq!(releases.quota(begin), 0);
        assert_eq!(releases.held.frames, 10);
        assert!(releases.quota_of_all(begin) >= 10);
    }
}
