//! UDP (RFC 768).

use std::net::IpAddr;

use crate::{checksum, field, protocol, Malformed};

/// View of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Udp<T> {
    buffer: T,
}

impl Udp<&[u8]> {
    pub const HEADER: usize = 8;
}

impl<T: AsRef<[u8]>> Udp<T> {
    /// # Errors
    /// If there are fewer than 8 bytes, or the length field is below 8 or beyond the buffer.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Malformed> {
        let datagram = Self::new_cut(buffer)?;
        if datagram.length() < Udp::HEADER {
            return Err(Malformed::Length);
        }
        if datagram.length() > datagram.buffer.as_ref().len() {
            return Err(Malformed::Truncated);
        }
        Ok(datagram)
    }

    /// Requires only the header: for a first fragment, or the packet quoted by an ICMP message.
    ///
    /// # Errors
    /// If there are fewer than 8 bytes.
    #[inline]
    pub fn new_cut(buffer: T) -> Result<Self, Malformed> {
        if buffer.as_ref().len() < Udp::HEADER {
            return Err(Malformed::Truncated);
        }
        Ok(Self { buffer })
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
    pub fn length(&self) -> usize {
        usize::from(field::get16(self.buffer.as_ref(), 4))
    }

    /// Returns the checksum; 0 means that none was computed (IPv4 only).
    #[must_use]
    #[inline]
    pub fn checksum(&self) -> u16 {
        field::get16(self.buffer.as_ref(), 6)
    }

    #[must_use]
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let bytes = self.buffer.as_ref();
        &bytes[Udp::HEADER..self.length().min(bytes.len()).max(Udp::HEADER)]
    }

    /// Verifies the checksum of a whole datagram. On IPv4, a datagram without a checksum is valid.
    #[must_use]
    pub fn checksum_holds(&self, source: IpAddr, destination: IpAddr) -> bool {
        let bytes = &self.buffer.as_ref()[..self.length().min(self.buffer.as_ref().len())];
        if self.checksum() == 0 {
            return source.is_ipv4();
        }
        let pseudo =
            checksum::pseudo_header(source, destination, protocol::UDP, bytes.len() as u32);
        checksum::fold(checksum::sum(bytes) + pseudo) == 0xffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Writes a header for the `payload` bytes that follow, without a checksum.
    ///
    /// # Errors
    /// If the buffer is too short for a header, or the payload too long.
    pub fn write(
        mut buffer: T,
        source_port: u16,
        destination_port: u16,
        payload: usize,
    ) -> Result<Self, Malformed> {
        let length = u16::try_from(Udp::HEADER + payload).map_err(|_| Malformed::Length)?;
        let header = buffer
            .as_mut()
            .first_chunk_mut::<8>()
            .ok_or(Malformed::Truncated)?;
        field::set16(header, 0, source_port);
        field::set16(header, 2, destination_port);
        field::set16(header, 4, length);
        field::set16(header, 6, 0);
        Ok(Self { buffer })
    }

    /// Computes the checksum of the whole datagram. A sum of 0 is sent as 0xffff.
    pub fn fill_checksum(&mut self, source: IpAddr, destination: IpAddr) {
        let length = self.length().min(self.buffer.as_ref().len());
        let bytes = &mut self.buffer.as_mut()[..length];
        field::set16(bytes, 6, 0);
        let pseudo = checksum::pseudo_header(source, destination, protocol::UDP, length as u32);
        let sum = !checksum::fold(checksum::sum(bytes) + pseudo);
        field::set16(bytes, 6, if sum == 0 { 0xffff } else { sum });
    }
}
