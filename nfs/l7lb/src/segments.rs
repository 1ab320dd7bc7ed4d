//! Segments: the numbers of received ones, and the frames of those that the function makes.

use std::{net::IpAddr, num::NonZeroU16};

use nf_packet::{ethertype, protocol, tcp_flags, Headers, Ipv4, Ipv6, Tcp};
use nf_runtime::{Network, Offloads, PartialChecksum, Segments, MAX_LARGE_FRAME};
use nf_splice::options::{sack, timestamps, Syn, Timestamps, SACK_BLOCKS, SACK_LENGTH};

/// Flags of a segment that acknowledges.
pub const ACK: u8 = tcp_flags::ACK;
pub const PSH_ACK: u8 = tcp_flags::PSH | tcp_flags::ACK;

/// The numbers of a received segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    /// The offset of the payload in the frame, and its length.
    pub at: usize,
    pub len: usize,
    pub stamps: Option<Timestamps>,
    /// The options of a SYN.
    pub syn: Option<Syn>,
}

impl Segment {
    /// Parses a segment. None: it is malformed.
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        let tcp = Tcp::new_checked(headers.segment(frame)).ok()?;
        let is_syn = tcp.flags() & tcp_flags::SYN != 0;
        let syn = if is_syn {
            Some(Syn::parse(&tcp).ok()?)
        } else {
            None
        };
        let stamps = match syn {
            Some(syn) => syn.timestamps,
            None => timestamps(&tcp).ok()?,
        };
        Some(Self {
            flags: tcp.flags(),
            seq: tcp.sequence(),
            ack: tcp.acknowledgement(),
            window: tcp.window(),
            at: usize::from(headers.transport) + tcp.header_length(),
            len: tcp.payload().len(),
            stamps,
            syn,
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the number after the last byte, without the FIN.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len as u32)
    }

    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.at..self.at + self.len).unwrap_or_default()
    }
}

/// The edges of SACK blocks: those of the bytes that arrived last come first (RFC 2018, 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    edges: [(u32, u32); SACK_BLOCKS],
    count: usize,
}

impl Blocks {
    /// Adds a block if there is room.
    pub fn push(&mut self, block: (u32, u32)) {
        if let Some(place) = self.edges.get_mut(self.count) {
            *place = block;
            self.count += 1;
        }
    }

    pub fn edges(&self) -> &[(u32, u32)] {
        self.edges.get(..self.count).unwrap_or_default()
    }
}

/// A segment to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub stamps: Option<Timestamps>,
    /// The options of a SYN, in place of `stamps`.
    pub syn: Option<Syn>,
    pub blocks: Blocks,
    pub payload: &'a [u8],
    /// The bytes of each segment but the last, if the payload is one of several, which the output splits; 0: it is not.
    pub size: u16,
}

impl Outgoing<'_> {
    /// Returns the options and their length, a multiple of four.
    fn options(&self) -> ([u8; OPTIONS], usize) {
        let syn = self.syn.unwrap_or(Syn {
            timestamps: self.stamps,
            ..Syn::default()
        });
        let (first, mut length) = syn.write();
        let mut bytes = [0; OPTIONS];
        bytes[..first.len()].copy_from_slice(&first);
        let (blocks, more) = sack(self.blocks.edges());
        bytes[length..length + more].copy_from_slice(&blocks[..more]);
        length += more;
        (bytes, length)
    }
}

/// The bytes of all options.
const OPTIONS: usize = Syn::MAX_LENGTH + SACK_LENGTH;
const ETHERNET: usize = 14;

/// A frame under construction.
pub struct Frame {
    bytes: Box<[u8]>,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            bytes: vec![0; MAX_LARGE_FRAME].into_boxed_slice(),
        }
    }
}

impl Frame {
    /// Builds a frame between two stations; returns it with what is left to the output. None: it is too long, or the IP versions differ.
    pub fn build(
        &mut self,
        macs: ([u8; 6], [u8; 6]),
        source: (IpAddr, u16),
        destination: (IpAddr, u16),
        segment: &Outgoing<'_>,
    ) -> Option<(&[u8], Offloads)> {
        let (options, length) = segment.options();
        let header = Tcp::MIN_HEADER + length;
        let tcp_length = header + segment.payload.len();
        let bytes = &mut self.bytes[..];
        let start = ip(bytes, source.0, destination.0, tcp_length)?;
        bytes[..6].copy_from_slice(&macs.1);
        bytes[6..12].copy_from_slice(&macs.0);
        let bytes = bytes.get_mut(..start + tcp_length)?;
        let tcp = &mut bytes[start..];
        tcp[header..].copy_from_slice(segment.payload);
        let (ports, numbers) = ((source.1, destination.1), (segment.seq, segment.ack));
        let written = Tcp::write(
            &mut *tcp,
            ports,
            numbers.0,
            numbers.1,
            segment.flags,
            segment.window,
        );
        written.ok()?;
        tcp[12] = ((header / 4) as u8) << 4;
        tcp[Tcp::MIN_HEADER..header].copy_from_slice(&options[..length]);
        let mut view = Tcp::new_checked(tcp).ok()?;
        let size = NonZeroU16::new(segment.size);
        let Some(size) = size.filter(|size| segment.payload.len() > usize::from(size.get())) else {
            view.fill_checksum(source.0, destination.0);
            return Some((bytes, Offloads::None));
        };
        view.leave_checksum(source.0, destination.0);
        let checksum = PartialChecksum {
            start: start as u16,
            field: PartialChecksum::TCP,
        };
        let segments = Segments {
            network: match source.0 {
                IpAddr::V4(_) => Network::Ipv4,
                IpAddr::V6(_) => Network::Ipv6,
            },
            size,
            is_ecn: false,
        };
        Some((bytes, Offloads::Segments(checksum, segments)))
    }
}

/// Writes the EtherType and the IP header of a TCP segment of this length; returns where the segment starts.
fn ip(bytes: &mut [u8], source: IpAddr, destination: IpAddr, length: usize) -> Option<usize> {
    let (header, kind) = match source {
        IpAddr::V4(_) => (Ipv4::MIN_HEADER, ethertype::IPV4),
        IpAddr::V6(_) => (Ipv6::HEADER, ethertype::IPV6),
    };
    let start = ETHERNET + header;
    if start + length > bytes.len() {
        return None;
    }
    bytes[12..14].copy_from_slice(&kind.to_be_bytes());
    let header = &mut bytes[ETHERNET..start];
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Ipv4::write(header, source, destination, protocol::TCP, length)
                .ok()
                .map(drop)?;
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Ipv6::write(header, source, destination, protocol::TCP, length)
                .ok()
                .map(drop)?;
        }
        _ => return None,
    }
    Some(start)
}
