//! The format of ESP with AES-GCM: header, IV, encrypted payload with padding and trailer, integrity check value (RFC 4303, RFC 4106).

use nf_packet::protocol;

use crate::cipher::TAG;

/// SPI and sequence number.
pub const HEADER: usize = 8;
pub const IV: usize = 8;
/// The bytes before the encrypted part.
pub const FRONT: usize = HEADER + IV;
/// The length of the padding, and the next header.
pub const TRAILER: usize = 2;
/// The next header of packets that only hide traffic (RFC 4303, 2.6).
pub const DUMMY: u8 = 59;

/// The fault of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Truncated,
    Length,
    Padding,
    /// The content is not an IP packet.
    NotTunnel,
    /// A packet that only hides traffic.
    Dummy,
}

impl Fault {
    /// Returns the drop reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "esp: truncated",
            Self::Length => "esp: length",
            Self::Padding => "esp: padding",
            Self::NotTunnel => "esp: not a tunnelled packet",
            Self::Dummy => "esp: dummy",
        }
    }
}

/// The fields of a packet before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub spi: u32,
    /// The low half of the sequence number.
    pub sequence: u32,
    pub iv: [u8; IV],
}

impl Sealed {
    /// Reads the fields of an ESP packet, from the SPI to the end of the check value.
    ///
    /// # Errors
    /// If it is too short, or its encrypted part is not a multiple of 4 bytes.
    #[inline]
    pub fn read(packet: &[u8]) -> Result<Self, Fault> {
        let front = packet.first_chunk::<FRONT>().ok_or(Fault::Truncated)?;
        let [a, b, c, d, e, f, g, h, iv @ ..] = *front;
        let body = packet.len() - FRONT;
        if body < TRAILER + TAG {
            return Err(Fault::Truncated);
        }
        if (body - TAG) % 4 != 0 {
            return Err(Fault::Length);
        }
        Ok(Self {
            spi: u32::from_be_bytes([a, b, c, d]),
            sequence: u32::from_be_bytes([e, f, g, h]),
            iv,
        })
    }
}

/// Returns the bytes of padding for a payload: the encrypted part is a multiple of 4 bytes.
#[inline]
#[must_use]
pub const fn padding(payload: usize) -> usize {
    (payload + TRAILER).wrapping_neg() % 4
}

/// Returns the length of the ESP packet for a payload.
#[inline]
#[must_use]
pub const fn length(payload: usize) -> usize {
    FRONT + payload + padding(payload) + TRAILER + TAG
}

/// Returns the longest payload of an ESP packet of at most this length.
#[must_use]
pub const fn longest_payload(packet: usize) -> usize {
    (packet.saturating_sub(FRONT + TAG) / 4 * 4).saturating_sub(TRAILER)
}

/// Writes padding and trailer behind a payload of this length. `packet` has room for them and the check value.
#[inline]
pub fn write_trailer(packet: &mut [u8], payload: usize, next: u8) {
    // All in one piece, as a number whose low bytes come first; the check value comes over the rest of it.
    let count = padding(payload) as u64;
    let bits = 8 * count;
    let trailer = u64::from(next) << 8 | count;
    let all = 0x03_02_01 & !(u64::MAX << bits) | trailer << bits;
    let behind = packet.get_mut(payload..);
    if let Some(behind) = behind.and_then(<[u8]>::first_chunk_mut) {
        *behind = all.to_le_bytes();
    }
}

/// Returns the length of the tunnelled packet at the start of an opened body, bytes that hide it included, and its version's protocol number.
///
/// # Errors
/// The fault found.
#[inline]
pub fn payload(body: &[u8]) -> Result<(usize, u8), Fault> {
    let [rest @ .., length, next] = body else {
        return Err(Fault::Truncated);
    };
    let end = rest.len().checked_sub(usize::from(*length));
    let end = end.ok_or(Fault::Padding)?;
    if !is_padding(rest, end) {
        return Err(Fault::Padding);
    }
    match *next {
        protocol::IPV4 | protocol::IPV6 => Ok((end, *next)),
        DUMMY => Err(Fault::Dummy),
        _ => Err(Fault::NotTunnel),
    }
}

/// Tells whether the bytes from an offset on are 1, 2, 3 and so on. Most packets have no more than alignment needs.
#[inline]
fn is_padding(bytes: &[u8], from: usize) -> bool {
    let padding = bytes.get(from..).unwrap_or_default();
    match padding {
        [] | [1] | [1, 2] | [1, 2, 3] => true,
        [_, _, _, _, ..] => is_long_padding(padding),
        _ => false,
    }
}

/// Does the same for up to 255 bytes.
#[inline(never)]
fn is_long_padding(padding: &[u8]) -> bool {
    padding
        .iter()
        .zip(1..=u8::MAX)
        .all(|(byte, number)| *byte == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_of_a_payload_is_found_again() {
        for length in 0..70 {
            let total = super::length(length);
            assert!((longest_payload(total)..longest_payload(total) + 4)
                .contains(&(longest_payload(total))));
            assert!(longest_payload(total) >= length && longest_payload(total - 4) < length.max(1));
            let mut body = vec![0xee; length + padding(length) + TRAILER + TAG];
            write_trailer(&mut body, length, protocol::IPV4);
            body.truncate(body.len() - TAG);
            assert_eq!(body.len() % 4, 0);
            assert_eq!(payload(&body), Ok((length, protocol::IPV4)));
        }
    }

    #[test]
    fn faults_are_named() {
        let sound = [0; FRONT + 4 + TAG];
        assert!(Sealed::read(&sound).is_ok());
        assert_eq!(
            Sealed::read(&sound[..FRONT + TAG + 1]),
            Err(Fault::Truncated)
        );
        assert_eq!(Sealed::read(&sound[..7]), Err(Fault::Truncated));
        assert_eq!(Sealed::read(&[0; FRONT + 6 + TAG]), Err(Fault::Length));
        assert_eq!(payload(&[4]), Err(Fault::Truncated));
        assert_eq!(payload(&[3, 1, 3, 4]), Err(Fault::Padding));
        assert_eq!(payload(&[2, 1, 2, 4]), Err(Fault::Padding));
        assert_eq!(payload(&[1, 2, 2, DUMMY]), Err(Fault::Dummy));
        assert_eq!(payload(&[1, 2, 2, 6]), Err(Fault::NotTunnel));
        // A padding of 255 bytes is allowed.
        let mut long: Vec<u8> = (1..=255).collect();
        long.extend([255, 41]);
        assert_eq!(payload(&long), Ok((0, 41)));
    }
}
