//! The packets that tell a sender that its packet was rejected.

use nf_packet::{
    icmp4, icmp6, protocol, tcp_flags, Fragment, Headers, Icmp, Ipv4, Ipv6, Malformed, Tcp, Version,
};

/// "Communication administratively prohibited" (RFC 1812, 5.2.7.1; RFC 4443, 3.1).
const PROHIBITED4: u8 = 13;
const PROHIBITED6: u8 = 1;
/// The most bytes of an ICMP error: all links carry it (RFC 1812, 4.3.2.3; RFC 4443, 2.4).
const MOST4: usize = 576;
const MOST6: usize = 1280;

/// Returns the answer to a rejected packet, to its sender: RST for TCP, else an ICMP error. None: there must be none, as for an ICMP error or a RST.
pub fn answer(frame: &[u8], headers: &Headers) -> Option<Vec<u8>> {
    if is_to_many(frame) || headers.fragment == Fragment::Later {
        return None;
    }
    if headers.protocol == protocol::TCP && headers.fragment == Fragment::Whole {
        let tcp = Tcp::new_checked(headers.segment(frame)).ok()?;
        if tcp.flags() & tcp_flags::RST != 0 {
            return None;
        }
        let length = tcp.payload().len() as u32
            + u32::from(tcp.flags() & tcp_flags::SYN != 0)
            + u32::from(tcp.flags() & tcp_flags::FIN != 0);
        // RFC 9293, 3.10.7.1.
        let (sequence, acknowledgement, flags) = if tcp.flags() & tcp_flags::ACK != 0 {
            (tcp.acknowledgement(), 0, tcp_flags::RST)
        } else {
            let all = tcp.sequence().wrapping_add(length);
            (0, all, tcp_flags::RST | tcp_flags::ACK)
        };
        let ports = (tcp.destination_port(), tcp.source_port());
        return reset(
            frame,
            headers,
            true,
            ports,
            (sequence, acknowledgement, flags),
        )
        .ok();
    }
    unreachable(frame, headers)
}

/// Returns the RST that ends a rejected connection at the receiver of a packet, as if the sender had sent it. None: it is not TCP.
pub fn onward(frame: &[u8], headers: &Headers) -> Option<Vec<u8>> {
    if headers.protocol != protocol::TCP || headers.fragment != Fragment::Whole {
        return None;
    }
    let tcp = Tcp::new_checked(headers.segment(frame)).ok()?;
    let ports = (tcp.source_port(), tcp.destination_port());
    let (flags, acknowledgement) = if tcp.flags() & tcp_flags::ACK == 0 {
        (tcp_flags::RST, 0)
    } else {
        (tcp_flags::RST | tcp_flags::ACK, tcp.acknowledgement())
    };
    reset(
        frame,
        headers,
        false,
        ports,
        (tcp.sequence(), acknowledgement, flags),
    )
    .ok()
}

fn is_to_many(frame: &[u8]) -> bool {
    frame.first().is_none_or(|byte| byte & 1 != 0)
}

/// Returns the frame's Ethernet header with its tags; backwards, if so.
fn ethernet(frame: &[u8], headers: &Headers, is_back: bool) -> Option<Vec<u8>> {
    let mut header = frame.get(..usize::from(headers.network))?.to_vec();
    if is_back {
        header.get_mut(..6)?.copy_from_slice(&frame[6..12]);
        header.get_mut(6..12)?.copy_from_slice(&frame[..6]);
    }
    Some(header)
}

fn reset(
    frame: &[u8],
    headers: &Headers,
    is_back: bool,
    ports: (u16, u16),
    (sequence, acknowledgement, flags): (u32, u32, u8),
) -> Result<Vec<u8>, Malformed> {
    let mut segment = [0; 20];
    let mut tcp = Tcp::write(&mut segment[..], ports, sequence, acknowledgement, flags, 0)?;
    let (mut source, mut destination) = (headers.source(frame), headers.destination(frame));
    if is_back {
        std::mem::swap(&mut source, &mut destination);
    }
    tcp.fill_checksum(source, destination);
    let before = ethernet(frame, headers, is_back).ok_or(Malformed::Truncated)?;
    packet(before, source, destination, protocol::TCP, &segment)
}

fn unreachable(frame: &[u8], headers: &Headers) -> Option<Vec<u8>> {
    let rejected = headers.packet(frame);
    if matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6) {
        let icmp = Icmp::new_checked(headers.segment(frame)).ok()?;
        if icmp.is_error(headers.version) {
            return None;
        }
    }
    let (most, ip, kind, code, its_protocol) = match headers.version {
        Version::V4 => (
            MOST4,
            Ipv4::MIN_HEADER,
            icmp4::UNREACHABLE,
            PROHIBITED4,
            protocol::ICMP,
        ),
        Version::V6 => (
            MOST6,
            Ipv6::HEADER,
            icmp6::UNREACHABLE,
            PROHIBITED6,
            protocol::ICMPV6,
        ),
    };
    let quoted = &rejected[..rejected.len().min(most - ip - Icmp::HEADER)];
    let (source, destination) = (headers.destination(frame), headers.source(frame));
    let mut message = vec![0; Icmp::HEADER];
    message.extend_from_slice(quoted);
    let mut icmp = Icmp::new_checked(&mut message[..]).ok()?;
    icmp.set(kind, code, 0);
    icmp.fill_checksum(source, destination);
    packet(
        ethernet(frame, headers, true)?,
        source,
        destination,
        its_protocol,
        &message,
    )
    .ok()
}

fn packet(
    mut frame: Vec<u8>,
    source: std::net::IpAddr,
    destination: std::net::IpAddr,
    protocol: u8,
    payload: &[u8],
) -> Result<Vec<u8>, Malformed> {
    use std::net::IpAddr::{V4, V6};
    let start = frame.len();
    match (source, destination) {
        (V4(source), V4(destination)) => {
            frame.resize(start + Ipv4::MIN_HEADER, 0);
            Ipv4::write(
                &mut frame[start..],
                source,
                destination,
                protocol,
                payload.len(),
            )?;
        }
        (V6(source), V6(destination)) => {
            frame.resize(start + Ipv6::HEADER, 0);
            Ipv6::write(
                &mut frame[start..],
                source,
                destination,
                protocol,
                payload.len(),
            )?;
        }
        _ => return Err(Malformed::Version),
    }
    frame.extend_from_slice(payload);
    Ok(frame)
}
