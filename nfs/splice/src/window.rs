//! Windows as absolute right edges: the first number that the receiver has no room for.
//!
//! Edges pass through a [`Map`] like acknowledgements, and are exact. A window field is not: its unit is 2^scale bytes, counted from
//! the segment's acknowledgement. With a unit no larger than the receiver's, as a splice should choose it, nothing is lost. With a
//! larger one the field is rounded down. As acknowledgements advance by single bytes, the rounded edge may then move backward by
//! less than a unit, which senders expect (RFC 7323, 2.4); no rounding avoids both this and an edge beyond the true one.
//!
//! One exception: room for less than a unit is offered as one unit. A sender with no window never sends, and a receiver with a small
//! buffer would never offer more. The receiver takes what it has room for, and the sender repeats the rest.

use crate::{segment::is_after, Map};

/// The window of a segment: its acknowledgement, the field, and the scale of the side that sent it (0 in a SYN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub acknowledgement: u32,
    pub field: u16,
    pub scale: u8,
}

/// The largest scale (RFC 7323, 2.3); larger ones count as this.
pub const MAX_SCALE: u8 = 14;

impl Window {
    /// Returns the window's size in bytes.
    #[must_use]
    #[inline]
    pub const fn size(&self) -> u32 {
        (self.field as u32) << limited(self.scale)
    }

    /// Returns the right edge.
    #[must_use]
    #[inline]
    pub const fn edge(&self) -> u32 {
        self.acknowledgement.wrapping_add(self.size())
    }

    /// Translates a receiver's window for the sender, who gets it in a segment with this acknowledgement, in its own numbers,
    /// and at this scale. A closed window stays closed.
    #[must_use]
    #[inline]
    pub fn for_sender(&self, map: &Map, acknowledgement: u32, scale: u8) -> u16 {
        if self.field == 0 {
            return 0;
        }
        field(acknowledgement, map.back(self.edge()), scale)
    }
}

/// Returns the field that offers the bytes up to an edge.
#[must_use]
#[inline]
pub fn field(acknowledgement: u32, edge: u32, scale: u8) -> u16 {
    if !is_after(edge, acknowledgement) {
        return 0;
    }
    let units = edge.wrapping_sub(acknowledgement) >> limited(scale);
    units.clamp(1, u32::from(u16::MAX)) as u16
}

const fn limited(scale: u8) -> u8 {
    if scale > MAX_SCALE {
        MAX_SCALE
    } else {
        scale
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_closed_window_stays_closed_and_a_small_one_open() {
        let map = Map::with_delta(7_000);
        let window = |field| Window {
            acknowledgement: 8_000,
            field,
            scale: 0,
        };
        assert_eq!(window(0).for_sender(&map, 1_000, 7), 0);
        assert_eq!(window(1).for_sender(&map, 1_000, 7), 1);
        assert_eq!(window(127).for_sender(&map, 1_000, 7), 1);
        assert_eq!(window(255).for_sender(&map, 1_000, 7), 1);
        assert_eq!(window(256).for_sender(&map, 1_000, 7), 2);
        // The sender has acknowledgements of the splice that the window does not reach.
        assert_eq!(window(100).for_sender(&map, 1_100, 0), 0);
        assert_eq!(window(100).for_sender(&map, 1_101, 0), 0);
        assert_eq!(field(0, 1 << 30, 14), u16::MAX);
        assert_eq!(field(0, 0x7fff_ffff, 0), u16::MAX);
    }

    #[test]
    fn inserted_bytes_use_up_the_window() {
        let mut map = Map::with_delta(0);
        map.insert(1_000, 0, 100).unwrap();
        let window = |field| Window {
            acknowledgement: 900,
            field,
            scale: 0,
        };
        assert_eq!(window(50).for_sender(&map, 900, 0), 50);
        assert_eq!(window(150).for_sender(&map, 900, 0), 100);
        assert_eq!(window(200).for_sender(&map, 900, 0), 100);
        assert_eq!(window(300).for_sender(&map, 900, 0), 200);
        // All inserted bytes but one have arrived, and the window is full with the last.
        let inside = Window {
            acknowledgement: 1_099,
            field: 1,
            scale: 0,
        };
        assert_eq!(inside.for_sender(&map, 1_000, 0), 0);
    }

    #[test]
    fn a_scale_that_rfc_7323_forbids_counts_as_14() {
        let window = Window {
            acknowledgement: 0,
            field: 1,
            scale: 40,
        };
        assert_eq!(window.size(), 1 << 14);
        assert_eq!(field(0, 1 << 14, 255), 1);
    }

    proptest! {
        /// The offer never exceeds the receiver's window, and falls short of it by less than a unit; with a unit no larger than the receiver's, it is equal.
        #[test]
        fn the_offer_is_rounded_down(
            acknowledgement: u32,
            delta: u32,
            field: u16,
            scale in 0_u8..=14,
            out in 0_u8..=14,
            ahead in 0_u32..70_000,
        ) {
            let receiver = Window { acknowledgement: acknowledgement.wrapping_add(delta), field, scale };
            let shown = Window {
                acknowledgement: acknowledgement.wrapping_add(ahead),
                field: receiver.for_sender(&Map::with_delta(delta), acknowledgement.wrapping_add(ahead), out),
                scale: out,
            };
            let given = receiver.size().saturating_sub(ahead);
            prop_assert_eq!(shown.field == 0, given == 0);
            if given >= 1 << out {
                prop_assert!(shown.size() <= given);
                let most = u32::from(u16::MAX) << out;
                prop_assert!(shown.size() + (1 << out) > given.min(most));
                if ahead == 0 && out <= scale {
                    prop_assert_eq!(shown.size(), given.min(most));
                }
            }
        }
    }
}
