//! One direction's sequence numbers: from those of its sender to those of its receiver.
//!
//! Behind a constant delta lie at most two *regions* that the splice owns: it acknowledges the source bytes
//! `[from, from + taken)` to their sender, and sends the destination bytes `[at, at + given)` in their place. An inserted
//! header takes nothing, a removed one gives nothing. Other bytes pass.
//!
//! A receiver's position inside a region means that not all given bytes have arrived, so it stands for the region's start.
//! A region whose given bytes are all acknowledged becomes part of the delta ([`Map::settle`]). Numbers from before it then
//! map to acknowledged positions, which the receiver discards.
//!
//! LB-NIC (section 3.1.3) suppresses each ACK exactly behind an insertion. That stalls a sender if it is the first ACK of the
//! byte before the insertion. Here an ACK is superfluous only if the previous one meant the same to the sender, and brought the same window.

use bytemuck::{Pod, Zeroable};

use crate::segment::{earliest, is_after, is_before, latest};

/// The map of one direction. Positions compared with a region must lie within 2^31 of it, as all that windows allow do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Map {
    /// The destination's number less the source's, before all regions.
    delta: u32,
    /// How many breakpoints are in use.
    count: u32,
    breakpoints: [Breakpoint; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Breakpoint {
    from: u32,
    taken: u32,
    given: u32,
}

impl Breakpoint {
    /// Returns the first source byte behind the region.
    #[inline]
    const fn end(&self) -> u32 {
        self.from.wrapping_add(self.taken)
    }

    /// Returns the delta behind the region from that before it.
    #[inline]
    const fn behind(&self, delta: u32) -> u32 {
        delta.wrapping_add(self.given).wrapping_sub(self.taken)
    }
}

/// A region: source bytes `[from, from + taken)` stand for destination bytes `[at, at + given)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub from: u32,
    pub taken: u32,
    pub at: u32,
    pub given: u32,
}

/// The reason why a region is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Two regions are not settled yet. The bytes wait.
    Full,
    /// The region begins before the end of an unsettled one.
    Order,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "two regions are not acknowledged yet; wait for an acknowledgement",
            Self::Order => "the region begins before the end of another; add regions in the order of the stream",
        })
    }
}

impl std::error::Error for Refused {}

/// Consecutive bytes of a segment with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first byte's place in the segment.
    pub offset: u32,
    pub length: u32,
    /// The first byte's number at the destination; None: the splice owns these bytes and does not forward them.
    pub to: Option<u32>,
}

impl Map {
    /// Creates a map without regions: the destination's numbers are the source's plus `delta`.
    #[must_use]
    pub const fn with_delta(delta: u32) -> Self {
        const NONE: Breakpoint = Breakpoint {
            from: 0,
            taken: 0,
            given: 0,
        };
        Self {
            delta,
            count: 0,
            breakpoints: [NONE; 2],
        }
    }

    /// Creates a map without regions from the two numbers of one byte.
    #[must_use]
    pub const fn between(source: u32, destination: u32) -> Self {
        Self::with_delta(destination.wrapping_sub(source))
    }

    /// Returns the delta if no region is left.
    #[must_use]
    #[inline]
    pub const fn constant(&self) -> Option<u32> {
        if self.count == 0 {
            Some(self.delta)
        } else {
            None
        }
    }

    #[inline]
    fn breakpoints(&self) -> &[Breakpoint] {
        let count = (self.count as usize).min(self.breakpoints.len());
        &self.breakpoints[..count]
    }

    /// Returns the unsettled regions, in order.
    pub fn regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.breakpoints().iter().scan(self.delta, |delta, point| {
            let at = point.from.wrapping_add(*delta);
            *delta = point.behind(*delta);
            Some(Region {
                from: point.from,
                taken: point.taken,
                at,
                given: point.given,
            })
        })
    }

    /// Adds a region at the present end of the stream: no byte from `from` on may have been forwarded. `taken` and `given` are below 2^30.
    ///
    /// # Errors
    /// If two regions are unsettled, or `from` lies before the end of one.
    pub fn insert(&mut self, from: u32, taken: u32, given: u32) -> Result<(), Refused> {
        if let Some(last) = self.breakpoints().last() {
            if is_before(from, last.end()) {
                return Err(Refused::Order);
            }
        }
        let slot = self.breakpoints.get_mut(self.count as usize);
        *slot.ok_or(Refused::Full)? = Breakpoint { from, taken, given };
        self.count += 1;
        Ok(())
    }

    /// Makes regions whose given bytes are all acknowledged part of the delta; returns their number.
    #[inline]
    pub fn settle(&mut self, acknowledgement: u32) -> u32 {
        let before = self.count;
        while let [first, ..] = self.breakpoints() {
            let end = first
                .from
                .wrapping_add(self.delta)
                .wrapping_add(first.given);
            if is_before(acknowledgement, end) {
                break;
            }
            self.delta = first.behind(self.delta);
            self.breakpoints = [self.breakpoints[1], Breakpoint::default()];
            self.count -= 1;
        }
        before - self.count
    }

    /// Translates the number of a source byte. Bytes of a region map to its start, bytes behind an insertion follow the inserted ones.
    #[must_use]
    #[inline]
    pub fn forward(&self, sequence: u32) -> u32 {
        let mut delta = self.delta;
        for point in self.breakpoints() {
            if is_before(sequence, point.end()) {
                return earliest(sequence, point.from).wrapping_add(delta);
            }
            delta = point.behind(delta);
        }
        sequence.wrapping_add(delta)
    }

    /// Translates the number of a segment without data. If it lies in a region or at an end of it, the number is `reached`, within the region:
    /// for an ACK or a probe the first byte not sent to the destination yet (a larger number could be beyond its window), for a reset the
    /// destination's acknowledgement (another would be challenged, RFC 5961).
    #[must_use]
    #[inline]
    pub fn forward_empty(&self, sequence: u32, reached: u32) -> u32 {
        let (mut delta, mut low) = (self.delta, None);
        for point in self.breakpoints() {
            if is_before(sequence, point.from) {
                break;
            }
            let start = point.from.wrapping_add(delta);
            delta = point.behind(delta);
            if !is_after(sequence, point.end()) {
                let low = *low.get_or_insert(start);
                let end = start.wrapping_add(point.given);
                if is_before(sequence, point.end()) || is_before(reached, end) {
                    return latest(low, earliest(reached, end));
                }
            }
        }
        sequence.wrapping_add(delta)
    }

    /// Translates the end of bytes that the destination has, or may get: an acknowledgement, the right edge of a SACK block or of a window.
    /// An end inside a region means its start, so neither an acknowledgement nor a window says more than the destination did.
    #[must_use]
    #[inline]
    pub fn back(&self, end: u32) -> u32 {
        let mut delta = self.delta;
        for point in self.breakpoints() {
            let at = point.from.wrapping_add(delta);
            if is_before(end, at.wrapping_add(point.given)) {
                return earliest(end, at).wrapping_sub(delta);
            }
            delta = point.behind(delta);
        }
        end.wrapping_sub(delta)
    }

    /// Translates the start of bytes that the destination has: the left edge of a SACK block. A start inside a region means its end.
    #[must_use]
    #[inline]
    pub fn back_start(&self, start: u32) -> u32 {
        let mut delta = self.delta;
        for point in self.breakpoints() {
            let at = point.from.wrapping_add(delta);
            if is_before(start, at) || (start == at && point.given > 0) {
                break;
            }
            if is_before(start, at.wrapping_add(point.given)) {
                return point.end();
            }
            delta = point.behind(delta);
        }
        start.wrapping_sub(delta)
    }

    /// Splits a segment into bytes that pass and bytes that the splice owns, at most five parts in all. A FIN counts as one byte behind the data.
    #[must_use]
    #[inline]
    pub fn parts(&self, sequence: u32, length: u32) -> Parts<'_> {
        Parts {
            breakpoints: self.breakpoints(),
            delta: self.delta,
            sequence,
            offset: 0,
            length,
        }
    }
}

/// An iterator over the parts of a segment.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// The regions that do not end before the next part.
    breakpoints: &'a [Breakpoint],
    /// The delta before them.
    delta: u32,
    sequence: u32,
    offset: u32,
    length: u32,
}

impl Iterator for Parts<'_> {
    type Item = Part;

    #[inline]
    fn next(&mut self) -> Option<Part> {
        if self.offset >= self.length {
            return None;
        }
        let start = self.sequence.wrapping_add(self.offset);
        let mut left = self.length - self.offset;
        let mut to = None;
        loop {
            let Some((point, rest)) = self.breakpoints.split_first() else {
                to = Some(start.wrapping_add(self.delta));
                break;
            };
            if is_before(start, point.from) {
                left = left.min(point.from.wrapping_sub(start));
                to = Some(start.wrapping_add(self.delta));
                break;
            }
            if is_before(start, point.end()) {
                left = left.min(point.end().wrapping_sub(start));
                break;
            }
            self.delta = point.behind(self.delta);
            self.breakpoints = rest;
        }
        let part = Part {
            offset: self.offset,
            length: left,
            to,
        };
        self.offset += left;
        Some(part)
    }
}
