//! The window against replays (RFC 4303, 3.4.3), as a bitmap of words in a ring (RFC 6479), up to 4,096 packets.

use std::sync::{
    atomic::{AtomicU32, Ordering},
    Mutex, MutexGuard, PoisonError,
};

use crate::keys::{
    inbound::{DISTRUSTED, HIGHEST, WINDOW, WINDOW_WORDS},
    InboundRow,
};

/// The largest window.
pub const LARGEST: u32 = 4096;
/// The smallest that RFC 4303 requires.
pub const SMALLEST: u32 = 32;

/// The window of a key that opens packets. Its numbers are in the key's row of the state, which callers have at hand.
pub struct Window {
    row: usize,
    size: AtomicU32,
    changing: Mutex<()>,
}

/// The judgement on a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// For the first time; the highest so far, or not.
    First {
        highest: bool,
    },
    Before,
    /// Too old: the window has forgotten it.
    Behind,
    /// The window is not to be trusted.
    Distrusted,
}

impl Window {
    #[must_use]
    pub fn new(row: usize, size: u32) -> Self {
        Self {
            row,
            size: AtomicU32::new(size.clamp(1, LARGEST)),
            changing: Mutex::new(()),
        }
    }

    /// Changes its size in packets. A larger one knows as much as before.
    pub fn resize(&self, size: u32) {
        self.size.store(size.clamp(1, LARGEST), Ordering::Relaxed);
    }

    #[inline]
    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed).into()
    }

    #[must_use]
    pub fn row(&self) -> usize {
        self.row
    }

    /// Returns the whole sequence number of a packet that has its low half (RFC 4303, appendix A2).
    #[inline]
    #[must_use]
    pub fn extend(&self, row: &InboundRow, low: u32) -> u64 {
        let highest = get(row, HIGHEST);
        let (high, top) = (highest >> 32, highest as u32);
        let bottom = top.wrapping_sub(self.size() as u32 - 1);
        let high = if u64::from(top) >= self.size() - 1 {
            high + u64::from(low < bottom)
        } else if low >= bottom {
            // The window begins in the numbers before; before the first ones, there are none.
            high.saturating_sub(1)
        } else {
            high
        };
        high << 32 | u64::from(low)
    }

    /// Judges a number without noting it: most replays end here, before they cost a decryption.
    #[inline]
    #[must_use]
    pub fn look(&self, row: &InboundRow, sequence: u64) -> Seen {
        if get(row, DISTRUSTED) != 0 {
            return Seen::Distrusted;
        }
        let highest = get(row, HIGHEST);
        if sequence > highest {
            return Seen::First { highest: true };
        }
        if sequence == 0 || highest - sequence >= self.size() {
            return Seen::Behind;
        }
        match get(row, word(sequence)) & bit(sequence) {
            0 => Seen::First { highest: false },
            _ => Seen::Before,
        }
    }

    /// Keeps other workers from noting numbers.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges the number of an authentic packet, and notes it. The row must be [touched](Rows::touch) afterwards.
    #[inline]
    pub fn accept(&self, row: &InboundRow, sequence: u64) -> Seen {
        self.accept_held(row, sequence, &self.hold())
    }

    /// Does the same under a hold.
    #[inline]
    pub fn accept_held(&self, row: &InboundRow, sequence: u64, _held: &MutexGuard<'_, ()>) -> Seen {
        let seen = self.look(row, sequence);
        if let Seen::First { highest } = seen {
            if highest {
                advance(row, sequence);
            }
            let word = word(sequence);
            set(row, word, get(row, word) | bit(sequence));
        }
        seen
    }
}

/// Moves the window. After a kill between two writes, some numbers count as seen that were not: never the other way round.
#[inline]
fn advance(row: &InboundRow, sequence: u64) {
    let before = get(row, HIGHEST) >> 6;
    set(row, HIGHEST, sequence);
    let words = ((sequence >> 6) - before).min(WINDOW_WORDS as u64);
    for number in 1..=words {
        set(row, ring(before + number), 0);
    }
}

#[inline]
fn get(row: &InboundRow, word: usize) -> u64 {
    row[word].load(Ordering::Relaxed)
}

#[inline]
fn set(row: &InboundRow, word: usize, value: u64) {
    row[word].store(value, Ordering::Relaxed);
}

#[inline]
fn ring(number: u64) -> usize {
    WINDOW + number as usize % WINDOW_WORDS
}

#[inline]
fn word(sequence: u64) -> usize {
    ring(sequence >> 6)
}

#[inline]
fn bit(sequence: u64) -> u64 {
    1 << (sequence & 63)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nf_arena::ArenaBuilder;
    use nf_runtime::state::StateBuilder;
    use proptest::prelude::*;

    use super::*;
    use crate::keys::{inbound, Rows};

    fn rows() -> Rows {
        let mut state = StateBuilder::new(ArenaBuilder::fresh("ipsec", 1).unwrap());
        let rows = Rows::declare(&mut state, "inbound keys", 2, inbound::WORDS).unwrap();
        state.finish().unwrap();
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// The model: the set of all numbers seen. The sender's numbers jump about, over the ends of 32 bits, too.
        #[test]
        fn it_judges_as_a_set_of_all_numbers_does(
            size in 32_u32..=LARGEST, start in prop_oneof![Just(0_u64), 0xffff_f000_u64..0x1_0000_1000, 0_u64..1 << 40],
            steps in prop::collection::vec((0_u64..6000, 0_u64..6000), 1..200),
        ) {
            let (rows, window) = (rows(), Window::new(1, size));
            rows.set(1, HIGHEST, start);
            let row = rows.row(1).unwrap();
            let (mut highest, mut seen) = (start, BTreeSet::new());
            // A number that the window cannot know counts as not seen.
            for (forward, back) in steps {
                let sequence = (highest + forward).saturating_sub(back);
                let expected = if sequence > highest {
                    Seen::First { highest: true }
                } else if sequence == 0 || highest - sequence >= u64::from(size) {
                    Seen::Behind
                } else if seen.contains(&sequence) {
                    Seen::Before
                } else {
                    Seen::First { highest: false }
                };
                if !matches!(expected, Seen::Behind) && (sequence >> 32 == highest >> 32 || start > u64::from(size)) {
                    prop_assert_eq!(window.extend(row, sequence as u32), sequence);
                }
                prop_assert_eq!(window.look(row, sequence), expected);
                prop_assert_eq!(window.accept(row, sequence), expected);
                if matches!(expected, Seen::First { .. }) {
                    seen.insert(sequence);
                    highest = highest.max(sequence);
                    prop_assert_eq!(window.accept(row, sequence), Seen::Before);
                }
            }
        }
    }

    /// Returns a window that has seen all numbers up to 600 but every seventh.
    fn used() -> (Rows, Window) {
        let (rows, window) = (rows(), Window::new(0, 256));
        for sequence in (1..=600).filter(|each| each % 7 != 0) {
            window.accept(rows.row(0).unwrap(), sequence);
        }
        (rows, window)
    }

    #[test]
    fn a_kill_between_two_writes_lets_no_replay_pass() {
        for jump in [1, 40, 64, 300, 5000, 9000] {
            let new = 600 + jump;
            let words = ((new >> 6) - (600 >> 6)).min(WINDOW_WORDS as u64);
            for cleared in 0..=words {
                let (rows, _) = used();
                rows.set(0, HIGHEST, new);
                for number in 1..=cleared {
                    rows.set(0, ring((600 >> 6) + number), 0);
                }
                let next = Window::new(0, 256);
                for sequence in (1..=600).filter(|each| each % 7 != 0) {
                    let seen = next.accept(rows.row(0).unwrap(), sequence);
                    let is_first = matches!(seen, Seen::First { .. });
                    assert!(!is_first, "{sequence} after {cleared} of {words} words");
                }
            }
        }
    }

    #[test]
    fn a_distrusted_window_accepts_nothing() {
        let (rows, window) = (rows(), Window::new(0, 64));
        assert_eq!(
            window.accept(rows.row(0).unwrap(), 5),
            Seen::First { highest: true }
        );
        rows.set(0, DISTRUSTED, 1);
        for sequence in [1, 5, 6, 1000] {
            assert_eq!(
                window.accept(rows.row(0).unwrap(), sequence),
                Seen::Distrusted
            );
        }
    }
}
