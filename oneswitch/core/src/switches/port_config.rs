//! Applies controllers' port configuration.

use crate::api::{Bridge, SwitchIndex};
use crate::server::port_views::Announced;
use crate::server::ports::Location;
use crate::server::Server;
use crate::switches::Switches;
use openflow13::{config, state, Message, PortMod, PortStatus};

impl Switches {
    /// Applies a controller's port configuration: on the patch ports in `virt`, PORT_DOWN on the interface.
    pub fn apply_port_config(&mut self, server: &Server, number: u32) {
        self.refresh_patch_config(server, number);
        let Some(port) = server.ports.get(number) else {
            return;
        };
        let config = port.config & config::PORT_DOWN;
        for location in port.locations() {
            self.apply_interface_config(location, config);
        }
    }

    fn apply_interface_config(&mut self, location: &Location, config: u32) {
        let edge = &mut self.list[location.switch].edge;
        if !edge.is_up() {
            return;
        }
        let Some(interface) = edge.port_named_mut(&location.interface) else {
            return;
        };
        if (interface.config ^ config) & config::PORT_DOWN != 0 {
            let message = PortMod {
                port: interface.number,
                hw_addr: interface.hw_addr,
                config,
                mask: config::PORT_DOWN,
                advertise: 0,
            };
            // Open vSwitch does not notify the sender of a port-mod of its effect.
            interface.config = (interface.config & !config::PORT_DOWN) | config;
            let number = interface.number;
            self.send_to(location.switch, Bridge::Edge, &Message::PortMod(message));
            let batch = self.verdicts.current_batch();
            let edge = &mut self.list[location.switch].edge;
            edge.port_mods.insert(number, batch);
        }
    }

    /// Applies controllers' configuration to the interfaces of a bridge that came up.
    pub fn apply_port_configs(&mut self, server: &Server, switch: SwitchIndex) {
        for port in server.ports.iter() {
            if port.locations().any(|l| l.switch == switch) {
                self.apply_port_config(server, port.number);
            }
        }
    }

    pub fn refresh_all_patch_config(&mut self, server: &Server) {
        for port in server.ports.iter() {
            self.refresh_patch_config(server, port.number);
        }
    }

    /// Applies a controller's configuration to the patch ports; PORT_DOWN, which they lack, affects the interface and groups that watch it
    /// (liveness.rs).
    pub fn refresh_patch_config(&mut self, server: &Server, number: u32) {
        const ALL: u32 = config::NO_RECV | config::NO_FWD | config::NO_PACKET_IN;
        let Some(port) = server.ports.get(number) else {
            return;
        };
        let wanted = port.config & ALL;
        for switch in self.up().iter() {
            let Some(patch) = self.list[switch].virt.ports.get_mut(&number) else {
                continue;
            };
            if patch.config & ALL != wanted {
                let message = PortMod {
                    port: number,
                    hw_addr: patch.hw_addr,
                    config: wanted,
                    mask: ALL,
                    advertise: 0,
                };
                patch.config = (patch.config & !ALL) | wanted;
                self.send_to(switch, Bridge::Virt, &Message::PortMod(message));
            }
        }
    }

    /// Checks the interfaces of all virtual ports, and returns changes for controllers: the reason of a PORT_STATUS, and the port.
    pub fn announce(&self, server: &mut Server) -> Vec<Announced> {
        let mut changed = Vec::new();
        let lost = self.out_of_reach();
        for port in server.ports.iter_mut() {
            let location = port.delivery();
            let edge = &self.list[location.switch].edge;
            let physical = edge.port_named(&location.interface).cloned();
            if edge.is_up() {
                let carrier = |p: &openflow13::Port| p.state & state::LINK_DOWN == 0;
                port.has_carrier = Some(physical.as_ref().is_some_and(carrier));
            }
            if port.hw_addr.is_none() {
                port.hw_addr = physical.as_ref().map(|p| p.hw_addr);
                server.unsettled |= port.hw_addr.is_some();
            }
            let live = |p: &openflow13::Port| p.state & state::LIVE != 0;
            port.awaits_live &= !physical.as_ref().is_some_and(live);
            let cut_off = !port.needs().intersection(lost).is_empty();
            let view = port.view(physical.as_ref(), cut_off);
            if port.announced.as_ref() != Some(&view) {
                let before = port.announced.replace(view);
                let reason = match before {
                    Some(_) => PortStatus::MODIFY,
                    None => PortStatus::ADD,
                };
                changed.push(Announced {
                    reason,
                    port: view,
                    before,
                });
            }
        }
        changed
    }
}
