//! Counters of ports that OpenFlow 1.3 lacks: a connection of OpenFlow 1.4 to each `edge` tells them together with all others; those of LOCAL, one
//! of OpenFlow 1.5 to `virt`. A switch without such a connection tells the others over OpenFlow 1.3.

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

/// A request for statistics of ports that some switches get over OpenFlow 1.4 or 1.5.
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
        self.ask_again_without_newer(switch, Bridge::Edge);
    }

    /// Repeats unanswered requests over OpenFlow 1.3.
    pub(super) fn ask_again_without_newer(&mut self, switch: SwitchIndex, bridge: Bridge) {
        for xid in self.asked_newer(switch, bridge) {
            self.ask_without_newer(switch, xid);
        }
    }

    /// Returns the switches that tell the answer to a request over OpenFlow 1.4 or 1.5.
    pub(super) fn ask_newer(
        &mut self,
        xid: u32,
        (bridge, from): (Bridge, SwitchSet),
        request: &MultipartRequest,
    ) -> Option<AskedNewer> {
        let MultipartRequest::PortStats { port } = *request else {
            return None;
        };
        let switches = from.intersection(match bridge {
            Bridge::Edge => self.port_counters.links,
            Bridge::Virt => self.properties.rounds.links(),
        });
        for switch in switches.iter() {
            match bridge {
                Bridge::Edge => {
                    let frame = encode_port_stats_request(xid, port);
                    self.outbox.put(Destination::PortCounters(switch), &frame);
                }
                Bridge::Virt => {
                    self.put_to_newer(switch, &port_stats_request(xid, port));
                }
            }
        }
        (!switches.is_empty()).then_some(AskedNewer { port, switches })
    }

    /// Asks a switch over OpenFlow 1.3 for what it has not told over a later version.
    pub fn ask_without_newer(&mut self, switch: SwitchIndex, xid: u32) {
        if let Some((bridge, port)) = self.takes_back_newer(switch, xid) {
            let to = Destination::Switch(switch, bridge);
            self.outbox.put(to, &port_stats_request(xid, port));
        }
    }
}

fn port_stats_request(xid: u32, port: u32) -> Vec<u8> {
    let request = Multipart::last(MultipartRequest::PortStats { port });
    wire(xid, &Message::MultipartRequest(request))
}
