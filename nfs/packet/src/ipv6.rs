//! IPv6 (RFC 8200).

use std::net::Ipv6Addr;

use crate::{field, Malformed};

/// View of an IPv6 packet. Extension headers are part of the payload; [`dissect`](crate::dissect) parses them.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<T> {
    buffer: T,
}

impl Ipv6<&[u8]> {
    pub const HEADER: usize = 40;
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Checks version and lengths. Allows bytes after the payload length. Refuses jumbograms (RFC 2675: length 0 with a hop-by-hop header).
    ///
    /// # Errors
    /// The fault found.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Malformed> {
        let packet = Self::new_cut(buffer)?;
        if Ipv6::HEADER + packet.payload_length() > packet.buffer.as_ref().len() {
            return Err(Malformed::Truncated);
        }
        if packet.payload_length() == 0 && packet.next_header() == crate::protocol::HOP_BY_HOP {
            return Err(Malformed::Length);
        }
        Ok(packet)
    }

    /// Like [`new_checked`](Self::new_checked), but the payload may be truncated.
    ///
    /// # Errors
    /// The fault found.
    #[inline]
    pub fn new_cut(buffer: T) -> Result<Self, Malformed> {
        let bytes = buffer.as_ref();
        if bytes.len() < Ipv6::HEADER {
            return Err(Malformed::Truncated);
        }
        if bytes[0] >> 4 != 6 {
            return Err(Malformed::Version);
        }
        Ok(Self { buffer })
    }

    #[must_use]
    #[inline]
    pub fn payload_length(&self) -> usize {
        usize::from(field::get16(self.buffer.as_ref(), 4))
    }

    #[must_use]
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.buffer.as_ref()[6]
    }

    #[must_use]
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.buffer.as_ref()[7]
    }

    #[must_use]
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from(field::get::<16>(self.buffer.as_ref(), 8))
    }

    #[must_use]
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from(field::get::<16>(self.buffer.as_ref(), 24))
    }

    /// Returns the payload, as much as is present.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let bytes = self.buffer.as_ref();
        &bytes[Ipv6::HEADER..(Ipv6::HEADER + self.payload_length()).min(bytes.len())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Writes a header. `payload`: its length in bytes.
    ///
    /// # Errors
    /// If the buffer is too short for a header, or the payload exceeds 65535 bytes.
    pub fn write(
        mut buffer: T,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        next_header: u8,
        payload: usize,
    ) -> Result<Self, Malformed> {
        let length = u16::try_from(payload).map_err(|_| Malformed::Length)?;
        let header = buffer
            .as_mut()
            .first_chunk_mut::<40>()
            .ok_or(Malformed::Truncated)?;
        *header = [0; 40];
        header[0] = 0x60;
        field::set16(header, 4, length);
        header[6] = next_header;
        header[7] = 64;
        field::set(header, 8, source.octets());
        field::set(header, 24, destination.octets());
        Ok(Self { buffer })
    }

    #[inline]
    pub fn set_payload_length(&mut self, value: u16) {
        field::set16(self.buffer.as_mut(), 4, value);
    }

    #[inline]
    pub fn set_hop_limit(&mut self, value: u8) {
        self.buffer.as_mut()[7] = value;
    }

    #[inline]
    pub fn set_source(&mut self, address: Ipv6Addr) {
        field::set(self.buffer.as_mut(), 8, address.octets());
    }

    #[inline]
    pub fn set_destination(&mut self, address: Ipv6Addr) {
        field::set(self.buffer.as_mut(), 24, address.octets());
    }
}
