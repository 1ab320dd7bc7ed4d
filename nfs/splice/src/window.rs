//! Windows as absolute right edges: the first number that the receiver has no room for.
//!
//! Edges pass through a [`Map`](crate::Map) like acknowledgements, and are exact. A window field is not: its unit is 2^scale bytes, counted from
//! the segment's acknowledgement. With a unit no larger than the receiver's, as a splice should choose it, nothing is lost. With a
//! larger one the field is rounded down. As acknowledgements advance by single bytes, the rounded edge may then move backward by
//! less than a unit, which senders expect (RFC 7323, 2.4); no rounding avoids both this and an edge beyond the true one.
//!
//! One exception: room for less than a unit is offered as one unit. A sender with no window never sends, and a receiver with a small
//! buffer would never offer more. The receiver takes what it has room for, and the sender repeats the rest.

use crate::segment::is_after;

/// The largest scale (RFC 7323, 2.3); larger ones count as this.
pub const MAX_SCALE: u8 = 14;

/// Returns the field that offers the bytes up to an edge of another receiver. A window that is open stays open, also if it is shorter than a unit.
#[must_use]
#[inline]
pub fn field(acknowledgement: u32, edge: u32, scale: u8) -> u16 {
    let is_open = is_after(edge, acknowledgement);
    field_within(acknowledgement, edge, scale).max(u16::from(is_open))
}

/// Returns the field that offers whole units up to an edge, and nothing beyond it.
#[must_use]
#[inline]
pub fn field_within(acknowledgement: u32, edge: u32, scale: u8) -> u16 {
    if !is_after(edge, acknowledgement) {
        return 0;
    }
    let units = edge.wrapping_sub(acknowledgement) >> limited(scale);
    units.min(u32::from(u16::MAX)) as u16
}

const fn limited(scale: u8) -> u8 {
    if scale > MAX_SCALE {
        MAX_SCALE
    } else {
        scale
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_closed_window_stays_closed_and_a_small_one_open() {
        let sizes = [0, 1, 127, 255, 256];
        let fields = sizes.map(|size| field(1_000, 1_000 + size, 7));
        assert_eq!(fields, [0, 1, 1, 1, 2]);
        let within = sizes.map(|size| field_within(1_000, 1_000 + size, 7));
        assert_eq!(within, [0, 0, 0, 1, 2]);
        // The sender has acknowledgements of the splice that the window does not reach.
        assert_eq!(field(1_101, 1_100, 0), 0);
        assert_eq!(field(0, 1 << 30, 14), u16::MAX);
        assert_eq!(field(0, 0x7fff_ffff, 0), u16::MAX);
    }

    #[test]
    fn a_scale_that_rfc_7323_forbids_counts_as_14() {
        assert_eq!(field(0, 1 << 14, 255), 1);
    }

    proptest! {
        /// The offer never exceeds the window, and falls short of it by less than a unit.
        #[test]
        fn the_offer_is_rounded_down(acknowledgement: u32, size in 0_u32..1 << 30, scale in 0_u8..=14) {
            let shown = u32::from(field(acknowledgement, acknowledgement.wrapping_add(size), scale)) << scale;
            prop_assert_eq!(shown == 0, size == 0);
            if size >= 1 << scale {
                prop_assert!(shown <= size);
                prop_assert!(shown + (1 << scale) > size.min(u32::from(u16::MAX) << scale));
            }
        }
    }
}
