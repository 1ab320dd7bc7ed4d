//! Sends: segments of the function, and received ones that go on.

use nf_balancing::tuple::Tuple;
use nf_packet::{decrement_ttl, rewrite_address, tcp_flags, Side, Tcp};
use nf_splice::{
    options::{Timestamps, Translation},
    segment::is_after,
    window::{field, field_within},
};

use crate::{
    pass::{Pass, Received},
    record::{framing, options, reversed, stage, Connection, Leg},
    segments::{Blocks, Outgoing, ACK, PSH_ACK},
};

/// The time until the function's bytes are sent again, doubled each time.
const AGAIN: u64 = 200_000_000;
/// The window for the head of an answer that the function takes, in bytes.
const HEAD_WINDOW: u32 = 4096;

/// The right edge of the client's window.
enum Edge {
    /// The room of the function itself.
    Own(u32),
    Backend(u32),
}

impl Pass<'_> {
    /// Sends the function's bytes of both directions, as far as the windows allow.
    pub(crate) fn flush(&mut self, connection: &mut Connection) {
        if connection.has_open_leg() {
            self.flush_requests(connection);
        }
        self.flush_answers(connection);
        self.arm(connection);
    }

    fn flush_requests(&mut self, connection: &mut Connection) {
        let Some(leg) = connection.leg().copied() else {
            return;
        };
        let most = self.payload_toward(leg.mss, leg.tuple.source.ip(), leg.options);
        while connection.requests.is_behind() {
            let at = connection.requests.out_sent;
            let sent = self.send_owned(connection, Some(&leg), at, most);
            if sent == 0 {
                return;
            }
            let requests = &mut connection.requests;
            requests.out_sent = at.wrapping_add(sent as u32);
            requests.sent(requests.out_sent);
        }
    }

    fn flush_answers(&mut self, connection: &mut Connection) {
        let most = self.payload_to_client(connection);
        while connection.answers.is_behind() {
            let at = connection.answers.out_sent;
            let sent = self.send_owned(connection, None, at, most);
            if sent == 0 {
                return;
            }
            let answers = &mut connection.answers;
            answers.out_sent = at.wrapping_add(sent as u32);
            answers.sent(answers.out_sent);
        }
        let answers = &connection.answers;
        if connection.stage == stage::CLOSING && answers.top == answers.fin {
            self.send_fin(connection);
        }
    }

    /// Sends the FIN of a connection that the function closes.
    pub(crate) fn send_fin(&mut self, connection: &mut Connection) {
        let seq = connection.answers.fin;
        connection.answers.sent(seq.wrapping_add(1));
        let segment = Outgoing {
            flags: ACK | tcp_flags::FIN,
            seq,
            ..Outgoing::default()
        };
        self.send_to_client(connection, segment);
    }

    /// Sends bytes of `outgoing` from a destination number on, in one segment, to the leg or the client. Returns their number.
    fn send_owned(
        &mut self,
        connection: &mut Connection,
        leg: Option<&Leg>,
        at: u32,
        most: usize,
    ) -> usize {
        let half = if leg.is_some() {
            &connection.requests
        } else {
            &connection.answers
        };
        let skip = at.wrapping_sub(half.out_at) as usize;
        let rest = half.outgoing.len().saturating_sub(skip);
        let room = half.edge.wrapping_sub(at) as i32;
        let length = rest.min(most).min(room.max(0) as usize);
        if length == 0 {
            return 0;
        }
        let mut payload = std::mem::take(&mut self.scratch.payload);
        payload.resize(length, 0);
        let _ = half
            .outgoing
            .read_at(&self.tables.chunks, skip, &mut payload);
        let flags = if length == rest { PSH_ACK } else { ACK };
        let segment = Outgoing {
            flags,
            seq: at,
            payload: &payload,
            ..Outgoing::default()
        };
        match leg {
            Some(leg) => self.send_on_leg(connection, leg, segment),
            None => self.send_to_client(connection, segment),
        }
        self.scratch.payload = payload;
        length
    }

    /// Sets the time of the next retransmission.
    pub(crate) fn arm(&mut self, connection: &mut Connection) {
        let waits = !connection.requests.outgoing.is_empty()
            || !connection.answers.outgoing.is_empty()
            || connection.stage == stage::CLOSING && !connection.answers.is_quiet();
        if connection.is_opening() {
            return;
        }
        if !waits {
            connection.retransmit_at = 0;
        } else if connection.retransmit_at == 0 {
            let attempts = connection
                .requests
                .attempts
                .max(connection.answers.attempts);
            connection.retransmit_at = self.now() + (AGAIN << attempts.min(8));
        }
    }

    /// Returns the bytes of payload of one segment.
    fn payload_toward(&self, mss: u16, to: std::net::IpAddr, used: u8) -> usize {
        let options = if used & options::TIMESTAMPS != 0 {
            12
        } else {
            0
        };
        usize::from(mss.min(self.mss_toward(to)))
            .saturating_sub(options)
            .max(1)
    }

    /// Returns the bytes of payload of one segment to the client.
    pub(crate) fn payload_to_client(&self, connection: &Connection) -> usize {
        let client = connection.client.source.ip();
        self.payload_toward(connection.mss, client, connection.options)
    }

    /// Completes and sends a segment to the client.
    pub(crate) fn send_to_client(&mut self, connection: &mut Connection, segment: Outgoing<'_>) {
        let ack = connection.requests.acknowledgement();
        let window = self.tell_client(connection, ack);
        let stamps = connection.has(options::TIMESTAMPS).then(|| Timestamps {
            value: connection.to_client.own(),
            echo: connection.to_backend.received(),
        });
        let has_sack = connection.has(options::SACK) && segment.payload.is_empty();
        let segment = Outgoing {
            ack,
            window,
            stamps,
            blocks: if has_sack {
                connection.requests.kept_blocks(&self.tables.chunks)
            } else {
                Blocks::default()
            },
            ..segment
        };
        if connection.endpoint.is_none() {
            self.send(reversed(&connection.client), &segment);
        } else {
            self.scratch.tls.heard.push(connection.endpoint, &segment);
        }
    }

    /// Completes and sends a segment to a backend.
    pub(crate) fn send_on_leg(
        &mut self,
        connection: &mut Connection,
        leg: &Leg,
        segment: Outgoing<'_>,
    ) {
        let ack = connection.answers.acknowledgement();
        let window = tell_leg(connection, leg, ack);
        let stamps = leg.has(options::TIMESTAMPS).then(|| Timestamps {
            value: connection.to_backend.own(),
            echo: connection.to_client.received(),
        });
        let has_sack = leg.has(options::SACK) && segment.payload.is_empty();
        let segment = Outgoing {
            ack,
            window,
            stamps,
            blocks: if has_sack {
                connection.answers.kept_blocks(&self.tables.chunks)
            } else {
                Blocks::default()
            },
            ..segment
        };
        self.send(reversed(&leg.tuple), &segment);
    }

    /// Returns the window field for the client, and notes what it is told.
    fn tell_client(&self, connection: &mut Connection, ack: u32) -> u16 {
        let scale = connection.told_scale();
        let window = match self.edge_for_client(connection, ack) {
            Edge::Backend(edge) => field(ack, edge, scale),
            // Bytes beyond it would be dropped again and again.
            Edge::Own(edge) => field_within(ack, edge, scale),
        };
        connection.requests.tell(ack, u32::from(window) << scale);
        window
    }

    /// Returns the right edge of the client's window. It is not beyond what the function can take: a client doubles its timeout for each segment that is
    /// dropped, up to minutes.
    fn edge_for_client(&self, connection: &Connection, ack: u32) -> Edge {
        let requests = &connection.requests;
        let most = self.snapshot.head_limits.head_bytes;
        let of_backend = requests.map.back(requests.edge);
        if connection.last != 0 || requests.framing == framing::OPAQUE {
            return Edge::Backend(of_backend);
        }
        if connection.has_open_leg() && connection.busy != 0 {
            // Bytes behind the present message, or a chunk, may have to wait here.
            let own = requests.parse_at.wrapping_add(most as u32);
            let is_whole = requests.framing == framing::ENDED;
            let passes = !is_after(requests.parse_at, of_backend);
            return if is_whole && passes || is_after(of_backend, own) {
                Edge::Own(own)
            } else {
                Edge::Backend(of_backend)
            };
        }
        let room = most.saturating_sub(requests.held.len());
        // After a body, the function has taken nothing of what is acknowledged last.
        let taken = if is_after(ack, requests.owned) {
            ack
        } else {
            requests.owned
        };
        Edge::Own(taken.wrapping_add(room as u32))
    }

    /// Tells the client that its window has opened again, if that is news: it would find out by probes, up to two minutes apart.
    pub(crate) fn open_window(&mut self, connection: &mut Connection) {
        let ack = connection.requests.acknowledgement();
        let (Edge::Own(edge) | Edge::Backend(edge)) = self.edge_for_client(connection, ack);
        let limit = connection.requests.limit;
        let room = edge.wrapping_sub(limit) as i32;
        let least = (self.snapshot.head_limits.head_bytes / 2).min(2 * usize::from(connection.mss));
        if limit.wrapping_sub(ack) < u32::from(connection.mss) && room >= least as i32 {
            self.acknowledge_client(connection);
        }
    }

    /// Acknowledges to the client what was received.
    pub(crate) fn acknowledge_client(&mut self, connection: &mut Connection) {
        let segment = Outgoing {
            flags: ACK,
            seq: connection.answers.top,
            ..Outgoing::default()
        };
        self.send_to_client(connection, segment);
    }

    /// Sends passing bytes of a client's segment to the leg.
    pub(crate) fn send_to_leg(&mut self, connection: &mut Connection, begin: u32, bytes: &[u8]) {
        let Some(leg) = connection.leg().copied() else {
            return;
        };
        let seq = connection.requests.map.forward(begin);
        // The client's packet can be a merged one, of many segments.
        let most = self.payload_toward(leg.mss, leg.tuple.source.ip(), leg.options);
        let segment = Outgoing {
            flags: PSH_ACK,
            seq,
            payload: bytes,
            size: most as u16,
            ..Outgoing::default()
        };
        self.send_on_leg(connection, &leg, segment);
        let seq = seq.wrapping_add(bytes.len() as u32);
        connection.requests.sent(seq);
    }

    /// Sends passing bytes of a backend's segment, or its FIN, to the client.
    pub(crate) fn pass_to_client(
        &mut self,
        connection: &mut Connection,
        begin: u32,
        bytes: &[u8],
        has_fin: bool,
    ) {
        let mut seq = connection.answers.map.forward(begin);
        let most = self.payload_to_client(connection);
        for payload in bytes.chunks(most) {
            let segment = Outgoing {
                flags: PSH_ACK,
                seq,
                payload,
                ..Outgoing::default()
            };
            self.send_to_client(connection, segment);
            seq = seq.wrapping_add(payload.len() as u32);
        }
        if has_fin {
            let segment = Outgoing {
                flags: ACK | tcp_flags::FIN,
                seq,
                ..Outgoing::default()
            };
            self.send_to_client(connection, segment);
            seq = seq.wrapping_add(1);
        }
        connection.answers.sent(seq);
    }

    /// Passes a whole segment of the client on to the leg.
    pub(crate) fn forward_to_leg(
        &mut self,
        connection: &mut Connection,
        received: &mut Received<'_>,
        has_fin: bool,
    ) {
        let Some(leg) = connection.leg().copied() else {
            return;
        };
        let segment = received.segment;
        let requests = &mut connection.requests;
        let seq = requests.pass(&segment, has_fin);
        let ack = connection.answers.acknowledgement();
        let window = tell_leg(connection, &leg, ack);
        let translation = Translation {
            blocks: &connection.answers.map,
            value: &mut connection.to_backend,
            echo: &connection.to_client,
        };
        self.forward(
            received,
            &reversed(&leg.tuple),
            (seq, ack, window),
            translation,
            (leg.mss, leg.options),
        );
    }

    /// Passes a whole segment of the leg on to the client.
    pub(crate) fn forward_to_client(
        &mut self,
        connection: &mut Connection,
        received: &mut Received<'_>,
        has_fin: bool,
    ) {
        let segment = received.segment;
        let answers = &mut connection.answers;
        let seq = answers.pass(&segment, has_fin);
        let ack = connection.requests.acknowledgement();
        let window = self.tell_client(connection, ack);
        let translation = Translation {
            blocks: &connection.requests.map,
            value: &mut connection.to_client,
            echo: &connection.to_backend,
        };
        let to = reversed(&connection.client);
        let receiver = (connection.mss, connection.options);
        self.forward(received, &to, (seq, ack, window), translation, receiver);
    }

    /// Rewrites a received packet and sends it: addresses, numbers, window, options. `receiver`: its largest segment and the options in use.
    fn forward(
        &mut self,
        received: &mut Received<'_>,
        tuple: &Tuple,
        (seq, ack, window): (u32, u32, u16),
        translation: Translation<'_>,
        receiver: (u16, u8),
    ) {
        let headers = received.headers;
        let Ok((interface, mac)) = self.link().reach(tuple.destination.ip()) else {
            return received.packet.drop_for("next station is unknown");
        };
        let packet = &mut *received.packet;
        if !decrement_ttl(packet.bytes_mut(), &headers) {
            return packet.drop_for("time to live");
        }
        let frame = packet.bytes_mut();
        let source = (tuple.source.ip(), tuple.source_port);
        let destination = (tuple.destination.ip(), tuple.destination_port);
        rewrite_address(frame, &headers, Side::Source, source.0, source.1);
        rewrite_address(
            frame,
            &headers,
            Side::Destination,
            destination.0,
            destination.1,
        );
        let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(frame)) else {
            return packet.drop_for("malformed");
        };
        tcp.set_sequence(seq);
        tcp.set_acknowledgement(ack);
        let word = tcp.word(12);
        tcp.replace32(12, (word & 0xffff_0000) | u32::from(window));
        if translation.apply(&mut tcp).is_err() {
            return packet.drop_for("malformed");
        }
        let offloads = packet.offloads();
        if offloads.checksum().is_some() {
            // The updates above were for a complete checksum.
            if let Ok(mut tcp) = Tcp::new_checked(headers.segment_mut(packet.bytes_mut())) {
                tcp.leave_checksum(source.0, destination.0);
            }
            let most = self.payload_toward(receiver.0, destination.0, receiver.1);
            packet.set_offloads(offloads.with_segments_of(most));
        }
        self.link().send(received.packet, interface, mac);
        received.went = true;
    }
}

/// Returns the window field for a backend, and notes what it is told.
fn tell_leg(connection: &mut Connection, leg: &Leg, ack: u32) -> u16 {
    let scale = leg.told_scale();
    let takes_heads = connection.edits != 0;
    let answers = &mut connection.answers;
    let least = if takes_heads && answers.framing == framing::HEAD {
        // The client's window cannot open before it gets the head.
        HEAD_WINDOW
    } else if answers.is_over() && ack == answers.seen {
        // A backend that closes sends its FIN only if there is room. Otherwise it resets the next request.
        leg.told_mss.into()
    } else {
        0
    };
    let (edge, own) = (answers.map.back(answers.edge), ack.wrapping_add(least));
    let edge = if is_after(own, edge) { own } else { edge };
    let window = field(ack, edge, scale);
    answers.tell(ack, u32::from(window) << scale);
    window
}
