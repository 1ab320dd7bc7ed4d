//! Segments as a receiver sees them: each valid by itself, together the payload. Tests over veth compare them with scapy and the kernel.

use std::num::NonZeroU16;

use super::*;

/// A TCP frame of several segments, and the position of its headers.
struct Sample {
    bytes: Vec<u8>,
    ip: usize,
    tcp: usize,
    payload: usize,
    network: Network,
}

/// The TCP options: timestamps, aligned.
const OPTIONS: [u8; 12] = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
const FIRST_SEQUENCE: u32 = u32::MAX - 100;
const ALL_FLAGS: u8 = 0xff;

fn sample(network: Network, is_tagged: bool, length: usize) -> Sample {
    let mut bytes = vec![2; 12];
    if is_tagged {
        bytes.extend([0x81, 0, 0, 5]);
    }
    let total = 32 + length;
    let ip = bytes.len() + 2;
    match network {
        Network::Ipv4 => {
            bytes.extend([8, 0, 0x46, 0]);
            bytes.extend((24 + total as u16).to_be_bytes());
            bytes.extend([0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            // An option: router alert.
            bytes.extend([0x94, 4, 0, 0]);
        }
        Network::Ipv6 => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((8 + total as u16).to_be_bytes());
            bytes.extend([60, 64]);
            bytes.extend((0..32).map(|each| each * 7));
            // An extension header: destination options.
            bytes.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        }
    }
    let tcp = bytes.len();
    bytes.extend([0x30, 0x39, 0, 80]);
    bytes.extend(FIRST_SEQUENCE.to_be_bytes());
    bytes.extend([0, 0, 0, 9, 8 << 4, ALL_FLAGS, 1, 0, 0, 0, 0, 0]);
    bytes.extend(OPTIONS);
    let payload = bytes.len();
    bytes.extend((0..length).map(|each| (each * 31 % 251) as u8));
    let pseudo = pseudo(network, &bytes[ip..], total);
    bytes[tcp + 16..tcp + 18].copy_from_slice(&pseudo.to_be_bytes());
    Sample {
        bytes,
        ip,
        tcp,
        payload,
        network,
    }
}

/// Sums word by word, as RFC 1071 defines it.
fn slow(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn pseudo(network: Network, ip: &[u8], length: usize) -> u16 {
    let mut header = match network {
        Network::Ipv4 => ip[12..20].to_vec(),
        Network::Ipv6 => ip[8..40].to_vec(),
    };
    header.extend((length as u32).to_be_bytes());
    header.extend([0, 6]);
    slow(&header)
}

impl Sample {
    fn offloads(&self, size: u16) -> Offloads {
        let checksum = PartialChecksum {
            start: self.tcp as u16,
            field: PartialChecksum::TCP,
        };
        let segments = Segments {
            network: self.network,
            size: NonZeroU16::new(size).unwrap(),
            is_ecn: true,
        };
        Offloads::Segments(checksum, segments)
    }

    fn finished(&self, offloads: Offloads) -> Result<Vec<Vec<u8>>, Unfit> {
        let mut all = Vec::new();
        let frame = Frame {
            bytes: &self.bytes,
            offloads,
        };
        finish(frame, &mut Vec::new(), |bytes| all.push(bytes.to_vec())).map(|()| all)
    }

    /// Checks a segment; returns its payload.
    fn check<'a>(&self, segment: &'a [u8], index: usize, size: usize, is_last: bool) -> &'a [u8] {
        let (ip, tcp) = (&segment[self.ip..], &segment[self.tcp..]);
        match self.network {
            Network::Ipv4 => {
                let length = u16::from_be_bytes([ip[2], ip[3]]);
                assert_eq!(usize::from(length), ip.len());
                let id = u16::from_be_bytes([ip[4], ip[5]]);
                assert_eq!(id, 0xffff_u16.wrapping_add(index as u16));
                assert_eq!(slow(&ip[..24]), 0xffff, "the header's checksum");
            }
            Network::Ipv6 => {
                let length = u16::from_be_bytes([ip[4], ip[5]]);
                assert_eq!(usize::from(length), ip.len() - 40);
            }
        }
        let sum = u32::from(slow(tcp)) + u32::from(pseudo(self.network, ip, tcp.len()));
        assert_eq!(sum, 0xffff, "the checksum of segment {index}");
        let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
        assert_eq!(sequence, FIRST_SEQUENCE.wrapping_add((index * size) as u32));
        let mut flags = ALL_FLAGS;
        flags &= if is_last { 0xff } else { !(FIN | PSH) };
        flags &= if index == 0 { 0xff } else { !CWR };
        assert_eq!(tcp[13], flags);
        assert_eq!(tcp[20..32], OPTIONS);
        assert_eq!(segment[..self.ip], self.bytes[..self.ip]);
        &tcp[32..]
    }
}

#[test]
fn segments_are_valid_and_together_the_payload() {
    for network in [Network::Ipv4, Network::Ipv6] {
        for (is_tagged, length, size) in [
            (false, 60_000, 1448),
            (true, 2896, 1448),
            (false, 2897, 1448),
            (true, 1000, 1448),
            (false, 0, 1),
            (false, 7, 1),
            (true, 65_000, u16::MAX),
        ] {
            let sample = sample(network, is_tagged, length);
            let segments = sample.finished(sample.offloads(size)).unwrap();
            let size = usize::from(size);
            assert_eq!(segments.len(), length.div_ceil(size).max(1));
            let mut payload = Vec::new();
            for (index, segment) in segments.iter().enumerate() {
                let is_last = index + 1 == segments.len();
                let part = sample.check(segment, index, size, is_last);
                assert!(is_last || part.len() == size);
                payload.extend_from_slice(part);
            }
            assert_eq!(payload, sample.bytes[sample.payload..]);
        }
    }
}

#[test]
fn a_frame_without_segments_gets_its_checksum() {
    for network in [Network::Ipv4, Network::Ipv6] {
        let sample = sample(network, true, 501);
        let Some(checksum) = sample.offloads(1).checksum() else {
            panic!("no checksum");
        };
        let finished = sample.finished(Offloads::Checksum(checksum)).unwrap();
        let mut expected = sample.bytes.clone();
        expected[sample.tcp + 16..sample.tcp + 18]
            .copy_from_slice(&finished[0][sample.tcp + 16..sample.tcp + 18]);
        assert_eq!(finished, [expected], "nothing else changes");
        let tcp = &finished[0][sample.tcp..];
        let pseudo = pseudo(network, &sample.bytes[sample.ip..], tcp.len());
        assert_eq!(u32::from(slow(tcp)) + u32::from(pseudo), 0xffff);
        assert_eq!(sample.finished(Offloads::None).unwrap(), [sample.bytes]);
    }
}

#[test]
fn offloads_that_do_not_fit_the_headers_are_refused() {
    let good = sample(Network::Ipv4, false, 3000);
    let offloads = good.offloads(1000);
    assert!(good.finished(offloads).is_ok());
    let other = sample(Network::Ipv6, false, 3000);
    assert_eq!(other.finished(offloads), Err(Unfit), "the other protocol");
    for start in [0, 33, 37, 39, 3000, u16::MAX] {
        let moved = offloads.with_start(start);
        assert_eq!(good.finished(moved), Err(Unfit), "{start}");
    }
    let Offloads::Segments(checksum, segments) = offloads else {
        panic!("no segments");
    };
    let udp = PartialChecksum {
        field: 6,
        ..checksum
    };
    let udp = Offloads::Segments(udp, segments);
    assert_eq!(good.finished(udp), Err(Unfit));
    // Frames that end inside their headers, and data offsets of less than 20 bytes.
    for length in 0..good.payload {
        let cut = Sample {
            bytes: good.bytes[..length].to_vec(),
            ..good
        };
        assert_eq!(cut.finished(offloads), Err(Unfit), "{length}");
    }
    let mut short = sample(Network::Ipv4, false, 3000);
    short.bytes[short.tcp + 12] = 4 << 4;
    assert_eq!(short.finished(offloads), Err(Unfit));
    let outside = PartialChecksum {
        start: 3000,
        field: 16 + 1000,
    };
    let outside = Offloads::Checksum(outside);
    assert_eq!(good.finished(outside), Err(Unfit));
}

/// Random frames and offloads: none panics, and the segments of a frame are at most as long as the frame.
#[test]
fn any_frame_is_split_or_refused() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut split, mut refused) = (0, 0);
    for round in 0..20_000 {
        let network = [Network::Ipv4, Network::Ipv6][round % 2];
        let mut sample = sample(network, round % 3 == 0, next() as usize % 300);
        for _ in 0..next() % 4 {
            let at = next() as usize % sample.bytes.len();
            sample.bytes[at] = next() as u8;
        }
        sample.bytes.truncate(next() as usize % 400);
        let offloads = match next() % 2 {
            0 => sample.offloads(1 + next() as u16 % 200),
            _ => Offloads::from_bits(next()),
        };
        match sample.finished(offloads) {
            Ok(segments) => {
                let longest = segments.iter().map(Vec::len).max();
                assert!(longest <= Some(sample.bytes.len()));
                split += usize::from(segments.len() > 1);
            }
            Err(Unfit) => refused += 1,
        }
    }
    assert!(split > 1000 && refused > 1000, "{split} {refused}");
}
