//! Backends' answers, in mode nat.

use nf_packet::{rewrite_address, Fragment, Headers, Side};
use nf_runtime::Packet;
use nf_tables::{Class, Entry};

use crate::{
    events::Event,
    flow::{AnyFlow, Flow},
    pass::Pass,
    source_nat::Translated,
    state::traffic,
};

impl Pass<'_> {
    /// Returns the connection that a backend's packet belongs to.
    pub(crate) fn answered_flow(
        &self,
        frame: &[u8],
        headers: &Headers,
        number: u16,
    ) -> Option<AnyFlow> {
        let vip = &self.snapshot.vips[self.snapshot.backend_at(number)?.vip];
        let client = (headers.destination(frame), headers.destination_port);
        AnyFlow::new(client, (vip.address, vip.port), headers.protocol)
    }

    /// Sends a backend's packet to its client, in mode nat without source NAT.
    pub(crate) fn answer<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        number: u16,
        entry: Option<Entry>,
    ) {
        let Some(backend) = self.snapshot.backend_at(number) else {
            return self.not_ours(packet, headers);
        };
        let vip = &self.snapshot.vips[backend.vip];
        match entry {
            Some(entry) if entry.value == number => {
                self.note_answer(packet, headers, flow, entry);
            }
            // The lookup has renewed the record, so it must be deleted, as in `Records::named`.
            Some(entry) if self.records.backend_of(flow, entry.value).is_none() => {
                self.records.remove(flow)
            }
            _ => {}
        }
        if headers.fragment == Fragment::First {
            self.note_answered_fragment(packet, headers, number, None);
        }
        if vip.proxy_protocol {
            let class = entry.map_or(Class::Established, |entry| entry.class);
            self.session_to_client(packet, headers, &flow.tuple(), class);
        } else if vip.had_sessions_until > 0 && self.has_unfit_session(headers, &flow.tuple(), vip)
        {
            // The client's next packet resets the connection.
            return self.refuse(packet, Some(backend.vip), Event::NoSession);
        }
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        let side = Side::Source;
        rewrite_address(packet.bytes_mut(), headers, side, vip.address, vip.port);
        let (client, _) = flow.source();
        if self.send_to_client(packet, headers, client, backend.vip) {
            self.count_traffic(number, traffic::ANSWERS, bytes);
        }
    }

    /// Handles a backend's packet to one of the load balancer's own addresses.
    pub(crate) fn answer_translated(&mut self, packet: &mut Packet, headers: &Headers) {
        let frame = packet.bytes();
        let end = (headers.source(frame), headers.source_port);
        let local = (headers.destination(frame), headers.destination_port);
        let Some(Translated { entry, flow }) = self.session_at(end, local, headers.protocol) else {
            return self.refuse(packet, None, Event::NoSession);
        };
        match flow {
            AnyFlow::V4(flow) => self.translate_answer(packet, headers, &flow, entry),
            AnyFlow::V6(flow) => self.translate_answer(packet, headers, &flow, entry),
        }
    }

    fn translate_answer<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
    ) {
        let number = entry.value;
        let Some(backend) = self.snapshot.backend_at(number) else {
            return self.not_ours(packet, headers);
        };
        let vip = &self.snapshot.vips[backend.vip];
        self.note_answer(packet, headers, flow, entry);
        let (client, client_port) = flow.source();
        if headers.fragment == Fragment::First {
            self.note_answered_fragment(packet, headers, number, Some(client));
        }
        self.session_to_client(packet, headers, &flow.tuple(), entry.class);
        let bytes = u64::from(headers.end) - u64::from(headers.network);
        let frame = packet.bytes_mut();
        rewrite_address(frame, headers, Side::Source, vip.address, vip.port);
        rewrite_address(frame, headers, Side::Destination, client, client_port);
        if self.send_to_client(packet, headers, client, backend.vip) {
            self.count_traffic(number, traffic::ANSWERS, bytes);
        }
    }

    /// Closes the record if a backend's packet closes the connection.
    fn note_answer<F: Flow>(&self, packet: &Packet, headers: &Headers, flow: &F, entry: Entry) {
        let Some(backend) = self.records.backend_of(flow, entry.value) else {
            return;
        };
        if entry.class != Class::Closing && self.ends_by_backend(packet, headers, flow, backend) {
            let class = Class::Closing;
            // If another worker has changed the record, the connection has gone on.
            let _ = self.records.replace(flow, entry, Entry { class, ..entry });
        }
    }
}
