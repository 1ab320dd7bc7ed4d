//! Marked packets: the port's network card has matched their flows, and the mark is the number of their target, so they are rewritten without a lookup
//! (HNLB, section III).
//!
//! A mark is as good as a record: a flow whose rule may act has one backend ([`Pins`](crate::offload)), and the desk renews the records of such flows. So a
//! marked packet changes no record, and those that must, with SYN, FIN or RST, take the way of all others, as do fragments.

use nf_balancing::health;
use nf_packet::{protocol, tcp_flags, Fragment, Headers, Version};
use nf_runtime::Packet;
use nf_tables::{Class, Entry, Ipv4Flow, Ipv6Flow};

use crate::{
    flow::Flow,
    pass::Pass,
    records::{Change, Listener},
};

const ENDS: u8 = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST;

impl Pass<'_> {
    /// Sends a marked packet to its target. False: it takes the way of all others.
    #[inline]
    pub(crate) fn send_marked(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        mark: u32,
    ) -> bool {
        let class = match headers.protocol {
            protocol::TCP if headers.tcp_flags & ENDS == 0 => Class::Established,
            protocol::UDP => Class::Datagram,
            _ => return false,
        };
        let Ok(value) = u16::try_from(mark) else {
            return false;
        };
        if headers.fragment != Fragment::Whole {
            return false;
        }
        let entry = Entry { value, class };
        match headers.version {
            Version::V4 => {
                let flow = Ipv4Flow::of(packet.bytes(), headers);
                self.send_by_mark(packet, headers, &flow, entry)
            }
            Version::V6 => {
                let flow = Ipv6Flow::of(packet.bytes(), headers);
                self.send_by_mark(packet, headers, &flow, entry)
            }
        }
    }

    #[inline]
    fn send_by_mark<F: Flow>(
        &mut self,
        packet: &mut Packet,
        headers: &Headers,
        flow: &F,
        entry: Entry,
    ) -> bool {
        // The backend's number may have been the target of another VIP.
        let Some(backend) = self.records.backend_of(flow, entry.value) else {
            return false;
        };
        if backend.health == health::DOWN || self.snapshot.vips[backend.vip].has_sessions() {
            return false;
        }
        self.marked[0] += 1;
        self.marked[1] += u64::from(headers.end) - u64::from(headers.network);
        let sampler = self.offload.sampler(self.link.context.worker());
        sampler.connection(flow, Change::Refreshed(entry));
        self.send_to(packet, headers, flow, entry, backend);
        true
    }
}
