//! Counters of ports that OpenFlow 1.3 lacks: a connection of OpenFlow 1.4 to each `edge` tells them together with all others. A switch without
//! such a connection tells the others over OpenFlow 1.3.

use super::Switches;
use crate::api::{Bridge, Destination, SwitchIndex};
use crate::switch_set::SwitchSet;
use crate::wire::wire;
use openflow13::openflow14::encode_port_stats_request;
use openflow13::{Message, Multipart, MultipartRequest};

#[derive(Debug, Default)]
pub struct PortCounters {
    /// Switches with such a connection.
    pub links: SwitchSet,
    /// Whether a controller has asked for them.
    pub are_needed: bool,
}

/// A request for statistics of ports that some switches get over OpenFlow 1.4.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedNewer {
    pub port: u32,
    pub switches: SwitchSet,
}

impl Switches {
    /// Forgets a connection, and repeats its unanswered requests over OpenFlow 1.3.
    pub fn port_counters_down(&mut self, switch: SwitchIndex) {
        self.port_counters.links.remove(switch);
        self.outbox.discard(Destination::PortCounters(switch));
        for xid in self.asked_newer(switch) {
            self.ask_without_newer(switch, xid);
        }
    }

    /// Returns the switches that tell the answer to a request over OpenFlow 1.4.
    pub(super) fn ask_newer(
        &mut self,
        xid: u32,
        (bridge, from): (Bridge, SwitchSet),
        request: &MultipartRequest,
    ) -> Option<AskedNewer> {
        let MultipartRequest::PortStats { port } = *request else {
            return None;
        };
        let switches = from.intersection(self.port_counters.links);
        if bridge != Bridge::Edge || switches.is_empty() {
            return None;
        }
        let frame = encode_port_stats_request(xid, port);
        for switch in switches.iter() {
            self.outbox.put(Destination::PortCounters(switch), &frame);
        }
        Some(AskedNewer { port, switches })
    }

    /// Asks a switch over OpenFlow 1.3 for what it has not told over 1.4.
    pub fn ask_without_newer(&mut self, switch: SwitchIndex, xid: u32) {
        if let Some(port) = self.takes_back_newer(switch, xid) {
            let request = Multipart::last(MultipartRequest::PortStats { port });
            let frame = wire(xid, &Message::MultipartRequest(request));
            self.outbox
                .put(Destination::Switch(switch, Bridge::Edge), &frame);
        }
    }
}
