//! Inserts the PROXY protocol's header into the stream.
//!
//! The backend reads the header before the client's first byte, so the client's sequence numbers are raised by the header's length. The load balancer
//! buffers nothing: whenever the client sends a segment at the start of the stream, and the backend has not acknowledged the header, the header
//! precedes it as a segment of its own. The segment that ends the handshake is one of these, so servers that speak first do not wait. The client's
//! own retransmission repeats a lost header: the translated acknowledgements show that nothing has arrived yet.
//!
//! A data segment that follows its header in one batch leaves after the batch, and so do the connection's later segments, in order.

use nf_balancing::{link::TAKEN, proxy_protocol};
use nf_packet::{tcp_flags, Headers, Ipv4, Ipv6, Tcp, TcpOption, Version};
use nf_runtime::Packet;
use nf_splice::options::translate_blocks;

use crate::{
    events::Event, flow::Flow, pass::Pass, records::mark, snapshot::Backend, stream::Session,
};

impl Pass<'_> {
    /// Shifts a client's segment behind the header, and sends the header where it may be missing.
    pub(crate) fn insert_header<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        session: &Session,
        flow: &F,
        backend: &Backend,
    ) {
        let flags = headers.tcp_flags;
        if flags & tcp_flags::SYN != 0 {
            return without_fast_open(packet, headers);
        }
        let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(packet.bytes_mut())) else {
            return;
        };
        let sequence = tcp.sequence();
        let shifted = session.map().forward(sequence);
        let may_be_missing = session.acknowledged == 0 && sequence == session.start;
        if !may_be_missing {
            return tcp.set_sequence(shifted);
        }
        if flags & tcp_flags::RST != 0 {
            return;
        }
        let has_more = !tcp.payload().is_empty() || flags & tcp_flags::FIN != 0;
        // The segment gets a new checksum below, which must not hide a wrong one.
        let frame = packet.bytes();
        let ends = (headers.source(frame), headers.destination(frame));
        if !Tcp::new_checked(headers.segment(frame))
            .is_ok_and(|tcp| tcp.checksum_holds(ends.0, ends.1))
        {
            return;
        }
        let (header, length) = proxy_protocol::header(flow.source(), flow.destination());
        let Some(first) = with_payload(packet.bytes(), headers, &header[..length]) else {
            return;
        };
        if has_more {
            if let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(packet.bytes_mut())) {
                tcp.set_sequence(shifted);
            }
            packet.truncate(headers.end as usize);
            if let Some(mac) = backend.way.mac() {
                self.link.send(packet, backend.way.interface, mac);
            }
            self.link.out.emit(backend.way.interface, packet.bytes());
            self.mark_behind(flow);
        }
        let port = packet.port();
        if !packet.fill(port, &first) {
            packet.drop_for(Event::TooBig.name());
        }
    }

    fn mark_behind<F: Flow>(&mut self, flow: &F) {
        self.behind |= mark(flow);
    }

    /// Tells whether an earlier segment of the connection leaves after the batch.
    pub(crate) fn is_behind<F: Flow>(&self, flow: &F) -> bool {
        self.behind != 0 && self.behind & mark(flow) != 0
    }

    /// Sends a packet, whose MAC addresses are set, after the batch.
    pub(crate) fn send_behind(&mut self, packet: &mut Packet, interface: usize) {
        self.link.out.emit(interface, packet.bytes());
        packet.drop_for(TAKEN);
    }
}

impl Session {
    /// Translates a backend's acknowledgements to the client's numbers.
    pub fn shift_back(&self, packet: &mut Packet, headers: &Headers) {
        if self.inserted == 0 {
            return;
        }
        let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(packet.bytes_mut())) else {
            return;
        };
        let map = self.map();
        if tcp.flags() & tcp_flags::ACK != 0 {
            tcp.set_acknowledgement(map.back(tcp.acknowledgement()));
        }
        // The client judges malformed options.
        let _ = translate_blocks(&mut tcp, &map);
    }
}

/// Removes data and the Fast Open option from a SYN: data would precede the header. The client sends it again when only its SYN is acknowledged (RFC 7413, 4.2).
fn without_fast_open(packet: &mut Packet, headers: &Headers) {
    let frame = packet.bytes();
    let (source, destination) = (headers.source(frame), headers.destination(frame));
    let Ok(tcp) = Tcp::new_checked(headers.segment(frame)) else {
        return;
    };
    if !tcp.checksum_holds(source, destination) {
        return;
    }
    let option = tcp
        .options()
        .find(|option| option.kind == TcpOption::FAST_OPEN)
        .map(|option| (option.at - 2, option.data.len() + 2));
    let has_data = !tcp.payload().is_empty();
    if option.is_none() && !has_data {
        return;
    }
    let Some(mut frame) = with_payload(frame, headers, &[]) else {
        return;
    };
    if let Some((at, length)) = option {
        let start = usize::from(headers.transport) + at;
        frame[start..start + length].fill(1);
        if let Ok(mut tcp) = Tcp::new_checked(&mut frame[usize::from(headers.transport)..]) {
            tcp.fill_checksum(source, destination);
        }
    }
    let port = packet.port();
    if !packet.fill(port, &frame) {
        packet.drop_for(Event::TooBig.name());
    }
}

/// Copies a client's segment with `payload` in place of its own, without FIN.
fn with_payload(request: &[u8], headers: &Headers, payload: &[u8]) -> Option<Vec<u8>> {
    let tcp = Tcp::new_checked(headers.segment(request)).ok()?;
    let options_end = usize::from(headers.transport) + tcp.header_length();
    let mut frame = request[..options_end].to_vec();
    frame.extend_from_slice(payload);
    let (source, destination) = (headers.source(request), headers.destination(request));
    let network = usize::from(headers.network);
    let length = frame.len() - network;
    match headers.version {
        Version::V4 => {
            let mut ip = Ipv4::new_cut(&mut frame[network..]).ok()?;
            ip.set_total_length(u16::try_from(length).ok()?);
            ip.fill_checksum();
        }
        Version::V6 => {
            let mut ip = Ipv6::new_cut(&mut frame[network..]).ok()?;
            ip.set_payload_length(u16::try_from(length - Ipv6::HEADER).ok()?);
        }
    }
    let mut tcp = Tcp::new_checked(&mut frame[usize::from(headers.transport)..]).ok()?;
    let flags = tcp.flags() & !tcp_flags::FIN;
    tcp.set_flags(flags);
    tcp.fill_checksum(source, destination);
    Some(frame)
}
