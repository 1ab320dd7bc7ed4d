//! Malformed packets and the fault reported for each, and odd packets that are valid.

#![allow(clippy::unwrap_used, clippy::panic)]

use nf_packet::{
    checksum, dissect, dissect_ip, dissect_quoted, Arp, ArpOperation, Fragment, Icmp, Ipv4,
    MacAddress, Malformed, NeighbourAdvertisement, NeighbourMessage, NeighbourSolicitation,
    Outcome,
};

/// A packet of IPv4 and TCP, 40 bytes.
fn packet() -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    Ipv4::write(&mut bytes[..], from, to, 6, 20).unwrap();
    bytes[20..24].copy_from_slice(&[0, 80, 1, 187]);
    bytes[32] = 0x50;
    bytes[33] = 2;
    bytes
}

fn with(change: impl FnOnce(&mut Vec<u8>)) -> Result<nf_packet::Headers, Malformed> {
    let mut bytes = packet();
    change(&mut bytes);
    if bytes.len() >= 20 && bytes[0] >> 4 == 4 {
        let header = (usize::from(bytes[0] & 15) * 4).clamp(20, bytes.len());
        bytes[10..12].fill(0);
        let sum = checksum::of(&bytes[..header]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    dissect_ip(&bytes)
}

#[test]
fn contradictory_ipv4_headers_are_refused() {
    assert!(with(|_| ()).is_ok());
    assert_eq!(dissect_ip(&[]), Err(Malformed::Truncated));
    assert_eq!(with(|b| b.truncate(39)), Err(Malformed::Truncated));
    assert_eq!(with(|b| b.truncate(19)), Err(Malformed::Truncated));
    assert_eq!(with(|b| b[0] = 0x44), Err(Malformed::Length));
    assert_eq!(with(|b| b[0] = 0x55), Err(Malformed::Version));
    assert_eq!(with(|b| b[3] = 19), Err(Malformed::Length));
    assert_eq!(with(|b| b[2] = 0xff), Err(Malformed::Truncated)); // longer than the buffer
    assert_eq!(with(|b| b[3] = 20), Err(Malformed::Truncated)); // no payload
    assert_eq!(with(|b| b[32] = 0x40), Err(Malformed::Length));
    assert_eq!(with(|b| b[32] = 0x60), Err(Malformed::Truncated));
    let mut broken = packet();
    broken[10] ^= 1;
    assert_eq!(dissect_ip(&broken), Err(Malformed::Checksum));
}

#[test]
fn ipv4_options_are_checked() {
    // Options, in whole words, between the header and TCP.
    let options = |options: &[u8]| {
        with(|b| {
            b[0] = 0x45 + (options.len() / 4) as u8;
            b[3] = (40 + options.len()) as u8;
            b.splice(20..20, options.iter().copied());
        })
    };
    for kind in [131, 137] {
        assert_eq!(
            options(&[kind, 7, 4, 10, 0, 0, 9, 0]),
            Err(Malformed::SourceRoute)
        );
        // After other options, and a completed route.
        assert_eq!(
            options(&[1, 1, 7, 3, 4, kind, 3, 4]),
            Err(Malformed::SourceRoute)
        );
        // Not an option: after the end of options, or data of another one.
        assert!(options(&[1, 0, kind, 3]).is_ok());
        assert!(options(&[7, 4, kind, 0]).is_ok());
    }
    assert!(options(&[148, 4, 0, 0]).is_ok()); // router alert
    assert!(options(&[7, 7, 4, 0, 0, 0, 0, 0]).is_ok()); // record route
    assert!(options(&[1; 40]).is_ok());
    assert_eq!(options(&[7, 5, 4, 0]), Err(Malformed::Length));
    assert_eq!(options(&[7, 1, 1, 1]), Err(Malformed::Length));
    assert_eq!(options(&[1, 1, 1, 7]), Err(Malformed::Length));
}

#[test]
fn udp_lengths_are_checked() {
    let udp = |length: u16| {
        with(|b| {
            b[9] = 17;
            b[24..26].copy_from_slice(&length.to_be_bytes());
        })
    };
    assert!(udp(20).is_ok());
    assert!(udp(8).is_ok()); // the rest is not part of the datagram
    assert_eq!(udp(7), Err(Malformed::Length));
    assert_eq!(udp(0), Err(Malformed::Length));
    assert_eq!(udp(21), Err(Malformed::Length));
}

#[test]
fn fragments_that_hide_or_overwrite_ports_are_refused() {
    let first = with(|b| b[6] = 0x20).unwrap();
    assert_eq!((first.fragment, first.source_port), (Fragment::First, 80));
    let later = with(|b| b[7] = 3).unwrap();
    assert_eq!((later.fragment, later.source_port), (Fragment::Later, 0));
    assert_eq!(with(|b| b[7] = 1), Err(Malformed::TinyFragment));
    let tiny = with(|b| {
        b[6] = 0x20;
        b[3] = 36;
        b.truncate(36);
    });
    assert_eq!(tiny, Err(Malformed::TinyFragment));
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let (from, to) = (1_u128.into(), 2_u128.into());
    nf_packet::Ipv6::write(&mut bytes[..], from, to, next, payload.len()).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn ipv6_extension_headers_are_checked() {
    let udp = [0, 53, 0, 54, 0, 8, 0, 0];
    let chain = |parts: &[&[u8]]| parts.concat();
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let found = dissect_ip(&ipv6(0, &chain(&[&options(60), &options(17), &udp]))).unwrap();
    assert_eq!(
        (found.protocol, found.destination_port, found.transport),
        (17, 54, 56)
    );
    let fragment = |next: u8, offset_and_more: u16| {
        let [a, b] = offset_and_more.to_be_bytes();
        [next, 0, a, b, 0, 0, 0, 9]
    };
    let atomic = dissect_ip(&ipv6(44, &chain(&[&fragment(17, 0), &udp]))).unwrap();
    assert_eq!((atomic.fragment, atomic.source_port), (Fragment::Whole, 53));
    let later = dissect_ip(&ipv6(44, &chain(&[&fragment(17, 16), &udp]))).unwrap();
    assert_eq!(
        (later.fragment, later.fragment_id, later.protocol),
        (Fragment::Later, 9, 17)
    );
    // The first fragment must contain the ports.
    assert_eq!(
        dissect_ip(&ipv6(44, &fragment(17, 1))),
        Err(Malformed::TinyFragment)
    );
    assert_eq!(
        dissect_ip(&ipv6(
            44,
            &chain(&[&fragment(60, 1), &[17, 9, 0, 0, 0, 0, 0, 0]])
        )),
        Err(Malformed::TinyFragment)
    );
    assert_eq!(
        dissect_ip(&ipv6(43, &chain(&[&[17, 0, 0, 1, 0, 0, 0, 0], &udp]))),
        Err(Malformed::SourceRoute)
    );
    assert_eq!(
        dissect_ip(&ipv6(60, &chain(&[&options(0), &options(17), &udp]))),
        Err(Malformed::ExtensionHeaders)
    );
    let endless: Vec<u8> = (0..20).flat_map(|_| options(60)).collect();
    assert_eq!(
        dissect_ip(&ipv6(60, &endless)),
        Err(Malformed::ExtensionHeaders)
    );
    assert_eq!(dissect_ip(&ipv6(0, &[])), Err(Malformed::Length)); // a jumbogram's length
    assert_eq!(dissect_ip(&ipv6(6, &udp)), Err(Malformed::Truncated));
}

#[test]
fn short_frames_are_refused() {
    assert_eq!(dissect(&[0; 13]), Err(Malformed::Truncated));
    let mut tagged = vec![0; 16];
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    assert_eq!(dissect(&tagged), Err(Malformed::Truncated));
    tagged.extend_from_slice(&[0x08, 0x06]);
    assert_eq!(dissect(&tagged), Ok(Outcome::Arp { offset: 18 }));
}

#[test]
fn a_quoted_packet_may_be_cut_after_its_ports() {
    let bytes = packet();
    let found = dissect_quoted(&bytes[..28]).unwrap();
    assert_eq!(
        (found.source_port, found.destination_port, found.end),
        (80, 443, 28)
    );
    assert_eq!(dissect_quoted(&bytes[..23]), Err(Malformed::Truncated));
    assert_eq!(dissect_quoted(&bytes[..10]), Err(Malformed::Truncated));
}

#[test]
fn neighbour_messages_are_parsed_as_written() {
    let target = 5_u128.into();
    let mac = MacAddress([2, 0, 0, 0, 0, 9]);
    for message in [
        NeighbourMessage::Solicitation(NeighbourSolicitation {
            target,
            source_mac: Some(mac),
        }),
        NeighbourMessage::Advertisement(NeighbourAdvertisement {
            target,
            target_mac: Some(mac),
            solicited: true,
        }),
    ] {
        let mut bytes = [0; NeighbourMessage::BYTES];
        message.write(&mut bytes);
        assert_eq!(NeighbourMessage::parse(&bytes), Ok(Some(message)));
        bytes[25] = 0;
        assert_eq!(NeighbourMessage::parse(&bytes), Err(Malformed::Length));
        bytes[25] = 2;
        assert_eq!(NeighbourMessage::parse(&bytes), Err(Malformed::Truncated));
        assert_eq!(
            NeighbourMessage::parse(&bytes[..20]),
            Err(Malformed::Truncated)
        );
    }
    let arp = Arp {
        operation: ArpOperation::Reply,
        sender_mac: mac,
        sender: [1, 2, 3, 4].into(),
        target_mac: mac,
        target: [5, 6, 7, 8].into(),
    };
    let mut bytes = [0; Arp::BYTES];
    arp.write(&mut bytes);
    assert_eq!(Arp::parse(&bytes), Ok(arp));
    bytes[7] = 3;
    assert_eq!(Arp::parse(&bytes), Err(Malformed::Version));
    assert_eq!(Arp::parse(&bytes[..27]), Err(Malformed::Truncated));
}

#[test]
fn control_messages_keep_their_checksum() {
    let (from, to) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
    let mut bytes = [7_u8; 24];
    let mut message = Icmp::new_checked(&mut bytes[..]).unwrap();
    message.set(128, 0, 5);
    message.fill_checksum(from, to);
    assert!(message.checksum_holds(from, to));
    bytes[Icmp::HEADER] ^= 1;
    let message = Icmp::new_checked(&bytes[..]).unwrap();
    assert!(!message.checksum_holds(from, to));
}
