//! The switches that have a port's rules: its home, and during a move the goal.

use super::{place_with, To};
use crate::api::SwitchIndex;
use crate::layout::offload;
use crate::offload::drains::{Drain, Stage};
use crate::offload::ports::{OffloadPort, Ways};
use crate::offload::requests::OffloadTarget;
use crate::server::ports::VirtualPort;
use crate::server::Server;
use crate::switch_set::SwitchSet;
use crate::switches::Switches;
use openflow13::Message;

impl Switches {
    /// Installs targets and rules at `switch` for ports that have come, changes the ways of those that are there, and starts to remove
    /// those that have gone. `is_read`: the bridge is being compared, so that nothing is sent.
    pub fn place_offload(&mut self, server: &mut Server, switch: SwitchIndex, is_read: bool) {
        let numbers: Vec<u32> = server.offload.ports.keys().copied().collect();
        for number in numbers {
            let wanted = self.wanted_ways(server, number, switch);
            let is_here = |p: &VirtualPort| p.locations().any(|l| l.switch == switch);
            let is_away = !server.ports.get(number).is_some_and(is_here);
            let Some(port) = server.offload.ports.get_mut(&number) else {
                continue;
            };
            let to = To { number, switch };
            if let Some(ways) = wanted {
                self.place(port, &to, ways, is_read);
            } else if let Some(place) = port.places.get_mut(&switch).filter(|_| is_away) {
                if !std::mem::replace(&mut place.is_leaving, true) {
                    self.leave_place(server, &to);
                }
            }
        }
    }

    /// Follows the rules of a port at a switch that it has moved away from.
    fn leave_place(&mut self, server: &mut Server, to: &To) {
        server.offload.drains.push(Drain {
            port: to.number,
            rules: None,
            switches: SwitchSet::of(to.switch),
            stage: Stage::Confirming(self.verdicts.current_batch()),
        });
    }

    /// Takes over a counter's meter of a mapped port; returns false if its count is known. The port may have moved away from here shortly
    /// before oneswitchd started: then its rules are followed until their cached flows have ended.
    pub(super) fn adopt_meter(&mut self, server: &mut Server, to: &To, counter: u16) -> bool {
        let is_here = |p: &VirtualPort| p.locations().any(|l| l.switch == to.switch);
        let Some(is_here) = server.ports.get(to.number).map(is_here) else {
            return false;
        };
        let port = server.offload.ports.entry(to.number).or_default();
        if !is_here && port.left.contains(to.switch) {
            return false;
        }
        let is_new = !port.places.contains_key(&to.switch);
        let place = port.places.entry(to.switch).or_default();
        place.metered.entry(counter).or_default();
        if is_new && !is_here {
            place.is_leaving = true;
            self.leave_place(server, to);
        }
        true
    }

    /// Returns the ways on of an active port's packets at a switch that has its interface.
    fn wanted_ways(&self, server: &Server, number: u32, switch: SwitchIndex) -> Option<Ways> {
        let here = |number| {
            let port = server.ports.get(number)?;
            let is_here = port.locations().any(|l| l.switch == switch);
            is_here.then_some(port)
        };
        let port = here(number).filter(|_| server.offload.is_active(number))?;
        let targets = &server.offload.ports.get(&number)?.targets;
        let peers = targets.values().filter_map(|state| match state.target {
            OffloadTarget::Pass(peer) => here(peer),
            _ => None,
        });
        Some(self.with_edge_input(server, switch, |input| Ways {
            own: input.way(port),
            peers: peers.map(|peer| (peer.number, input.way(peer))).collect(),
        }))
    }

    fn place(&mut self, port: &mut OffloadPort, to: &To, ways: Ways, is_read: bool) {
        let (is_whole, is_new) = match port.places.get_mut(&to.switch) {
            None => {
                port.left.remove(to.switch);
                port.places.insert(to.switch, place_with(ways.clone()));
                (false, true)
            }
            Some(place) => {
                let is_back = std::mem::take(&mut place.is_leaving);
                let is_same = place.ways == ways;
                place.ways.clone_from(&ways);
                (is_same, is_back)
            }
        };
        if is_read || (is_whole && !is_new) {
            return;
        }
        let targets = port.targets.iter();
        let groups: Vec<_> = targets
            .map(|(id, state)| offload::group(to.number, *id, &state.target, &ways))
            .collect();
        for group in groups {
            self.send_target(port, to.switch, group);
        }
        if is_new {
            let flows: Vec<_> = port.flows.iter().map(|(r, f)| (*r, f.clone())).collect();
            for (rule, flow) in flows {
                if !flow.is_leaving() {
                    self.send_rule(port, to, rule, &flow);
                }
            }
        }
    }

    /// Deletes everything of a port at a switch.
    pub(super) fn clear_place(&mut self, port: &mut OffloadPort, to: &To) {
        let flows: Vec<_> = port.flows.values().map(|flow| flow.key).collect();
        flows.into_iter().for_each(|key| self.note_flow(to, key));
        let rules = Message::FlowMod(offload::removal_of_all(to.number));
        self.send_offload(port, to.switch, &rules);
        let targets: Vec<u16> = port.targets.keys().copied().collect();
        for target in targets {
            let removal = offload::target_removal(to.number, target);
            self.send_target(port, to.switch, removal);
        }
        let place = port.places.remove(&to.switch);
        for counter in place
            .into_iter()
            .flat_map(|place| place.metered.into_keys())
        {
            let removal = offload::meter_removal(offload::meter_id(to.number, counter));
            self.send_meter_mod(port, to.switch, removal);
        }
    }

    /// Deletes everything of a port that is unmapped.
    pub fn clear_offload(&mut self, server: &mut Server, number: u32) {
        let Some(mut port) = server.offload.forget_port(number) else {
            return;
        };
        for switch in port.places.keys().copied().collect::<Vec<_>>() {
            self.clear_place(&mut port, &To { number, switch });
        }
    }
}
