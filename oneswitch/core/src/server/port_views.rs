//! A controller's view of a port.

use crate::server::ports::VirtualPort;
use openflow13::{config, state, Port, PortStatus};

impl VirtualPort {
    /// Returns a controller's view of the port; `physical` is the delivering interface, if it exists. `cut_off`: packets cannot reach it.
    pub fn view(&self, physical: Option<&Port>, cut_off: bool) -> Port {
        let mut name = [0; 16];
        let bytes = self.name.as_bytes();
        let length = bytes.len().min(15);
        name[..length].copy_from_slice(&bytes[..length]);
        let mut view = physical.cloned().unwrap_or_default();
        view.number = self.number;
        view.name = name;
        view.hw_addr = self.hw_addr.unwrap_or(view.hw_addr);
        view.config = self.config;
        match physical {
            Some(port) if port.state & state::LINK_DOWN == 0 && !cut_off => {
                view.state &= !state::LINK_DOWN
            }
            _ => view.state = state::LINK_DOWN,
        }
        // A port taken down by its controller stays down; the seen link state of a new interface may predate that.
        let stays_down =
            |p: &Port| p.config & config::PORT_DOWN != 0 && p.state & state::LINK_DOWN != 0;
        if self.config & config::PORT_DOWN != 0 && self.announced.as_ref().is_some_and(stays_down) {
            view.state = state::LINK_DOWN;
        }
        let was_live = |p: &Port| p.state & state::LIVE != 0;
        if self.awaits_live
            && view.state & state::LINK_DOWN == 0
            && self.announced.as_ref().is_some_and(was_live)
        {
            view.state |= state::LIVE;
        }
        if self.config & config::PORT_DOWN != 0 {
            view.state &= !state::LIVE; // the interface's own state follows
        }
        view
    }
}

/// A change of a port that controllers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// One of `PortStatus`.
    pub reason: u8,
    pub port: Port,
    /// As they were told last.
    pub before: Option<Port>,
}

impl Announced {
    pub fn deletion(port: Port) -> Self {
        Self {
            reason: PortStatus::DELETE,
            port,
            before: None,
        }
    }
}

/// Returns the names of the OFPPC_* bits in `config`.
pub fn config_names(config: u32) -> Vec<&'static str> {
    [
        (config::PORT_DOWN, "PORT_DOWN"),
        (config::NO_STP, "NO_STP"),
        (config::NO_RECV, "NO_RECV"),
        (config::NO_FWD, "NO_FWD"),
        (config::NO_PACKET_IN, "NO_PACKET_IN"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (config & bit != 0).then_some(name))
    .collect()
}

#[cfg(test)]
mod tests;
