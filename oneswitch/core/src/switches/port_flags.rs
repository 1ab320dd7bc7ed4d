//! What OpenFlow 1.3 cannot say about ports, and Open vSwitch heeds: NO_FLOOD and NO_RECV_STP. A connection of OpenFlow 1.0 to each `virt` says it
//! of the patch ports, in rounds (rounds.rs).

use super::rounds::Rounds;
use crate::api::{Destination, SwitchIndex};
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use openflow13::openflow10::{
    self, decode_ports, encode_barrier, encode_port_mod, encode_port_request,
};
use openflow13::{config, kind, Header, Port, PortMod};
use tracing::error;

#[derive(Debug, Default)]
pub struct PortFlags {
    pub rounds: Rounds<Port>,
    /// Whether some port has had such a flag.
    pub are_needed: bool,
    /// The list of floods that heeds the last change.
    pub list: u64,
}

impl Switches {
    /// Makes these switches get the flags of their ports.
    pub fn require_port_flags(&mut self, switches: SwitchSet) {
        if self.port_flags.are_needed {
            self.port_flags.rounds.require(switches);
        }
    }

    pub fn tells_port_flags_to(&self, switch: SwitchIndex) -> bool {
        let is_up = self.list[switch].virt.is_up();
        self.port_flags.rounds.include(switch, is_up)
    }

    /// Tells whether floods, or some `virt`, do not heed the flags of all ports yet.
    pub fn tells_port_flags(&self, server: &Server) -> bool {
        let lags = !server.flood.is_in_force(self.port_flags.list);
        lags || (0..self.list.len()).any(|switch| self.tells_port_flags_to(switch))
    }

    /// Begins the rounds that are due, unless changes are in flight.
    pub fn begin_port_flags(&mut self) {
        if self.verdicts.changes_in_flight() {
            return;
        }
        for switch in self.port_flags.rounds.startable(self.up()) {
            let awaited = self.fresh_xid();
            let request = encode_port_request(awaited);
            self.outbox.put(Destination::Version10(switch), &request);
            self.port_flags.rounds.begin(switch, awaited);
        }
    }

    /// Handles a message on a connection of OpenFlow 1.0.
    pub fn port_flags_told(&mut self, server: &Server, switch: SwitchIndex, frame: &[u8]) {
        let Some(header) = Header::parse(frame) else {
            return;
        };
        let rounds = &mut self.port_flags.rounds;
        let Some(round) = rounds.awaiting(switch, header.xid) else {
            return;
        };
        if header.kind == openflow10::kind::BARRIER_REPLY {
            return rounds.end(switch);
        }
        match decode_ports(frame) {
            Ok((ports, has_more)) => {
                round.told.extend(ports);
                if !has_more {
                    let told = std::mem::take(&mut round.told);
                    self.write_port_flags(server, switch, &told);
                }
            }
            Err(refusal) => {
                rounds.end(switch);
                let (name, is_error) = (&self.list[switch].name, header.kind == kind::ERROR);
                error!(target: "southbound", switch = %name, is_error, detail = %refusal, "does not tell the flags of its ports over OpenFlow 1.0");
            }
        }
    }

    /// Sets the flags of a switch's patch ports that differ.
    fn write_port_flags(&mut self, server: &Server, switch: SwitchIndex, told: &[Port]) {
        let to = Destination::Version10(switch);
        for there in told {
            let Some(port) = server.ports.get(there.number) else {
                continue;
            };
            if (there.config ^ port.config) & config::HEEDED_10 != 0 {
                let message = PortMod {
                    port: there.number,
                    hw_addr: there.hw_addr,
                    config: port.config & config::HEEDED_10,
                    mask: config::HEEDED_10,
                    advertise: 0,
                };
                let frame = encode_port_mod(self.fresh_xid(), &message);
                self.outbox.put(to, &frame);
            }
        }
        let barrier = self.fresh_xid();
        self.outbox.put(to, &encode_barrier(barrier));
        self.port_flags.rounds.begin(switch, barrier);
    }
}
