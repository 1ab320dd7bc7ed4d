//! The features that only OpenFlow 1.0 has: NO_FLOOD and NO_RECV_STP of ports, and actions that need a match on the protocol in rules without it.
//! A connection of OpenFlow 1.0 to each `virt` says it, in rounds (rounds.rs).
//!
//! A switch gets such a rule without these actions, for the verdict on all else; the round adds them.

use super::incomplete::Incomplete;
use super::rounds::Rounds;
use crate::api::{Destination, SwitchIndex};
use crate::layout::translate::copy_of;
use crate::model::rule::RuleKey;
use crate::model::truth::Truth;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use openflow13::openflow10::{
    self, decode_ports, encode_barrier, encode_port_mod, encode_port_request, encode_rewrite,
    encode_table_ids, error_numbers, without_inconsistent, Rewrite,
};
use openflow13::{config, FlowMod, FlowModCommand, Header, Port, PortMod};
use tracing::error;

#[derive(Debug, Default)]
pub struct Version10 {
    pub rounds: Rounds<Port>,
    /// Whether there has been something to say.
    pub are_needed: bool,
    /// The list of floods that heeds the last change of a port's flags.
    pub list: u64,
    /// Rules that lack actions at a switch.
    pub rules: Incomplete,
}

impl Version10 {
    pub fn link_down(&mut self, switch: SwitchIndex) {
        self.rounds.link_down(switch);
        self.rules.link_down(switch);
    }

    fn end(&mut self, switch: SwitchIndex) {
        self.rounds.end(switch);
        self.rules.end(switch);
    }
}

impl Switches {
    /// Makes these switches get what only OpenFlow 1.0 says.
    pub fn require_version10(&mut self, switches: SwitchSet) {
        if self.version10.are_needed {
            self.version10.rounds.require(switches);
        }
    }

    /// Makes these switches get the actions that a rule lacks there.
    pub fn require_actions(&mut self, switches: SwitchSet, key: &RuleKey) {
        self.version10.are_needed = true;
        self.version10.rules.insert(switches, key);
        self.require_version10(switches);
    }

    /// Takes the actions out of an addition that these switches get over OpenFlow 1.0.
    pub fn without_actions_of_version10(
        &mut self,
        message: FlowMod,
        targets: SwitchSet,
    ) -> FlowMod {
        if message.command != FlowModCommand::Add {
            return message;
        }
        let sayable = without_inconsistent(&message.matching, &message.instructions);
        let (Some(instructions), Ok(matching)) = (sayable, message.matching.canonical()) else {
            return message;
        };
        self.require_actions(targets, &RuleKey::of_flow_mod(&message, matching));
        FlowMod {
            instructions,
            ..message
        }
    }

    pub fn tells_version10_to(&self, switch: SwitchIndex) -> bool {
        let is_up = self.list[switch].virt.is_up();
        self.version10.rounds.include(switch, is_up)
    }

    /// Tells whether some `virt` lacks something, or floods do not heed the flags of all ports yet.
    pub fn tells_version10(&self, server: &Server) -> bool {
        let lags = !server.flood.is_in_force(self.version10.list);
        lags || (0..self.list.len()).any(|switch| self.tells_version10_to(switch))
    }

    /// Begins the rounds that are due, unless changes are in flight.
    pub fn begin_version10(&mut self) {
        if self.verdicts.changes_in_flight() {
            return;
        }
        for switch in self.version10.rounds.startable(self.up()) {
            let (first, awaited) = (self.fresh_xid(), self.fresh_xid());
            let to = Destination::Version10(switch);
            self.outbox.put(to, &encode_table_ids(first));
            self.outbox.put(to, &encode_port_request(awaited));
            self.version10.rounds.begin(switch, awaited);
        }
    }

    /// Handles a message on such a connection.
    pub fn version10_told(
        &mut self,
        truth: &Truth,
        server: &Server,
        switch: SwitchIndex,
        frame: &[u8],
    ) {
        let Some(header) = Header::parse(frame) else {
            return;
        };
        if let Some((kind, code)) = error_numbers(frame) {
            let name = &self.list[switch].name;
            error!(target: "southbound", switch = %name, kind, code, "refuses a message with this error of OpenFlow 1.0");
        }
        let Some(round) = self.version10.rounds.awaiting(switch, header.xid) else {
            return;
        };
        if header.kind == openflow10::kind::BARRIER_REPLY {
            return self.version10.end(switch);
        }
        match decode_ports(frame) {
            Ok((ports, has_more)) => {
                round.told.extend(ports);
                if !has_more {
                    let told = std::mem::take(&mut round.told);
                    self.write_port_flags(server, switch, &told);
                    self.complete_rules(truth, server, switch);
                    let barrier = self.fresh_xid();
                    let to = Destination::Version10(switch);
                    self.outbox.put(to, &encode_barrier(barrier));
                    self.version10.rounds.begin(switch, barrier);
                }
            }
            Err(refusal) => {
                self.version10.end(switch);
                let name = &self.list[switch].name;
                error!(target: "southbound", switch = %name, detail = %refusal, "does not tell the flags of its ports over OpenFlow 1.0");
            }
        }
    }

    /// Sets the flags of a switch's patch ports that differ.
    fn write_port_flags(&mut self, server: &Server, switch: SwitchIndex, told: &[Port]) {
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
                self.outbox.put(Destination::Version10(switch), &frame);
            }
        }
    }

    /// Gives the rules of a switch the actions that they lack.
    fn complete_rules(&mut self, truth: &Truth, server: &Server, switch: SwitchIndex) {
        let keys = self.version10.rules.begin(switch);
        for rule in keys.iter().filter_map(|key| truth.tables.get(key)) {
            let copy = copy_of(rule, 1, &server.hidden, rule.modified);
            let lacks = without_inconsistent(&copy.matching, &copy.instructions).is_some();
            if !lacks || !server.executors.of_rule(rule).contains(switch) {
                continue;
            }
            let rewrite = Rewrite {
                table_id: copy.table_id,
                priority: copy.priority,
                matching: &copy.matching,
                cookie: copy.cookie,
                instructions: &copy.instructions,
            };
            match encode_rewrite(self.fresh_xid(), &rewrite) {
                Ok(frame) => self.outbox.put(Destination::Version10(switch), &frame),
                Err(oversize) => {
                    let name = &self.list[switch].name;
                    error!(target: "southbound", switch = %name, cookie = rule.cookie, %oversize, "cannot get all actions of a rule");
                }
            }
            self.list[switch].own_changes += 1;
        }
    }
}
