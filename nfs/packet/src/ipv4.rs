//! IPv4 (RFC 791).

use std::net::Ipv4Addr;

use crate::{checksum, field, Malformed};

/// View of an IPv4 packet: header, options, and payload up to the total length.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<T> {
    buffer: T,
}

impl Ipv4<&[u8]> {
    pub const MIN_HEADER: usize = 20;
    pub const DONT_FRAGMENT: u16 = 0x4000;
    pub const MORE_FRAGMENTS: u16 = 0x2000;
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Checks version and lengths, not the checksum. Bytes after the total length (Ethernet's padding) are allowed.
    ///
    /// # Errors
    /// The fault found.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Malformed> {
        Self::new_cut(buffer).and_then(|packet| {
            if packet.total_length() > packet.buffer.as_ref().len() {
                return Err(Malformed::Truncated);
            }
            Ok(packet)
        })
    }

    /// Like [`new_checked`](Self::new_checked), but the payload may be truncated: for the packet quoted by an ICMP message.
    ///
    /// # Errors
    /// The fault found.
    #[inline]
    pub fn new_cut(buffer: T) -> Result<Self, Malformed> {
        let bytes = buffer.as_ref();
        if bytes.len() < Ipv4::MIN_HEADER {
            return Err(Malformed::Truncated);
        }
        if bytes[0] >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let packet = Self { buffer };
        let header = packet.header_length();
        if header < Ipv4::MIN_HEADER || packet.total_length() < header {
            return Err(Malformed::Length);
        }
        if packet.buffer.as_ref().len() < header {
            return Err(Malformed::Truncated);
        }
        Ok(packet)
    }

    #[must_use]
    #[inline]
    pub fn header_length(&self) -> usize {
        usize::from(self.buffer.as_ref()[0] & 0xf) * 4
    }

    #[must_use]
    #[inline]
    pub fn total_length(&self) -> usize {
        usize::from(field::get16(self.buffer.as_ref(), 2))
    }

    #[must_use]
    #[inline]
    pub fn identification(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 4)
    }

    /// Returns flags and offset as they are in the header.
    #[must_use]
    #[inline]
    pub fn fragment_field(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 6)
    }

    #[must_use]
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fragment_field() & Ipv4::DONT_FRAGMENT != 0
    }

    #[must_use]
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.fragment_field() & Ipv4::MORE_FRAGMENTS != 0
    }

    /// Returns the fragment offset in bytes.
    #[must_use]
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.fragment_field() & 0x1fff) * 8
    }

    #[must_use]
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.buffer.as_ref()[8]
    }

    #[must_use]
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.buffer.as_ref()[9]
    }

    #[must_use]
    #[inline]
    pub fn checksum(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 10)
    }

    #[must_use]
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from(field::get::<4>(self.buffer.as_ref(), 12))
    }

    #[must_use]
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(field::get::<4>(self.buffer.as_ref(), 16))
    }

    #[must_use]
    #[inline]
    pub fn checksum_holds(&self) -> bool {
        let header = &self.buffer.as_ref()[..self.header_length()];
        match <&[u8; Ipv4::MIN_HEADER]>::try_from(header) {
            // Of constant length: most packets, and several times faster.
            Ok(header) => checksum::holds_plain(header),
            Err(_) => checksum::holds(header),
        }
    }

    /// Returns the payload, as much as is present.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let bytes = self.buffer.as_ref();
        &bytes[self.header_length()
            ..self
                .total_length()
                .min(bytes.len())
                .max(self.header_length())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Writes a header without options, including its checksum. `payload`: its length in bytes.
    ///
    /// # Errors
    /// If the buffer is too short for a header, or the packet would exceed 65535 bytes.
    pub fn write(
        mut buffer: T,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        payload: usize,
    ) -> Result<Self, Malformed> {
        let total = u16::try_from(Ipv4::MIN_HEADER + payload).map_err(|_| Malformed::Length)?;
        let bytes = buffer.as_mut();
        let header = bytes.first_chunk_mut::<20>().ok_or(Malformed::Truncated)?;
        *header = [0; 20];
        header[0] = 0x45;
        field::set16(header, 2, total);
        field::set16(header, 6, Ipv4::DONT_FRAGMENT);
        header[8] = 64;
        header[9] = protocol;
        field::set(header, 12, source.octets());
        field::set(header, 16, destination.octets());
        let sum = checksum::of(header);
        field::set16(header, 10, sum);
        Ok(Self { buffer })
    }

    /// Sets the total length. This and the setters below leave the checksum; call [`fill_checksum`](Self::fill_checksum) afterwards.
    #[inline]
    pub fn set_total_length(&mut self, value: u16) {
        field::set16(self.buffer.as_mut(), 2, value);
    }

    #[inline]
    pub fn set_source(&mut self, address: Ipv4Addr) {
        field::set(self.buffer.as_mut(), 12, address.octets());
    }

    #[inline]
    pub fn set_destination(&mut self, address: Ipv4Addr) {
        field::set(self.buffer.as_mut(), 16, address.octets());
    }

    #[inline]
    pub fn fill_checksum(&mut self) {
        let header = self.header_length();
        let bytes = self.buffer.as_mut();
        field::set16(bytes, 10, 0);
        let sum = checksum::of(&bytes[..header]);
        field::set16(bytes, 10, sum);
    }
}
