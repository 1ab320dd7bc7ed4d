//! Internet checksums that a sender left to a network card. Virtual interfaces have no card, so they are completed here.

/// Completes a checksum whose field contains only the pseudo-header's sum, as Linux leaves it (CHECKSUM_PARTIAL). The checksum covers the frame from
/// `start` on, and the field is `offset` bytes further. Returns false, without a change, if that is outside the frame.
#[must_use]
pub(crate) fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(covered) = frame.get_mut(start..) else {
        return false;
    };
    let sum = fold(sum(covered));
    let Some(field) = covered.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) else {
        return false;
    };
    // Zero would mean "none" to UDP; both values represent the same sum.
    *field = match !sum {
        0 => [0xff, 0xff],
        checksum => checksum.to_be_bytes(),
    };
    true
}

/// Completes the TCP or UDP checksum of a frame without checksum metadata if its field looks like one left to a network card.
/// A right checksum stays right, even where both look the same by chance. Returns whether it was completed.
#[must_use]
pub(crate) fn complete_if_partial(frame: &mut [u8]) -> bool {
    let Some((segment, pseudo)) = transport(frame) else {
        return false;
    };
    let offset = match segment.protocol {
        TCP => 16,
        _ => 6,
    };
    let field = frame
        .get(segment.start + offset..)
        .and_then(|rest| rest.first_chunk::<2>());
    if field.map(|bytes| u16::from_be_bytes(*bytes)) != Some(pseudo) {
        return false;
    }
    complete(&mut frame[..segment.end], segment.start, offset)
}

const TCP: u8 = 6;
const UDP: u8 = 17;

struct Segment {
    protocol: u8,
    start: usize,
    end: usize,
}

/// Returns the EtherType behind any VLAN tags, and the position of the header that follows.
pub(crate) fn network(frame: &[u8]) -> Option<(u16, usize)> {
    const TAGS: [u16; 2] = [0x8100, 0x88a8];
    let mut at = 12;
    while TAGS.contains(&half(frame, at)?) {
        at += 4;
    }
    Some((half(frame, at)?, at + 2))
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Returns the position of the TCP or UDP segment, and the folded sum of its pseudo-header. None for everything else, and for fragments.
fn transport(frame: &[u8]) -> Option<(Segment, u16)> {
    let (ethertype, ip) = network(frame)?;
    let (protocol, addresses, start, end) = match ethertype {
        0x0800 => {
            // A fragment's checksum covers the whole datagram.
            if half(frame, ip + 6)? & 0x3fff != 0 {
                return None;
            }
            let header = usize::from(frame.get(ip)? & 0xf) * 4;
            let end = ip + usize::from(half(frame, ip + 2)?);
            (
                *frame.get(ip + 9)?,
                frame.get(ip + 12..ip + 20)?,
                ip + header,
                end,
            )
        }
        0x86dd => {
            let end = ip + 40 + usize::from(half(frame, ip + 4)?);
            (
                *frame.get(ip + 6)?,
                frame.get(ip + 8..ip + 40)?,
                ip + 40,
                end,
            )
        }
        _ => return None,
    };
    if !matches!(protocol, TCP | UDP) || start >= end || end > frame.len() {
        return None;
    }
    let pseudo = sum(addresses) + u64::from(protocol) + (end - start) as u64;
    let segment = Segment {
        protocol,
        start,
        end,
    };
    Some((segment, fold(pseudo)))
}

/// Sums 16-bit words; an odd last byte is the upper half of one.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(4);
    let rest = chunks.remainder();
    // Sums 32-bit words; folding adds the carries out of the lower 16 bits (RFC 1071, section 2).
    let word = |chunk: &[u8]| {
        chunk
            .first_chunk()
            .map_or(0, |bytes| u64::from(u32::from_be_bytes(*bytes)))
    };
    let mut sum: u64 = chunks.map(word).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_be_bytes(last));
    sum
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums word by word, as RFC 1071 defines it.
    fn slow(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        let mut sum: u64 = bytes.chunks(2).map(word).sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Builds a frame with a TCP or UDP segment whose checksum field contains `field`; returns the positions of both.
    fn frame(tag: bool, v6: bool, protocol: u8, payload: &[u8]) -> (Vec<u8>, usize, usize) {
        let mut frame = vec![2; 12];
        if tag {
            frame.extend([0x81, 0, 0, 5]);
        }
        let header = if protocol == TCP { 20 } else { 8 };
        let length = (header + payload.len()) as u16;
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend((0..32).map(|each| each * 7));
        } else {
            frame.extend([0x08, 0, 0x45, 0]);
            frame.extend((length + 20).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let start = frame.len();
        frame.extend(vec![0; header]);
        frame.extend(payload);
        (frame, start, start + if protocol == TCP { 16 } else { 6 })
    }

    fn pseudo(frame: &[u8]) -> u16 {
        transport(frame).unwrap().1
    }

    #[test]
    fn a_partial_checksum_is_completed_and_a_right_one_kept() {
        for (tag, v6, protocol) in [
            (false, false, TCP),
            (true, false, UDP),
            (false, true, UDP),
            (true, true, TCP),
        ] {
            for length in [0, 1, 2, 3, 1399, 1400] {
                let payload: Vec<u8> = (0..length).map(|each| (each * 31 % 251) as u8).collect();
                let (mut bytes, start, field) = frame(tag, v6, protocol, &payload);
                // The checksum does not cover padding to the shortest frame.
                bytes.extend([0xaa; 7]);
                let partial = pseudo(&bytes);
                bytes[field..field + 2].copy_from_slice(&partial.to_be_bytes());
                assert!(complete_if_partial(&mut bytes));
                let end = bytes.len() - 7;
                let whole = fold(u64::from(slow(&bytes[start..end])) + u64::from(partial));
                assert_eq!(whole, 0xffff, "{tag} {v6} {protocol} {length}");
                assert!(!complete_if_partial(&mut bytes) || whole == 0xffff);
            }
        }
    }

    #[test]
    fn wrong_and_truncated_segments_are_not_changed() {
        let (mut wrong, _, field) = frame(false, false, TCP, b"payload");
        wrong[field] = 0x12;
        let before = wrong.clone();
        assert!(!complete_if_partial(&mut wrong));
        assert_eq!(wrong, before);
        let (mut whole, _, field) = frame(true, true, TCP, b"payload");
        let partial = pseudo(&whole);
        whole[field..field + 2].copy_from_slice(&partial.to_be_bytes());
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            assert!(!complete_if_partial(&mut cut));
            assert_eq!(cut, whole[..length]);
        }
        let (mut fragment, _, _) = frame(false, false, UDP, b"");
        fragment[20] = 0x20;
        assert!(!complete_if_partial(&mut fragment));
        assert!(!complete(&mut [0; 10], 11, 0));
        assert!(!complete(&mut [0; 10], 4, 5));
    }
}
