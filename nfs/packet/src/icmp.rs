//! ICMP (RFC 792) and ICMPv6 (RFC 4443): their common header.

use std::net::IpAddr;

use crate::{checksum, field, protocol, Malformed};

/// Types and codes of ICMP.
pub mod icmp4 {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const SOURCE_QUENCH: u8 = 4;
    pub const ECHO: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// A code of UNREACHABLE: the packet may not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
}

/// Types of ICMPv6.
pub mod icmp6 {
    pub const UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

/// View of an ICMP message: type, code, checksum, four bytes that depend on the type, body.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<T> {
    buffer: T,
}

impl Icmp<&[u8]> {
    pub const HEADER: usize = 8;
}

impl<T: AsRef<[u8]>> Icmp<T> {
    /// # Errors
    /// If there are fewer than 8 bytes.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Malformed> {
        if buffer.as_ref().len() < Icmp::HEADER {
            return Err(Malformed::Truncated);
        }
        Ok(Self { buffer })
    }

    #[must_use]
    #[inline]
    pub fn kind(&self) -> u8 {
        self.buffer.as_ref()[0]
    }

    #[must_use]
    #[inline]
    pub fn code(&self) -> u8 {
        self.buffer.as_ref()[1]
    }

    /// Returns the four bytes after the checksum: identifier and sequence number of an echo, MTU of "too big".
    #[must_use]
    #[inline]
    pub fn argument(&self) -> u32 {
        field::get32(self.buffer.as_ref(), 4)
    }

    #[must_use]
    #[inline]
    pub fn body(&self) -> &[u8] {
        &self.buffer.as_ref()[Icmp::HEADER..]
    }

    /// Tells whether the message quotes an undeliverable packet.
    #[must_use]
    pub fn is_error(&self, version: crate::Version) -> bool {
        match version {
            crate::Version::V4 => matches!(
                self.kind(),
                icmp4::UNREACHABLE
                    | icmp4::SOURCE_QUENCH
                    | icmp4::TIME_EXCEEDED
                    | icmp4::PARAMETER_PROBLEM
            ),
            crate::Version::V6 => self.kind() < 128,
        }
    }

    /// Verifies the checksum. The buffer must end where the message does. ICMPv6 covers a pseudo header, ICMP does not.
    #[must_use]
    pub fn checksum_holds(&self, source: IpAddr, destination: IpAddr) -> bool {
        let bytes = self.buffer.as_ref();
        checksum::fold(checksum::sum(bytes) + pseudo(source, destination, bytes.len())) == 0xffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmp<T> {
    /// Sets type, code and argument, but not the body. Call [`fill_checksum`](Self::fill_checksum) afterwards.
    pub fn set(&mut self, kind: u8, code: u8, argument: u32) {
        let bytes = self.buffer.as_mut();
        bytes[0] = kind;
        bytes[1] = code;
        field::set32(bytes, 4, argument);
    }

    pub fn fill_checksum(&mut self, source: IpAddr, destination: IpAddr) {
        let bytes = self.buffer.as_mut();
        field::set16(bytes, 2, 0);
        let sum = checksum::sum(bytes) + pseudo(source, destination, bytes.len());
        field::set16(bytes, 2, !checksum::fold(sum));
    }
}

fn pseudo(source: IpAddr, destination: IpAddr, length: usize) -> u64 {
    if source.is_ipv6() {
        checksum::pseudo_header(source, destination, protocol::ICMPV6, length as u32)
    } else {
        0
    }
}
