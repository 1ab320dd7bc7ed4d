//! Writers of offloaded flows: their connections, requests and events.

use crate::api::{Claim, SwitchIndex};
use crate::core::Core;
use crate::offload::events::{OffloadEvent, OffloadRefused};
use crate::offload::flows::sum;
use crate::offload::ports::OffloadPort;
use crate::offload::requests::{OffloadHello, OffloadRequest, WriterId};
use crate::offload::view::OffloadView;
use crate::offload::writers::Admitted;
use openflow13::ErrorCode;
use std::time::Instant;

impl Core {
    /// Connects a writer, which is told so once the switches of its port are known. Another event tells why it is turned away.
    pub fn offload_hello(&mut self, id: WriterId, hello: OffloadHello, now: Instant) {
        self.offload_hellos.push((id, hello));
        self.admit_writers(now);
    }

    /// Admits writers whose ports' switches have reported their rules.
    pub(in crate::core) fn admit_writers(&mut self, now: Instant) {
        for (id, hello) in std::mem::take(&mut self.offload_hellos) {
            if let Err((code, detail)) = self.check_hello(&hello) {
                self.turn_away(id, code, detail);
            } else if self.is_known(hello.port) {
                self.admit_writer(id, &hello, now);
            } else {
                self.offload_hellos.push((id, hello));
            }
        }
    }

    fn check_hello(&self, hello: &OffloadHello) -> Result<(), (&'static str, String)> {
        let number = hello.port;
        let Some(port) = self.server.ports.get(number) else {
            let detail =
                format!("port {number} is not mapped; expected the number of a virtual port");
            return Err(("port-unknown", detail));
        };
        let claim = Claim {
            owner: hello.owner.clone(),
            force: false,
        };
        port.check_claim(&claim)
            .map_err(|error| (error.code(), error.to_string()))
    }

    /// Tells whether every switch of a port has reported its rules.
    fn is_known(&self, number: u32) -> bool {
        let port = self.server.ports.get(number);
        let mut locations = port.into_iter().flat_map(|port| port.locations());
        locations.all(|l| self.switches.list[l.switch].edge.is_up())
    }

    fn admit_writer(&mut self, id: WriterId, hello: &OffloadHello, now: Instant) {
        match self.server.offload.admit(id, hello, now) {
            Err(detail) => self.turn_away(id, "stale-writer", detail),
            Ok(admitted) => {
                if admitted == Admitted::Strange {
                    self.switches.remove_orphans(&mut self.server, hello.port);
                }
                self.server.offload.events.put(id, OffloadEvent::Welcome);
            }
        }
    }

    fn turn_away(&mut self, id: WriterId, code: &'static str, detail: String) {
        let events = &mut self.server.offload.events;
        events.error(id, code, detail);
        events.put(id, OffloadEvent::Close);
    }

    pub fn offload_requests(&mut self, id: WriterId, requests: &[OffloadRequest], now: Instant) {
        let Some(number) = self.server.offload.port_of(id) else {
            return;
        };
        self.server.offload.heard(number, now);
        let server = &mut self.server;
        self.switches
            .offload_requests(server, (id, number), requests);
        self.switches.advance_lists(server);
    }

    /// A writer has disconnected.
    pub fn offload_closed(&mut self, id: WriterId, now: Instant) {
        self.offload_hellos.retain(|(waiting, _)| *waiting != id);
        self.server.offload.part(id, now);
    }

    /// Tells whether a writer's next requests may be given to the core now.
    pub fn takes_offload_of(&self, id: WriterId) -> bool {
        let offload = &self.server.offload;
        let port = offload
            .port_of(id)
            .and_then(|number| offload.ports.get(&number));
        let waits = self
            .offload_hellos
            .iter()
            .any(|(waiting, _)| *waiting == id);
        !waits && !port.is_some_and(OffloadPort::is_busy)
    }

    /// Returns the writers' events since the last call, in order.
    pub fn take_offload_events(&mut self) -> Vec<(WriterId, OffloadEvent)> {
        self.server.offload.events.take()
    }

    /// Returns switches to be asked when the present cached flows of their data path have ended; see [`Core::cached_flows_ended`].
    pub fn take_cache_orders(&mut self) -> Vec<SwitchIndex> {
        self.server.offload.drains.take_orders()
    }

    /// Records that the cached flows of a switch at the time of the order have ended, or that it does not tell.
    pub fn cached_flows_ended(&mut self, switch: SwitchIndex, has_ended: bool, now: Instant) {
        self.server.offload.drains.ended(switch, has_ended);
        self.switches.advance_drains(&mut self.server, now);
    }

    pub fn offload_views(&self) -> Vec<OffloadView> {
        let gone = |number| {
            self.server
                .ports
                .get(number)
                .map(|port| sum(&port.offloaded))
        };
        self.server
            .offload
            .views(|number| gone(number).unwrap_or_default())
    }

    /// Reports what the switches have confirmed.
    pub(in crate::core) fn settle_offload(&mut self, now: Instant) {
        self.switches.confirm_installs(&mut self.server);
        self.switches.advance_drains(&mut self.server, now);
        self.switches.advance_lists(&mut self.server);
        self.admit_writers(now);
    }

    pub(in crate::core) fn tick_offload(&mut self, now: Instant) {
        self.server.offload.part_silent(now);
        for number in self.server.offload.orphans(now) {
            self.switches.remove_orphans(&mut self.server, number);
        }
        self.switches.read_counts(&mut self.server, now);
        self.switches.advance_drains(&mut self.server, now);
        self.switches.advance_lists(&mut self.server);
    }

    /// Handles an error about an install; returns false if the message was another one.
    pub(in crate::core) fn is_refused_install(&mut self, xid: u32, error: ErrorCode) -> bool {
        let Some(asked) = self.server.offload.take_asked(xid) else {
            return false;
        };
        let reason = match error {
            // A switch without room for a meter does not know it when the rule comes.
            ErrorCode::FLOW_MOD_FAILED_TABLE_FULL | ErrorCode::METER_MOD_FAILED_INVALID_METER => {
                OffloadRefused::Full
            }
            _ => OffloadRefused::Unsupported,
        };
        self.switches
            .install_refused(&mut self.server, asked, reason);
        true
    }
}
