//! Feeds arbitrary bytes to the parser, and accepted packets to the rewriter, the views, and a tunnel.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use nf_packet::{
    decrement_ttl, dissect, dissect_ip, dissect_quoted, protocol, rewrite_address, Arp, Headers, Icmp,
    MacAddress, NeighbourMessage, Outcome, Side, Tcp, Tunnel, TunnelKind, Version,
};

fuzz_target!(|bytes: &[u8]| {
    match dissect(bytes) {
        Ok(Outcome::Ip(headers)) => accepted(bytes, &headers),
        Ok(Outcome::Arp { offset }) => drop(Arp::parse(&bytes[offset..])),
        Ok(Outcome::Other { .. }) | Err(_) => {}
    }
    for headers in [dissect_ip(bytes), dissect_quoted(bytes)].into_iter().flatten() {
        accepted(bytes, &headers);
    }
});

fn accepted(bytes: &[u8], headers: &Headers) {
    let mut copy = bytes.to_vec();
    assert!(headers.end as usize <= copy.len() && u32::from(headers.transport) <= headers.end);
    if headers.protocol == protocol::TCP {
        if let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(&mut copy)) {
            let places: Vec<usize> = tcp.options().map(|option| option.at).collect();
            places.into_iter().for_each(|at| tcp.replace32(at, 7));
        }
    }
    if let Ok(message) = Icmp::new_checked(headers.segment(bytes)) {
        let _ = (message.is_error(headers.version), NeighbourMessage::parse(headers.segment(bytes)));
    }
    let address = match headers.version {
        Version::V4 => IpAddr::from([10, 0, 0, 1]),
        Version::V6 => IpAddr::from([1_u16; 8]),
    };
    rewrite_address(&mut copy, headers, Side::Source, address, 80);
    rewrite_address(&mut copy, headers, Side::Destination, address, 80);
    decrement_ttl(&mut copy, headers);
    let outer = Ipv4Addr::LOCALHOST.into();
    let station = MacAddress([2; 6]);
    for kind in [TunnelKind::Ipip, TunnelKind::Gue { port: 6080 }, TunnelKind::Vxlan { network: 7, station }] {
        let Ok(tunnel) = Tunnel::new(outer, outer, kind) else {
            continue;
        };
        let mut packet = vec![0; tunnel.overhead()];
        packet.extend_from_slice(headers.packet(bytes));
        if tunnel.write(&mut packet, headers.version, 3, station).is_ok() {
            let written = dissect_quoted(&packet).map(|outer| tunnel.inner(&packet, &outer));
            assert_eq!(written, Ok(Some(headers.packet(bytes))));
        }
        let _ = tunnel.inner(headers.packet(bytes), headers);
    }
}
