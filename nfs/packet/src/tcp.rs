//! TCP (RFC 9293) and the options that a load balancer rewrites.

use std::net::IpAddr;

use crate::{checksum, field, protocol, Malformed};

pub mod flags {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
}

/// View of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<T> {
    buffer: T,
}

impl Tcp<&[u8]> {
    pub const MIN_HEADER: usize = 20;
}

impl<T: AsRef<[u8]>> Tcp<T> {
    /// # Errors
    /// If it is too short for the header and its options, or the data offset is below 5.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Malformed> {
        let bytes = buffer.as_ref();
        if bytes.len() < Tcp::MIN_HEADER {
            return Err(Malformed::Truncated);
        }
        let segment = Self { buffer };
        if segment.header_length() < Tcp::MIN_HEADER {
            return Err(Malformed::Length);
        }
        if segment.buffer.as_ref().len() < segment.header_length() {
            return Err(Malformed::Truncated);
        }
        Ok(segment)
    }

    #[must_use]
    #[inline]
    pub fn source_port(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 0)
    }

    #[must_use]
    #[inline]
    pub fn destination_port(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 2)
    }

    #[must_use]
    #[inline]
    pub fn sequence(&self) -> u32 {
        field::get32(self.buffer.as_ref(), 4)
    }

    #[must_use]
    #[inline]
    pub fn acknowledgement(&self) -> u32 {
        field::get32(self.buffer.as_ref(), 8)
    }

    /// Returns the four bytes at `at`, in the header or its options.
    #[must_use]
    #[inline]
    pub fn word(&self, at: usize) -> u32 {
        field::get32(self.buffer.as_ref(), at)
    }

    #[must_use]
    #[inline]
    pub fn header_length(&self) -> usize {
        usize::from(self.buffer.as_ref()[12] >> 4) * 4
    }

    #[must_use]
    #[inline]
    pub fn flags(&self) -> u8 {
        self.buffer.as_ref()[13]
    }

    #[must_use]
    #[inline]
    pub fn window(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 14)
    }

    #[must_use]
    #[inline]
    pub fn checksum(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 16)
    }

    /// Returns the bytes of the header with its options.
    #[must_use]
    #[inline]
    pub fn header(&self) -> &[u8] {
        &self.buffer.as_ref()[..self.header_length()]
    }

    #[must_use]
    #[inline]
    pub fn options(&self) -> TcpOptions<'_> {
        TcpOptions {
            bytes: self.header(),
            at: Tcp::MIN_HEADER,
        }
    }

    #[must_use]
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[self.header_length()..]
    }

    /// Verifies the checksum. The buffer must end where the segment does.
    #[must_use]
    pub fn checksum_holds(&self, source: IpAddr, destination: IpAddr) -> bool {
        let bytes = self.buffer.as_ref();
        let pseudo =
            checksum::pseudo_header(source, destination, protocol::TCP, bytes.len() as u32);
        checksum::fold(checksum::sum(bytes) + pseudo) == 0xffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Writes a header without options and without a checksum.
    ///
    /// # Errors
    /// If the buffer is too short for a header.
    pub fn write(
        mut buffer: T,
        ports: (u16, u16),
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
        window: u16,
    ) -> Result<Self, Malformed> {
        let header = buffer
            .as_mut()
            .first_chunk_mut::<20>()
            .ok_or(Malformed::Truncated)?;
        *header = [0; 20];
        field::set16(header, 0, ports.0);
        field::set16(header, 2, ports.1);
        field::set32(header, 4, sequence);
        field::set32(header, 8, acknowledgement);
        header[12] = 0x50;
        header[13] = flags;
        field::set16(header, 14, window);
        Ok(Self { buffer })
    }

    /// Sets the sequence number. This and the setters below update the checksum.
    #[inline]
    pub fn set_sequence(&mut self, value: u32) {
        self.replace32(4, value);
    }

    #[inline]
    pub fn set_acknowledgement(&mut self, value: u32) {
        self.replace32(8, value);
    }

    #[inline]
    pub fn set_flags(&mut self, value: u8) {
        let old = field::get16(self.buffer.as_ref(), 12);
        self.replace16(12, (old & 0xff00) | u16::from(value));
    }

    #[inline]
    pub fn set_window(&mut self, value: u16) {
        self.replace16(14, value);
    }

    fn replace16(&mut self, at: usize, value: u16) {
        let bytes = self.buffer.as_mut();
        let old = field::get16(bytes, at);
        field::set16(bytes, at, value);
        let delta = checksum::Delta::default().replace16(old, value);
        let sum = delta.apply(field::get16(bytes, 16));
        field::set16(bytes, 16, sum);
    }

    /// Replaces the four bytes at `at` (in the header or its options; any alignment) and updates the checksum.
    #[inline]
    pub fn replace32(&mut self, at: usize, value: u32) {
        let bytes = self.buffer.as_mut();
        let old = field::get32(bytes, at);
        field::set32(bytes, at, value);
        // At an odd offset each byte falls on the other side of its 16-bit word.
        let side = |value: u32| {
            if at % 2 == 0 {
                value
            } else {
                value.rotate_left(8)
            }
        };
        let delta = checksum::Delta::default().replace32(side(old), side(value));
        let sum = delta.apply(field::get16(bytes, 16));
        field::set16(bytes, 16, sum);
    }

    /// Computes the checksum of the whole segment. The buffer must end where the segment does.
    pub fn fill_checksum(&mut self, source: IpAddr, destination: IpAddr) {
        let bytes = self.buffer.as_mut();
        field::set16(bytes, 16, 0);
        let pseudo =
            checksum::pseudo_header(source, destination, protocol::TCP, bytes.len() as u32);
        let sum = !checksum::fold(checksum::sum(bytes) + pseudo);
        field::set16(bytes, 16, sum);
    }

    /// Leaves the checksum to the output: the field gets the sum of the pseudo-header alone. The buffer must end where the segment does.
    pub fn leave_checksum(&mut self, source: IpAddr, destination: IpAddr) {
        let bytes = self.buffer.as_mut();
        let pseudo =
            checksum::pseudo_header(source, destination, protocol::TCP, bytes.len() as u32);
        field::set16(bytes, 16, checksum::fold(pseudo));
    }
}

/// An option: its kind, the offset of its data in the segment, and the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    pub kind: u8,
    pub at: usize,
    pub data: &'a [u8],
}

impl TcpOption<'_> {
    pub const SACK: u8 = 5;
    pub const FAST_OPEN: u8 = 34;
}

/// An iterator over a segment's options without padding. It ends at the first malformed option.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        loop {
            let kind = *self.bytes.get(self.at)?;
            match kind {
                0 => return None,
                1 => self.at += 1,
                _ => {
                    let length = usize::from(*self.bytes.get(self.at + 1)?);
                    let at = self.at + 2;
                    if length < 2 {
                        return None;
                    }
                    let data = self.bytes.get(at..self.at + length)?;
                    self.at += length;
                    return Some(TcpOption { kind, at, data });
                }
            }
        }
    }
}
