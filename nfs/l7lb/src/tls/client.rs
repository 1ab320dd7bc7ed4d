//! Segments of clients that speak TLS, and those to them.

use nf_packet::tcp_flags;
use nf_runtime::state::SlabId;
use nf_splice::segment::{is_before, Verdict};
use nf_tls::Alert;

use super::{
    endpoint::{stage, Endpoint},
    sender::Acknowledged,
};
use crate::{
    pass::{Pass, LINGER},
    record::options,
    segments::{Segment, ACK},
    tables::Event,
};

impl Pass<'_> {
    pub(super) fn hear_client(
        &mut self,
        id: SlabId,
        endpoint: &mut Endpoint,
        segment: &Segment,
        payload: &[u8],
    ) {
        if !self.is_acceptable(endpoint, segment) {
            return;
        }
        let has_fin = segment.has(tcp_flags::FIN);
        let is_bare = payload.is_empty() && !has_fin;
        let window = u32::from(segment.window) << endpoint.scale;
        let (chunks, now) = (&self.tables.chunks, self.now());
        let acknowledged =
            endpoint
                .to_client
                .acknowledged(chunks, segment.ack, window, is_bare, now);
        match acknowledged {
            Acknowledged::Implausible => return endpoint.from_client.repeat(),
            Acknowledged::New if endpoint.stage == stage::CLOSING => {
                endpoint.limit_at = now + LINGER;
            }
            _ => {}
        }
        if is_bare {
            return;
        }
        let mut records = std::mem::take(&mut self.scratch.tls.plain);
        records.clear();
        let was_over = endpoint.from_client.is_over();
        endpoint
            .from_client
            .accept(chunks, (segment.seq, payload, has_fin), now, &mut records);
        match endpoint.stage {
            stage::HANDSHAKE => {
                if endpoint.input.append(chunks, &records) == records.len() {
                    self.offer(id, endpoint);
                } else {
                    self.reset_client(endpoint);
                }
            }
            stage::OPEN => self.open_records(endpoint, &mut records),
            _ => {}
        }
        self.scratch.tls.plain = records;
        if endpoint.from_client.is_over() && !was_over {
            self.client_has_ended(id, endpoint);
        }
    }

    /// Checks numbers and timestamps (RFC 9293, 3.10.7.4; RFC 5961; RFC 7323, 5.3).
    fn is_acceptable(&mut self, endpoint: &mut Endpoint, segment: &Segment) -> bool {
        match endpoint.from_client.judge(segment) {
            Verdict::Accept => {}
            Verdict::Reset => {
                self.drop_engine(endpoint);
                endpoint.is_gone = 1;
                return false;
            }
            Verdict::Challenge => {
                endpoint.from_client.repeat();
                return false;
            }
            Verdict::Drop => return false,
        }
        if let (true, Some(stamps)) = (endpoint.has(options::TIMESTAMPS), segment.stamps) {
            if is_before(stamps.value, endpoint.recent) {
                endpoint.from_client.repeat();
                return false;
            }
            if !is_before(endpoint.from_client.next(), segment.seq) {
                endpoint.recent = stamps.value;
            }
        }
        segment.has(ACK)
    }

    /// Handles the end of what a client sends.
    fn client_has_ended(&mut self, id: SlabId, endpoint: &mut Endpoint) {
        match endpoint.stage {
            stage::HANDSHAKE => {
                self.tables.count(Event::TlsFailed);
                self.forget_handshake(id, endpoint);
                self.close_client(endpoint);
            }
            stage::OPEN if endpoint.to_engine.has_fin() => {}
            stage::OPEN if endpoint.from_engine.is_over() => endpoint.to_engine.finish(),
            stage::OPEN => {
                // Without a close_notify, an attacker may have cut the data off, so the backend must not see a regular end.
                if !endpoint.to_client.has_fin() {
                    self.end_client(endpoint, Alert::CloseNotify);
                }
                self.close_client(endpoint);
            }
            _ => {}
        }
    }
}
