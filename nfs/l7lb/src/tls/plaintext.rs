//! Segments with plaintext between endpoints and backends. Others pass on as they are.

use nf_packet::tcp_flags;

use crate::{
    pass::{Pass, Received},
    record::Connection,
    segments::{Outgoing, ACK},
};

impl Pass<'_> {
    /// Passes a whole segment of the client on to the leg.
    pub(crate) fn relay_to_leg(
        &mut self,
        connection: &mut Connection,
        received: &mut Received<'_>,
        has_fin: bool,
    ) {
        if connection.endpoint.is_none() {
            self.forward_to_leg(connection, received, has_fin);
        } else {
            self.send_plaintext(connection, received, has_fin);
        }
    }

    /// Passes a whole segment of the leg on to the client.
    pub(crate) fn relay_to_client(
        &mut self,
        connection: &mut Connection,
        received: &mut Received<'_>,
        has_fin: bool,
    ) {
        if connection.endpoint.is_none() {
            self.forward_to_client(connection, received, has_fin);
        } else {
            self.pass_plaintext(connection, received, has_fin);
        }
    }

    /// Sends the leg what an endpoint has sent for its client, in segments that the backend takes.
    fn send_plaintext(
        &mut self,
        connection: &mut Connection,
        received: &Received<'_>,
        has_fin: bool,
    ) {
        let Some(leg) = connection.leg().copied() else {
            return;
        };
        let segment = received.segment;
        let payload = segment.payload(received.packet.bytes());
        if !payload.is_empty() {
            self.send_to_leg(connection, segment.seq, payload);
        } else if !has_fin {
            let seq = connection.requests.pass(&segment, false);
            let segment = Outgoing {
                flags: ACK,
                seq,
                ..Outgoing::default()
            };
            return self.send_on_leg(connection, &leg, segment);
        }
        if has_fin {
            let seq = connection.requests.map.forward(segment.end());
            connection.requests.sent(seq.wrapping_add(1));
            let segment = Outgoing {
                flags: ACK | tcp_flags::FIN,
                seq,
                ..Outgoing::default()
            };
            self.send_on_leg(connection, &leg, segment);
        }
    }

    /// Hands an endpoint a segment of the backend.
    fn pass_plaintext(
        &mut self,
        connection: &mut Connection,
        received: &Received<'_>,
        has_fin: bool,
    ) {
        let segment = received.segment;
        let segment = Outgoing {
            flags: segment.flags & (ACK | tcp_flags::FIN),
            seq: connection.answers.pass(&segment, has_fin),
            payload: segment.payload(received.packet.bytes()),
            ..Outgoing::default()
        };
        self.send_to_client(connection, segment);
    }
}
