//! Connections of later versions, for the counters of ports that OpenFlow 1.3 lacks (switches/port_counters.rs).

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
        let link = match request {
            MultipartRequest::PortStats {
                port: port_no::LOCAL,
            } => Link::Version15,
            MultipartRequest::PortStats { .. } => Link::PortCounters,
            _ => return false,
        };
        incoming.version() >= openflow14::VERSION && self.holds_until_linked(incoming, link, now)
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
        if let Some(header) = Header::parse(frame) {
            self.counters_told((switch, Bridge::Edge), header, frame, now);
        }
        self.settle(now);
    }

    /// Handles the answer of a bridge to a request for all counters of ports.
    pub(in crate::core) fn counters_told(
        &mut self,
        (switch, bridge): (SwitchIndex, Bridge),
        header: Header,
        frame: &[u8],
        now: Instant,
    ) {
        match header.kind {
            kind::MULTIPART_REPLY => match decode_port_stats(frame) {
                Ok((ports, more)) => {
                    let body = MultipartReply::PortStats(ports);
                    let reply = Multipart { more, body };
                    self.read_reply(switch, bridge, header, reply, now);
                }
                Err(refusal) => self.ask_before_14(switch, header.xid, &refusal.to_string()),
            },
            kind::ERROR => self.ask_before_14(switch, header.xid, "refuses"),
            _ => {}
        }
    }

    fn ask_before_14(&mut self, switch: SwitchIndex, xid: u32, detail: &str) {
        let name = &self.switches.list[switch].name;
        error!(target: "southbound", switch = %name, %detail, "does not tell all statistics of its ports");
        self.switches.ask_without_newer(switch, xid);
    }
}
