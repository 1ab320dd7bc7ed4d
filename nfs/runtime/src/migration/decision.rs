//! The word, in the memory of the rings, by which the old instance hands the right to send to the new one.
//!
//! ```text
//! OPEN -> READY -> GIVEN -> TAKEN       READY -> OPEN: the new instance no longer waits
//! OPEN, READY -> BACK
//! ```
//! Only the old instance writes GIVEN and BACK, so whoever finds one of them knows who serves: from GIVEN on the new instance, after BACK the old one. The
//! word is in the memory that both map, or, where state is copied, in memory of the old instance. It survives every process; nothing survives the machine.
//! Beside it is the time of TAKEN, by the clock of the state.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nf_arena::{ArenaBuilder, Memory, Region};

use crate::Refusal;

/// The name of its region.
pub(super) const NAME: &str = "decision";

/// The indices of the word and of the time.
const WORD: usize = 0;
const TAKEN_AT: usize = 1;

const OPEN: u64 = 0;
/// The new instance waits for [`GIVEN`].
const READY: u64 = 1;
/// The old instance never sends again.
const GIVEN: u64 = 2;
/// The new instance processes the frames of the rings.
const TAKEN: u64 = 3;
/// The old instance has resumed.
const BACK: u64 = 4;

/// The longest sleep between two looks. A process that is killed after its change does not wake the other one.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub(super) struct Decision(Region);

impl Decision {
    pub(super) fn open(builder: &mut ArenaBuilder) -> Result<Self, Refusal> {
        Ok(Self(builder.region(NAME, "decision v2", 2)?))
    }

    // ---- the old instance

    /// Waits until the new instance waits; false: it does not.
    pub(super) fn await_ready(&self, longest: Duration) -> bool {
        self.wait(longest, |word| word == READY)
    }

    pub(super) fn give(&self) {
        self.set(GIVEN);
    }

    /// Waits until the new instance processes frames; false: it does not yet.
    pub(super) fn await_taken(&self, longest: Duration) -> bool {
        self.wait(longest, |word| word == TAKEN)
    }

    /// Returns the time at which the new instance began to process frames.
    pub(super) fn taken_at(&self) -> u64 {
        self.0.words()[TAKEN_AT].load(Ordering::Acquire)
    }

    pub(super) fn turn_back(&self) {
        self.set(BACK);
    }

    fn set(&self, word: u64) {
        self.word().store(word, Ordering::Release);
        self.0.wake_waiting(WORD);
    }

    // ---- the new instance

    /// Waits until the right to send is given.
    ///
    /// # Errors
    /// If it is not, or the old instance has resumed.
    pub(super) fn await_given(&self, longest: Duration) -> Result<(), Refusal> {
        self.replace(OPEN, READY);
        self.wait(longest, |word| matches!(word, GIVEN | TAKEN | BACK));
        self.replace(READY, OPEN);
        match self.word().load(Ordering::Acquire) {
            GIVEN | TAKEN => Ok(()),
            BACK => Err(Refusal::new("cancelled", "the old instance has resumed")),
            _ => {
                let detail = format!(
                    "the old instance did not give up the right to send within {longest:?}; retry"
                );
                Err(Refusal::new("timeout", detail))
            }
        }
    }

    pub(super) fn take(&self, at: u64) {
        self.0.words()[TAKEN_AT].store(at, Ordering::Release);
        self.replace(GIVEN, TAKEN);
    }

    fn replace(&self, from: u64, to: u64) {
        let replaced = self
            .word()
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if replaced.is_ok() {
            self.0.wake_waiting(WORD);
        }
    }

    fn word(&self) -> &std::sync::atomic::AtomicU64 {
        &self.0.words()[WORD]
    }

    fn wait(&self, longest: Duration, is_it: impl Fn(u64) -> bool) -> bool {
        let end = Instant::now() + longest;
        loop {
            let word = self.word().load(Ordering::Acquire);
            if is_it(word) {
                return true;
            }
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return false;
            };
            self.0.wait(WORD, word, left.min(LOOK));
        }
    }
}
