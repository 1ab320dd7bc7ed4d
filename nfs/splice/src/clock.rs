//! One side's timestamps (RFC 7323) as the other side sees them, over a change of that side.
//!
//! Each host has a clock of its own, with its own start and rate. A receiver discards segments whose TSval is older than the latest
//! (PAWS), so when a connection's answers come from another backend, its clock continues where the last one's stopped. The splice's own
//! segments repeat the latest value: anything newer could lie before the next value of the source.

use bytemuck::{Pod, Zeroable};

use crate::segment::{is_before, latest};

/// The map of one side's timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TimestampMap {
    /// The value shown less the source's.
    delta: u32,
    /// The value shown for the source's first.
    first: u32,
    /// The latest value shown.
    latest: u32,
}

impl TimestampMap {
    /// Creates a map without a source, whose latest value is `shown`: that of the splice's own SYN or SYN-ACK.
    #[must_use]
    pub const fn starting_at(shown: u32) -> Self {
        Self {
            delta: 0,
            first: shown,
            latest: shown,
        }
    }

    /// Changes the source: its value `value` continues from the latest one shown.
    pub fn change(&mut self, value: u32) {
        self.delta = self.latest.wrapping_sub(value);
        self.first = self.latest;
    }

    /// Continues from a later value, which the receiver was shown by another connection's clock.
    pub fn advance(&mut self, shown: u32) {
        let value = self.received();
        self.latest = shown;
        self.change(value);
    }

    /// Translates the TSval of an acceptable segment: one of a forged segment could make the receiver discard the true ones.
    /// An older segment of the same source keeps its older value.
    #[must_use]
    #[inline]
    pub fn show(&mut self, value: u32) -> u32 {
        let shown = value.wrapping_add(self.delta);
        self.latest = latest(self.latest, shown);
        shown
    }

    /// Returns the TSval of the splice's own segments to the side that sees these values.
    #[must_use]
    #[inline]
    pub const fn own(&self) -> u32 {
        self.latest
    }

    /// Returns the source's latest value: the TSecr of the splice's own segments to the source.
    #[must_use]
    #[inline]
    pub const fn received(&self) -> u32 {
        self.latest.wrapping_sub(self.delta)
    }

    /// Translates a TSecr for the source. An echo from before the change stands for the source's first value: an older one would make its
    /// round-trip times too long, and a retransmission look spurious (RFC 3522). An echo of a value that was never shown stands for the latest.
    #[must_use]
    #[inline]
    pub const fn back(&self, echo: u32) -> u32 {
        let shown = if is_before(echo, self.first) {
            self.first
        } else if is_before(self.latest, echo) {
            self.latest
        } else {
            echo
        };
        shown.wrapping_sub(self.delta)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_source_continues_where_the_last_one_stopped() {
        let mut map = TimestampMap::starting_at(1_000);
        map.change(77_000);
        assert_eq!(map.show(77_000), 1_000);
        assert_eq!(map.show(77_500), 1_500);
        assert_eq!((map.own(), map.received()), (1_500, 77_500));
        assert_eq!(map.back(1_400), 77_400);
        map.change(5);
        assert_eq!((map.own(), map.received()), (1_500, 5));
        assert_eq!(map.show(5), 1_500);
        assert_eq!(map.show(6), 1_501);
        // The client's echo of the former source's value, and of one from the future.
        assert_eq!(map.back(1_400), 5);
        assert_eq!(map.back(9_000), 6);
    }

    #[test]
    fn a_clock_continues_from_a_later_value() {
        let mut map = TimestampMap::starting_at(1_000);
        let _ = map.show(1_010);
        map.advance(70_000);
        assert_eq!((map.own(), map.received()), (70_000, 1_010));
        assert_eq!(map.show(1_015), 70_005);
        assert_eq!(map.back(70_005), 1_015);
        assert_eq!(map.back(900), 1_010);
    }

    #[test]
    fn an_overtaken_segment_keeps_its_older_value() {
        let mut map = TimestampMap::starting_at(u32::MAX - 10);
        map.change(50);
        assert_eq!(map.show(70), 9);
        assert_eq!(map.show(60), u32::MAX);
        assert_eq!(map.own(), 9);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Change(u32),
        Segment(u16),
        Own,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            any::<u32>().prop_map(Event::Change),
            any::<u16>().prop_map(Event::Segment),
            Just(Event::Own),
        ]
    }

    proptest! {
        /// Values shown in order never decrease, over wraps, changes and own segments; each echo maps back to the source's value.
        #[test]
        fn the_values_shown_are_monotone(start: u32, events in prop::collection::vec(event(), 1..60)) {
            let mut map = TimestampMap::starting_at(start);
            let (mut clock, mut shown) = (start, start);
            for event in events {
                let new = match event {
                    Event::Change(value) => {
                        clock = value;
                        map.change(value);
                        continue;
                    }
                    Event::Segment(passed) => {
                        clock = clock.wrapping_add(passed.into());
                        let new = map.show(clock);
                        prop_assert_eq!(map.back(new), clock);
                        new
                    }
                    Event::Own => map.own(),
                };
                prop_assert!(!is_before(new, shown), "{} after {}", new, shown);
                prop_assert_eq!(map.received(), clock);
                shown = new;
            }
        }
    }
}
