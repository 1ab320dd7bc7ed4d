//! The context of a batch, and what every part of its processing needs.

use nf_balancing::{link::Link, tuple::Tuple};
use nf_packet::Headers;
use nf_runtime::{state::SlabId, Context, Emitted, Packet};

use crate::{
    record::{stage, Connection},
    segments::{Frame, Outgoing, Segment},
    snapshot::Snapshot,
    tables::{Event, Tables},
    tls,
};

/// The time that the last segments of a connection have to arrive, in nanoseconds.
pub const LINGER: u64 = 5_000_000_000;

/// Buffers of a worker, reused from batch to batch.
#[derive(Default)]
pub struct Scratch {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) tls: tls::Scratch,
    frame: Frame,
}

/// The context of a batch.
pub struct Pass<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) threads: &'a tls::Threads,
    pub(crate) context: &'a Context<'a>,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) out: &'a mut Emitted,
}

/// A packet with its segment.
pub struct Received<'a> {
    pub packet: &'a mut Packet,
    pub headers: Headers,
    pub segment: Segment,
    pub id: SlabId,
    /// The packet itself goes on.
    pub went: bool,
}

/// The next step for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stays,
    Ends,
}

impl<'a> Pass<'a> {
    pub(crate) fn now(&self) -> u64 {
        self.context.now()
    }

    pub(crate) fn link(&mut self) -> Link<'_> {
        Link {
            network: &self.snapshot.network,
            neighbours: &self.tables.neighbours,
            context: self.context,
            out: self.out,
        }
    }

    /// Returns the largest segment that the link toward an address takes, without options.
    pub(crate) fn mss_toward(&self, to: std::net::IpAddr) -> u16 {
        let network = &self.snapshot.network;
        let interface = network
            .on_link(to)
            .or_else(|| network.gateway(to).map(|way| way.interface));
        let mtu = interface
            .and_then(|index| network.interfaces().get(index))
            .map_or(1500, |interface| interface.mtu);
        let headers = if to.is_ipv4() { 40 } else { 60 };
        mtu.saturating_sub(headers).min(9000) as u16
    }

    /// Sends a segment of the function.
    pub(crate) fn send(&mut self, tuple: Tuple, segment: &Outgoing<'_>) {
        let destination = tuple.destination.ip();
        let Ok((interface, mac)) = self.link().reach(destination) else {
            return self.tables.count(Event::Unresolved);
        };
        let macs = (self.context.mac(interface), mac.0);
        let ends = (
            (tuple.source.ip(), tuple.source_port),
            (destination, tuple.destination_port),
        );
        let frame = self.scratch.frame.build(macs, ends.0, ends.1, segment);
        if let Some((frame, offloads)) = frame {
            self.out.emit_parts(interface, &[frame], offloads);
        }
    }

    /// Moves the end of an idle time.
    pub(crate) fn renew(&mut self, connection: &mut Connection) {
        let timeouts = &self.snapshot.config.timeouts;
        if connection.uploads != 0 && connection.requests.is_over() {
            // From now on the backend has the time for its answer.
            connection.uploads = 0;
            if connection.busy != 0 && connection.answered == 0 {
                connection.limit_at = self.now() + timeouts.answer.nanos();
            }
        }
        let is_answering =
            connection.busy != 0 && (connection.answered != 0 || connection.uploads != 0);
        let is_idle = connection.busy == 0 && connection.requests.held.is_empty();
        if connection.stage == stage::OPEN && (is_answering || is_idle) {
            let time = if is_answering {
                connection.body_timeout(timeouts)
            } else {
                timeouts.idle.nanos()
            };
            let end = self.now() + time;
            // In steps, so that not every packet writes it.
            if end.saturating_sub(connection.limit_at) > time / 16 {
                connection.limit_at = end;
            }
        }
    }
}
