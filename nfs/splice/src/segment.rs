//! Comparison of sequence numbers modulo 2^32, and the checks of arriving segments (RFC 9293 3.10.7.4, RFC 5961).

use nf_packet::tcp_flags;

/// Tells whether a number precedes another.
#[must_use]
#[inline]
pub const fn is_before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

/// Tells whether a number follows another.
#[must_use]
#[inline]
pub const fn is_after(number: u32, other: u32) -> bool {
    is_before(other, number)
}

#[must_use]
#[inline]
pub const fn earliest(number: u32, other: u32) -> u32 {
    if is_before(number, other) {
        number
    } else {
        other
    }
}

#[must_use]
#[inline]
pub const fn latest(number: u32, other: u32) -> u32 {
    if is_before(number, other) {
        other
    } else {
        number
    }
}

/// The sequence numbers that a segment occupies: those of its payload, of SYN and of FIN.
#[must_use]
#[inline]
pub const fn length(flags: u8, payload: u32) -> u32 {
    payload + (flags & tcp_flags::SYN != 0) as u32 + (flags & tcp_flags::FIN != 0) as u32
}

/// The numbers that a receiver waits for: RCV.NXT and RCV.WND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub next: u32,
    pub window: u32,
}

/// The receiver's answer to a segment of a synchronized connection, before it looks at the acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Processes the segment.
    Accept,
    /// Ends the connection.
    Reset,
    /// Drops the segment and answers with an ACK: the true peer then resends, or repeats its reset with the exact number.
    /// The answer is limited in rate (RFC 5961, 7).
    Challenge,
    /// Drops the segment in silence.
    Drop,
}

impl Expected {
    /// Tells whether a number lies in the window.
    #[must_use]
    #[inline]
    pub const fn contains(&self, number: u32) -> bool {
        number.wrapping_sub(self.next) < self.window
    }

    /// Tells whether a segment is acceptable: its first or last number lies in the window. An empty one may also be at the right edge, like in Linux
    /// (`tcp_sequence` in net/ipv4/tcp_input.c): a sender that has filled the window acknowledges from there, and RFC 9293 would refuse that.
    #[must_use]
    #[inline]
    pub const fn accepts(&self, sequence: u32, length: u32) -> bool {
        if length == 0 {
            return sequence.wrapping_sub(self.next) <= self.window;
        }
        // A segment that begins before the window and ends behind it covers it.
        let last = sequence.wrapping_add(length - 1);
        self.contains(sequence)
            || self.contains(last)
            || (self.window > 0 && is_before(sequence, self.next) && is_after(last, self.next))
    }

    /// Judges a segment by its flags and numbers; `length` counts SYN and FIN.
    #[must_use]
    #[inline]
    pub const fn judge(&self, flags: u8, sequence: u32, length: u32) -> Verdict {
        if flags & tcp_flags::RST != 0 {
            // RFC 5961, 3.2: only the exact number resets.
            return if sequence == self.next {
                Verdict::Reset
            } else if self.contains(sequence) {
                Verdict::Challenge
            } else {
                Verdict::Drop
            };
        }
        // RFC 5961, 4.2: whatever its number. An unacceptable segment is answered with the same ACK.
        if flags & tcp_flags::SYN != 0 || !self.accepts(sequence, length) {
            return Verdict::Challenge;
        }
        Verdict::Accept
    }
}

/// The numbers that a sender has used: SND.UNA, SND.NXT and MAX.SND.WND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub unacknowledged: u32,
    pub next: u32,
    /// The largest window that the receiver has offered.
    pub window: u32,
}

impl Sent {
    /// Tells whether an acknowledgement is plausible (RFC 5961, 5.2): not of bytes never sent, nor older than a window. Others get a challenge ACK.
    #[must_use]
    #[inline]
    pub const fn accepts(&self, acknowledgement: u32) -> bool {
        !is_after(acknowledgement, self.next)
            && !is_before(
                acknowledgement,
                self.unacknowledged.wrapping_sub(self.window),
            )
    }

    /// Tells whether an acknowledgement is of bytes that were not acknowledged before.
    #[must_use]
    #[inline]
    pub const fn advances(&self, acknowledgement: u32) -> bool {
        is_after(acknowledgement, self.unacknowledged) && !is_after(acknowledgement, self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTS: [u32; 4] = [0, 1000, u32::MAX - 20, 0x7fff_fff0];

    #[test]
    fn comparison_wraps() {
        for start in STARTS {
            for distance in [1, 100, 0x7fff_ffff] {
                let end = start.wrapping_add(distance);
                assert!(is_before(start, end) && is_after(end, start));
                assert!(!is_before(end, start) && !is_after(start, end));
                assert_eq!((earliest(start, end), latest(start, end)), (start, end));
                assert_eq!((earliest(end, start), latest(end, start)), (start, end));
            }
            assert!(!is_before(start, start) && !is_after(start, start));
        }
    }

    /// RFC 9293's table of four cases, byte by byte: a segment is acceptable if one of its numbers lies in the window. An empty one may be at its end.
    #[test]
    fn a_segment_is_acceptable_if_one_of_its_numbers_is_expected() {
        for next in STARTS {
            for window in [0, 1, 5, 40] {
                let expected = Expected { next, window };
                for offset in -50_i32..50 {
                    let sequence = next.wrapping_add(offset as u32);
                    let in_window = |at: i32| at >= 0 && at < window as i32;
                    let empty = (0..=window as i32).contains(&offset);
                    assert_eq!(expected.accepts(sequence, 0), empty, "{offset} {window}");
                    for length in 1..60 {
                        let one = (offset..offset + length).any(in_window);
                        let found = expected.accepts(sequence, length as u32);
                        assert_eq!(found, one, "{offset} {length} {window}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_exact_number_resets() {
        for next in STARTS {
            let expected = Expected { next, window: 100 };
            let judge = |offset: u32| expected.judge(tcp_flags::RST, next.wrapping_add(offset), 0);
            assert_eq!(judge(0), Verdict::Reset);
            for offset in [1, 50, 99] {
                assert_eq!(judge(offset), Verdict::Challenge);
            }
            for offset in [100, 0x7fff_ffff, u32::MAX] {
                assert_eq!(judge(offset), Verdict::Drop);
            }
            let closed = Expected { next, window: 0 };
            assert_eq!(closed.judge(tcp_flags::RST, next, 0), Verdict::Reset);
        }
    }

    #[test]
    fn a_syn_is_challenged_whatever_its_number() {
        let expected = Expected {
            next: 1000,
            window: 100,
        };
        for sequence in [0, 999, 1000, 1050, 70_000] {
            let syn = expected.judge(tcp_flags::SYN, sequence, 1);
            assert_eq!(syn, Verdict::Challenge);
        }
        let data = |sequence| expected.judge(tcp_flags::ACK, sequence, 10);
        assert_eq!(data(1000), Verdict::Accept);
        assert_eq!(data(991), Verdict::Accept);
        assert_eq!(data(990), Verdict::Challenge);
        assert_eq!(data(1100), Verdict::Challenge);
    }

    #[test]
    fn an_acknowledgement_of_bytes_never_sent_or_long_gone_is_refused() {
        for unacknowledged in STARTS {
            let sent = Sent {
                unacknowledged,
                next: unacknowledged.wrapping_add(500),
                window: 300,
            };
            let at = |offset: i32| unacknowledged.wrapping_add(offset as u32);
            for (offset, accepted, advances) in [
                (-301, false, false),
                (-300, true, false),
                (0, true, false),
                (1, true, true),
                (500, true, true),
                (501, false, false),
            ] {
                assert_eq!(sent.accepts(at(offset)), accepted, "{offset}");
                assert_eq!(sent.advances(at(offset)), advances, "{offset}");
            }
        }
    }

    #[test]
    fn syn_and_fin_occupy_a_number() {
        assert_eq!(length(tcp_flags::ACK, 7), 7);
        assert_eq!(length(tcp_flags::SYN, 0), 1);
        assert_eq!(length(tcp_flags::FIN | tcp_flags::ACK, 7), 8);
    }
}
