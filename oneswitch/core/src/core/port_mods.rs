//! Controllers' configuration of ports.

use crate::api::ControllerId;
use crate::controllers::Incoming;
use crate::core::links::Link;
use crate::core::Core;
use openflow13::{config, ErrorCode, PortMod};
use std::time::Instant;

impl Core {
    pub(in crate::core) fn port_mod(
        &mut self,
        incoming: Incoming<'_>,
        message: &PortMod,
        now: Instant,
    ) {
        let settable = match incoming.is_openflow10() {
            true => config::ALL | config::ONLY_10,
            false => config::ALL,
        };
        let message = &PortMod {
            mask: message.mask & settable,
            ..*message
        };
        if let Err(error) = self.port_of_mod(message) {
            return self.refuse(incoming, error);
        }
        let changes_flags = self.changed_by(message) & config::HEEDED_10 != 0;
        if changes_flags && self.holds_until_linked(incoming, Link::Version10, now) {
            return;
        }
        let what = "a port-mod of NO_FLOOD or NO_RECV_STP";
        if changes_flags && self.refuses_unlinked(Link::Version10, what) {
            return self.refuse(incoming, ErrorCode::BAD_REQUEST_EPERM);
        }
        self.change_port(incoming.origin.controller, message);
    }

    /// Returns the bits of a port's configuration that would change.
    fn changed_by(&self, message: &PortMod) -> u32 {
        let port = self.server.ports.get(message.port);
        port.map_or(0, |port| (port.config ^ message.config) & message.mask)
    }

    /// # Errors
    /// `BAD_PORT`, `BAD_HW_ADDR`.
    pub(in crate::core) fn port_of_mod(&self, message: &PortMod) -> Result<(), ErrorCode> {
        let port = self.server.ports.get(message.port);
        let port = port.ok_or(ErrorCode::PORT_MOD_FAILED_BAD_PORT)?;
        match port.hw_addr.is_some_and(|mac| mac != message.hw_addr) {
            true => Err(ErrorCode::PORT_MOD_FAILED_BAD_HW_ADDR),
            false => Ok(()),
        }
    }

    /// Changes a port's configuration for a controller.
    pub(in crate::core) fn change_port(&mut self, by: ControllerId, message: &PortMod) {
        let changed = self.changed_by(message);
        let Some(port) = self.server.ports.get_mut(message.port) else {
            return;
        };
        port.config ^= changed;
        self.server.unsettled = true;
        self.switches.apply_port_config(&self.server, message.port);
        self.switches.refresh_paths(&mut self.server);
        if changed & config::HEEDED_10 != 0 {
            let all = (0..self.switches.list.len()).collect();
            self.switches.require_version10(all);
            self.switches.version10.list = self.server.flood.current().number;
        }
        self.announce_ports(Some(by));
    }
}
