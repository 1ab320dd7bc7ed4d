//! Paces the release of held frames.

use std::time::{Duration, Instant};

use crate::Batch;

/// The release rate relative to the arrival rate: the receiver sustains the latter, and the frames that waited longest wait no longer.
const FASTER: f64 = 3.0;
/// A rate that any receiver sustains, in frames per second.
const SLOWEST: f64 = 2000.0;
/// The time after which the limit is lifted, so that the release ends under any load.
const LONGEST: Duration = Duration::from_secs(2);

/// Counts held frames and those that may leave: the frames before a released fence, or all.
///
/// ```text
/// the store, oldest first:   leaving | fenced | held
/// ```
#[derive(Debug, Default)]
pub(super) struct Releases {
    leaving: Release,
    fenced: Held,
    held: Held,
    /// Whether all frames may leave.
    empties: bool,
}

/// A number of consecutive frames.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The time at which the first one arrived.
    since: Option<Instant>,
    frames: usize,
}

/// Spreads the release of frames: at full speed it would overflow the next queue, a switch's port for example.
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
    /// Adds held frames.
    pub(super) fn holds(&mut self, frames: usize) {
        if frames > 0 {
            self.held.since.get_or_insert_with(Instant::now);
            self.held.frames += frames;
        }
    }

    /// Sets the fence after the frames held now.
    pub(super) fn fence(&mut self) {
        self.fenced = self.fenced.and(std::mem::take(&mut self.held));
    }

    /// Lets the frames before the fence leave.
    pub(super) fn release(&mut self) {
        let of = self.leaving.of.and(std::mem::take(&mut self.fenced));
        self.leaving = Release { of, begun: None };
    }

    /// Lets no frame leave.
    pub(super) fn keep(&mut self) {
        self.fence();
        self.release();
        let held = self.leaving.of;
        *self = Self {
            held,
            ..Self::default()
        };
    }

    /// Tells whether some frames may leave before the rest.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.of.frames > 0
    }

    /// Returns the number of frames that may leave now; the first call starts the clock.
    pub(super) fn quota(&mut self, now: Instant) -> usize {
        match self.leaving.of.frames {
            0 => 0,
            frames => self.leaving.quota(now).min(frames),
        }
    }

    /// Returns that number when all frames may leave; the first call starts the clock.
    pub(super) fn quota_of_all(&mut self, now: Instant) -> usize {
        if !self.empties {
            self.fence();
            self.release();
            self.empties = true;
        }
        self.leaving.quota(now)
    }

    /// Counts the oldest frame as gone.
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
    /// Joins these frames with later ones.
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
    fn frames_leave_three_times_as_fast_as_they_came() {
        let (mut releases, begin) = releases(10_000, after(100));
        assert_eq!(releases.quota_of_all(begin), Batch::MAX);
        leave(&mut releases, Batch::MAX);
        assert_eq!(releases.quota_of_all(begin), 0);
        assert_eq!(releases.quota_of_all(begin + after(10)), 3000);
    }

    #[test]
    fn few_frames_leave_at_a_rate_that_any_receiver_sustains() {
        let (mut releases, begin) = releases(100, after(200));
        releases.quota_of_all(begin);
        leave(&mut releases, Batch::MAX);
        assert_eq!(releases.quota_of_all(begin + after(10)), 20);
    }

    #[test]
    fn the_release_ends_under_any_load() {
        let (mut releases, begin) = releases(1000, after(50));
        releases.quota_of_all(begin);
        assert_eq!(releases.quota_of_all(begin + after(50)), usize::MAX);
        let (mut releases, begin) = self::releases(1000, after(5000));
        releases.quota_of_all(begin);
        assert_ne!(releases.quota_of_all(begin + after(1999)), usize::MAX);
        assert_eq!(releases.quota_of_all(begin + LONGEST), usize::MAX);
    }

    #[test]
    fn frames_after_the_fence_stay() {
        let (mut releases, begin) = releases(10, after(10));
        assert_eq!(releases.quota(begin), 0);
        releases.fence();
        releases.holds(5);
        assert_eq!(releases.quota(begin), 0, "a fence alone releases nothing");
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

    #[test]
    fn it_is_leaving_until_the_last_released_frame_has_left() {
        let (mut releases, _) = releases(2, after(10));
        releases.fence();
        assert!(!releases.is_leaving());
        releases.release();
        for left in [2, 1] {
            assert!(releases.is_leaving(), "{left} left");
            leave(&mut releases, 1);
        }
        assert!(!releases.is_leaving());
    }
}
