//! Connections of OpenFlow 1.4 to each `edge`, for the counters of ports that earlier versions lack (switches/port_counters.rs).

use crate::api::{Bridge, SwitchIndex};
use crate::controllers::Incoming;
use crate::core::links::Link;
use crate::core::Core;
use openflow13::openflow14::{self, decode_port_stats};
use openflow13::{kind, openflow15, port_no, Header, Multipart, MultipartReply, MultipartRequest};
use std::time::Instant;
use tracing::error;

impl Core {
    /// Tells whether a controller may ask for such counters, or has. They are kept from then on, over moves of their port.
    pub fn wants_port_counters(&self) -> bool {
        self.switches.port_counters.are_needed
            || self.controllers.speak(openflow14::VERSION)
            || self.controllers.speak(openflow15::VERSION)
    }

    /// Holds a request for statistics of ports until all switches can tell what its version shows.
    pub(in crate::core) fn holds_until_counters_come(
        &mut self,
        incoming: Incoming<'_>,
        request: &MultipartRequest,
        now: Instant,
    ) -> bool {
        let shows = match request {
            MultipartRequest::PortStats { port } => *port != port_no::LOCAL,
            _ => false,
        };
        shows
            && incoming.version() >= openflow14::VERSION
            && self.holds_until_linked(incoming, Link::PortCounters, now)
    }

    /// A connection of OpenFlow 1.4 to `edge` of a switch is there.
    pub fn port_counters_up(&mut self, switch: SwitchIndex, now: Instant) {
        self.switches.port_counters.links.insert(switch);
        self.link_up(Link::PortCounters, switch, now);
    }

    pub fn port_counters_down(&mut self, switch: SwitchIndex) {
        self.switches.port_counters_down(switch);
    }

    /// Handles a message on such a connection.
    pub fn port_counters_told(&mut self, switch: SwitchIndex, frame: &[u8], now: Instant) {
        let Some(header) = Header::parse(frame) else {
            return;
        };
        match header.kind {
            kind::MULTIPART_REPLY => match decode_port_stats(frame) {
                Ok((ports, more)) => {
                    let body = MultipartReply::PortStats(ports);
                    let reply = Multipart { more, body };
                    self.read_reply(switch, Bridge::Edge, header, reply, now);
                }
                Err(refusal) => self.ask_before_14(switch, header.xid, &refusal.to_string()),
            },
            kind::ERROR => self.ask_before_14(switch, header.xid, "refuses"),
            _ => {}
        }
        self.settle(now);
    }

    fn ask_before_14(&mut self, switch: SwitchIndex, xid: u32, detail: &str) {
        let name = &self.switches.list[switch].name;
        error!(target: "southbound", switch = %name, %detail, "does not tell the statistics of its ports over OpenFlow 1.4");
        self.switches.ask_without_newer(switch, xid);
    }
}
