//! The headers of frames, read at once with what decisions need of them. Most packets are whole, of IPv4, without options and tags: these are read without
//! the memory and the choices that others need.

use nf_packet::{checksum, protocol, Fragment, Headers, Ipv4, Version};

use crate::{headers::Outline, outer::ETHERNET};

const TRANSPORT: usize = ETHERNET + Ipv4::MIN_HEADER;

/// Reads the headers of the most frequent form. None: the packet has another one, or is faulty.
#[inline(always)]
pub fn read(frame: &[u8]) -> Option<(Headers, Outline)> {
    let is_ipv4 = frame.get(12..ETHERNET)? == [8, 0];
    is_ipv4.then(|| read_ipv4(frame)).flatten()
}

/// Reads the same without a look at the type of the frame, which is known: whoever has just written it would wait for that.
#[inline(always)]
pub fn read_ipv4(frame: &[u8]) -> Option<(Headers, Outline)> {
    let (start, rest) = frame.split_first_chunk::<TRANSPORT>()?;
    let header = start.last_chunk::<{ Ipv4::MIN_HEADER }>()?;
    if header[0] != 0x45 || !holds(header) {
        return None;
    }
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let length = usize::from(field(2));
    let segment = rest.get(..length.checked_sub(Ipv4::MIN_HEADER)?)?;
    if field(6) & (Ipv4::MORE_FRAGMENTS | 0x1fff) != 0 {
        return None;
    }
    let protocol = header[9];
    let (ports, tcp_flags) = match protocol {
        protocol::TCP => tcp(segment)?,
        protocol::UDP => (udp(segment)?, 0),
        // Their least length is the general code's matter.
        protocol::ICMP | protocol::ICMPV6 => return None,
        _ => ([0; 2], 0),
    };
    let headers = Headers {
        version: Version::V4,
        fragment: Fragment::Whole,
        protocol,
        tcp_flags,
        network: ETHERNET as u16,
        transport: TRANSPORT as u16,
        end: (ETHERNET + length) as u32,
        source_port: ports[0],
        destination_port: ports[1],
        fragment_id: 0,
    };
    Some((headers, Outline::v4(header, length)))
}

/// Verifies the checksum of a header. The order of bytes in its words does not matter to that (RFC 1071, 2).
#[inline(always)]
fn holds(header: &[u8; Ipv4::MIN_HEADER]) -> bool {
    let word = |at: usize| {
        let word = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        u64::from(u32::from_ne_bytes(word))
    };
    checksum::fold(word(0) + word(4) + word(8) + word(12) + word(16)) == 0xffff
}

#[inline(always)]
fn ports(header: &[u8]) -> Option<[u16; 2]> {
    let [a, b, c, d] = *header.first_chunk()?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

#[inline(always)]
fn tcp(segment: &[u8]) -> Option<([u16; 2], u8)> {
    let header = segment.first_chunk::<20>()?;
    let data = usize::from(header[12] >> 4) * 4;
    let is_sound = (20..=segment.len()).contains(&data);
    Some((ports(header)?, header[13])).filter(|_| is_sound)
}

#[inline(always)]
fn udp(segment: &[u8]) -> Option<[u16; 2]> {
    let header = segment.first_chunk::<8>()?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    ports(header).filter(|_| (8..=segment.len()).contains(&length))
}

#[cfg(test)]
mod tests {
    use nf_packet::{dissect, Outcome};
    use proptest::prelude::*;

    use super::*;

    /// Returns a frame with an IPv4 packet of a protocol, whose checksum holds, with fields of its transport.
    fn frame(protocol: u8, payload: &[u8], header: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET];
        frame[12] = 8;
        frame.extend([0; Ipv4::MIN_HEADER]);
        frame.extend(payload);
        let (from, to) = ([10, 1, 0, 5].into(), [10, 2, 0, 6].into());
        Ipv4::write(&mut frame[ETHERNET..], from, to, protocol, payload.len()).unwrap();
        header(&mut frame[ETHERNET..]);
        let ip = &mut frame[ETHERNET..];
        let options = usize::from(ip[0] & 0xf) * 4;
        ip[10..12].fill(0);
        let sum = checksum::of(&ip[..options.clamp(20, ip.len())]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    #[test]
    fn the_most_frequent_form_is_read_at_once() {
        let mut tcp = [0; 20];
        tcp[12] = 5 << 4;
        let udp = [1, 2, 3, 4, 0, 8, 0, 0];
        for (protocol, payload) in [(50, &[7; 40][..]), (6, &tcp), (17, &udp), (253, &[])] {
            assert!(
                read(&frame(protocol, payload, |_| {})).is_some(),
                "{protocol}"
            );
        }
        assert!(read(&frame(1, &[0; 8], |_| {})).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 8192, ..ProptestConfig::default() })]
        /// Whatever is read at once is what the general code reads; packets are wrong in one place, or sound.
        #[test]
        fn it_reads_what_the_general_code_reads(
            protocol in prop_oneof![Just(6_u8), Just(17), Just(50), Just(1), any::<u8>()],
            payload in prop::collection::vec(prop_oneof![Just(0_u8), Just(8), Just(0x50), any::<u8>()], 0..60),
            changed in prop::option::of((0_usize..34, any::<u8>())), is_summed: bool, behind in 0_usize..8,
        ) {
            let change = |at: usize, value: u8, bytes: &mut [u8]| if let Some(byte) = bytes.get_mut(at) { *byte = value };
            let (inside, outside) = if is_summed { (changed, None) } else { (None, changed) };
            let mut frame = frame(protocol, &payload, |ip| {
                if let Some((at, value)) = inside { change(at.saturating_sub(ETHERNET), value, ip) }
            });
            frame.extend(vec![0; behind]);
            if let Some((at, value)) = outside { change(at, value, &mut frame) }
            if let Some((headers, outline)) = read(&frame) {
                let Ok(Outcome::Ip(expected)) = dissect(&frame) else { panic!("{frame:?}") };
                prop_assert_eq!(headers, expected);
                prop_assert_eq!(outline, Outline::of(&frame, &expected));
            }
        }
    }
}
