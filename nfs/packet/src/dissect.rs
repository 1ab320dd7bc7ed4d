//! Dissects a frame in one pass: the offsets of its headers, and the fields that identify its flow.

use std::net::IpAddr;

use crate::{ethertype, field, protocol, Ethernet, Ipv4, Ipv6, Malformed, Udp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// Not a fragment; an IPv6 "atomic" fragment (RFC 6946) counts as whole.
    Whole,
    /// Has the ports; other fragments follow.
    First,
    /// Has no ports.
    Later,
}

/// The headers of an IP packet. Offsets are in bytes from the start of the dissected slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    pub version: Version,
    pub fragment: Fragment,
    /// The protocol after IP and its extension headers.
    pub protocol: u8,
    /// The TCP flags; 0 without a TCP header.
    pub tcp_flags: u8,
    pub network: u16,
    pub transport: u16,
    /// The end of the IP packet; padding may follow.
    pub end: u32,
    /// The source port of TCP or UDP; 0 without their header.
    pub source_port: u16,
    pub destination_port: u16,
    /// The fragment identification; IPv4 uses the low 16 bits. 0 if it is not a fragment.
    pub fragment_id: u32,
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ip(Headers),
    Arp { offset: usize },
    Other { ethertype: u16 },
}

impl Headers {
    #[must_use]
    #[inline]
    pub fn source(&self, frame: &[u8]) -> IpAddr {
        let at = usize::from(self.network);
        match self.version {
            Version::V4 => IpAddr::from(field::get::<4>(frame, at + 12)),
            Version::V6 => IpAddr::from(field::get::<16>(frame, at + 8)),
        }
    }

    #[must_use]
    #[inline]
    pub fn destination(&self, frame: &[u8]) -> IpAddr {
        let at = usize::from(self.network);
        match self.version {
            Version::V4 => IpAddr::from(field::get::<4>(frame, at + 16)),
            Version::V6 => IpAddr::from(field::get::<16>(frame, at + 24)),
        }
    }

    /// Returns the IP packet without padding.
    #[must_use]
    #[inline]
    pub fn packet<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame
            .get(usize::from(self.network)..self.end as usize)
            .unwrap_or_default()
    }

    /// Returns the bytes after IP and its extension headers, without padding.
    #[must_use]
    #[inline]
    pub fn segment<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame
            .get(usize::from(self.transport)..self.end as usize)
            .unwrap_or_default()
    }

    #[must_use]
    #[inline]
    pub fn segment_mut<'a>(&self, frame: &'a mut [u8]) -> &'a mut [u8] {
        frame
            .get_mut(usize::from(self.transport)..self.end as usize)
            .unwrap_or_default()
    }
}

/// Dissects an Ethernet frame.
///
/// # Errors
/// The fault of an IP packet; [`Malformed::Truncated`] for a frame without a whole Ethernet header.
#[inline(always)]
pub fn dissect(frame: &[u8]) -> Result<Outcome, Malformed> {
    const ETHERNET: usize = 14;
    // Most frames. Constant offsets need no checks of their own.
    if let Some(start) = frame.first_chunk::<{ ETHERNET + Ipv4::MIN_HEADER }>() {
        if field::get16(start, ETHERNET - 2) == ethertype::IPV4 {
            return ipv4(frame, ETHERNET).map(Outcome::Ip);
        }
    }
    dissect_other(frame)
}

/// Dissects a frame with tags, or without an IPv4 header.
fn dissect_other(frame: &[u8]) -> Result<Outcome, Malformed> {
    let ethernet = Ethernet::new_checked(frame)?;
    let offset = ethernet.payload_offset();
    match ethernet.ethertype() {
        ethertype::IPV4 => ipv4(frame, offset).map(Outcome::Ip),
        ethertype::IPV6 => ipv6(frame, offset).map(Outcome::Ip),
        ethertype::ARP => Ok(Outcome::Arp { offset }),
        ethertype => Ok(Outcome::Other { ethertype }),
    }
}

/// Dissects a packet that starts with its IP header.
///
/// # Errors
/// Those of [`dissect`].
pub fn dissect_ip(packet: &[u8]) -> Result<Headers, Malformed> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(packet, 0),
        Some(6) => ipv6(packet, 0),
        Some(_) => Err(Malformed::Version),
        None => Err(Malformed::Truncated),
    }
}

/// Dissects the packet that an ICMP message quotes: the payload may end after its ports, and the checksum is not verified.
///
/// # Errors
/// Those of [`dissect`], or an IPv6 packet whose extension headers are truncated.
pub fn dissect_quoted(quoted: &[u8]) -> Result<Headers, Malformed> {
    let mut headers = match quoted.first().map(|byte| byte >> 4) {
        Some(4) => {
            let packet = Ipv4::new_cut(quoted)?;
            let offset = packet.fragment_offset();
            Headers {
                version: Version::V4,
                fragment: if offset > 0 {
                    Fragment::Later
                } else if packet.more_fragments() {
                    Fragment::First
                } else {
                    Fragment::Whole
                },
                protocol: packet.protocol(),
                tcp_flags: 0,
                network: 0,
                transport: packet.header_length() as u16,
                end: packet.total_length().min(quoted.len()) as u32,
                source_port: 0,
                destination_port: 0,
                fragment_id: u32::from(packet.identification()),
            }
        }
        Some(6) => {
            let packet = Ipv6::new_cut(quoted)?;
            let end = (Ipv6::HEADER + packet.payload_length()).min(quoted.len());
            let mut headers = Headers {
                version: Version::V6,
                fragment: Fragment::Whole,
                protocol: packet.next_header(),
                tcp_flags: 0,
                network: 0,
                transport: Ipv6::HEADER as u16,
                end: end as u32,
                source_port: 0,
                destination_port: 0,
                fragment_id: 0,
            };
            walk_extensions(&quoted[..end], &mut headers)?;
            headers
        }
        Some(_) => return Err(Malformed::Version),
        None => return Err(Malformed::Truncated),
    };
    if headers.fragment != Fragment::Later
        && matches!(headers.protocol, protocol::TCP | protocol::UDP)
    {
        let segment = headers.segment(quoted);
        if segment.len() < 4 {
            return Err(Malformed::Truncated);
        }
        headers.source_port = field::get16(segment, 0);
        headers.destination_port = field::get16(segment, 2);
    }
    Ok(headers)
}

#[inline(always)]
fn ipv4(frame: &[u8], network: usize) -> Result<Headers, Malformed> {
    let packet = Ipv4::new_checked(&frame[network..])?;
    if !packet.checksum_holds() {
        return Err(Malformed::Checksum);
    }
    if packet.header_length() > Ipv4::MIN_HEADER {
        options_are_sound(&frame[network + Ipv4::MIN_HEADER..network + packet.header_length()])?;
    }
    let fragment_field = packet.fragment_field() & (Ipv4::MORE_FRAGMENTS | 0x1fff);
    let (fragment, fragment_id) = match fragment_field {
        0 => (Fragment::Whole, 0),
        Ipv4::MORE_FRAGMENTS => (Fragment::First, u32::from(packet.identification())),
        _ => (Fragment::Later, u32::from(packet.identification())),
    };
    // An offset of 8 bytes would overwrite the TCP flags (RFC 1858).
    if packet.protocol() == protocol::TCP && fragment_field & 0x1fff == 1 {
        return Err(Malformed::TinyFragment);
    }
    let headers = Headers {
        version: Version::V4,
        fragment,
        protocol: packet.protocol(),
        tcp_flags: 0,
        network: network as u16,
        transport: (network + packet.header_length()) as u16,
        end: (network + packet.total_length()) as u32,
        source_port: 0,
        destination_port: 0,
        fragment_id,
    };
    transport(frame, headers)
}

/// Refuses source routes, loose and strict, even completed ones (RFC 6274, 3.13.2.3), and options that do not fit.
#[cold]
fn options_are_sound(mut options: &[u8]) -> Result<(), Malformed> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    loop {
        let length = match *options {
            [] | [END, ..] => return Ok(()),
            [NO_OPERATION, ..] => 1,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => return Err(Malformed::SourceRoute),
            [_, length, ..] if length >= 2 => usize::from(length),
            _ => return Err(Malformed::Length),
        };
        options = options.get(length..).ok_or(Malformed::Length)?;
    }
}

fn ipv6(frame: &[u8], network: usize) -> Result<Headers, Malformed> {
    let packet = Ipv6::new_checked(&frame[network..])?;
    let end = network + Ipv6::HEADER + packet.payload_length();
    let mut headers = Headers {
        version: Version::V6,
        fragment: Fragment::Whole,
        protocol: packet.next_header(),
        tcp_flags: 0,
        network: network as u16,
        transport: (network + Ipv6::HEADER) as u16,
        end: end as u32,
        source_port: 0,
        destination_port: 0,
        fragment_id: 0,
    };
    if !matches!(
        headers.protocol,
        protocol::TCP | protocol::UDP | protocol::ICMPV6
    ) {
        walk_extensions(&frame[..end], &mut headers)?;
    }
    transport(frame, headers)
}

/// Skips to the first header that is not an extension, or to the header of a later fragment.
fn walk_extensions(packet: &[u8], headers: &mut Headers) -> Result<(), Malformed> {
    const MOST: usize = 8;
    for seen in 0..=MOST {
        let at = usize::from(headers.transport);
        let length = match headers.protocol {
            protocol::HOP_BY_HOP if seen > 0 => return Err(Malformed::ExtensionHeaders),
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                let fixed = packet.get(at..at + 8).ok_or(Malformed::Truncated)?;
                if headers.protocol == protocol::ROUTING && fixed[3] != 0 {
                    return Err(Malformed::SourceRoute);
                }
                (usize::from(fixed[1]) + 1) * 8
            }
            protocol::AUTHENTICATION => {
                let fixed = packet.get(at..at + 8).ok_or(Malformed::Truncated)?;
                (usize::from(fixed[1]) + 2) * 4
            }
            protocol::FRAGMENT => {
                let fixed = packet.get(at..at + 8).ok_or(Malformed::Truncated)?;
                let offset_and_more = field::get16(fixed, 2);
                if headers.fragment != Fragment::Whole {
                    return Err(Malformed::ExtensionHeaders);
                }
                headers.fragment = match (offset_and_more & 0xfff8, offset_and_more & 1) {
                    (0, 0) => Fragment::Whole,
                    (0, _) => Fragment::First,
                    _ => Fragment::Later,
                };
                if headers.fragment != Fragment::Whole {
                    headers.fragment_id = field::get32(fixed, 4);
                }
                if headers.fragment == Fragment::Later {
                    headers.protocol = fixed[0];
                    headers.transport = (at + 8) as u16;
                    if offset_and_more & 0xfff8 == 8 && fixed[0] == protocol::TCP {
                        return Err(Malformed::TinyFragment);
                    }
                    return Ok(());
                }
                8
            }
            _ => return Ok(()),
        };
        let next = at + length;
        if next > packet.len() {
            // The first fragment must contain the whole chain (RFC 7112).
            return Err(if headers.fragment == Fragment::First {
                Malformed::TinyFragment
            } else {
                Malformed::Truncated
            });
        }
        headers.protocol = packet[at];
        headers.transport = next as u16;
    }
    Err(Malformed::ExtensionHeaders)
}

/// Reads the ports and flags where the header is present.
#[inline(always)]
fn transport(frame: &[u8], mut headers: Headers) -> Result<Headers, Malformed> {
    if headers.fragment == Fragment::Later {
        return Ok(headers);
    }
    let least = match headers.protocol {
        protocol::TCP => 20,
        protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
        _ => return Ok(headers),
    };
    let segment = headers.segment(frame);
    if segment.len() < least {
        return Err(if headers.fragment == Fragment::First {
            Malformed::TinyFragment
        } else {
            Malformed::Truncated
        });
    }
    match headers.protocol {
        protocol::TCP => {
            let data = usize::from(segment[12] >> 4) * 4;
            if data < 20 {
                return Err(Malformed::Length);
            }
            if data > segment.len() {
                return Err(if headers.fragment == Fragment::First {
                    Malformed::TinyFragment
                } else {
                    Malformed::Truncated
                });
            }
            headers.tcp_flags = segment[13];
        }
        protocol::UDP => {
            let length = usize::from(field::get16(segment, 4));
            let wrong = match headers.fragment {
                Fragment::Whole => length > segment.len(),
                _ => length <= segment.len(),
            };
            if length < Udp::HEADER || wrong {
                return Err(Malformed::Length);
            }
        }
        _ => return Ok(headers),
    }
    headers.source_port = field::get16(segment, 0);
    headers.destination_port = field::get16(segment, 2);
    Ok(headers)
}
