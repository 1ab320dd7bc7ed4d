//! The wanted rules of each switch's `edge` bridge, derived from the port map (docs/architecture.md, "Rules in edge").

use crate::api::{LinkConfig, SwitchIndex};
use crate::layout::carrier::{Carrier, Packets};
use crate::layout::encoding::{appended, set_field, MARKERS, NO_PORT};
use crate::layout::offload;
use crate::offload::Offload;
use crate::server::executors::HUB;
use crate::server::flood::{pkt_mark_oxm, Flood, Generation};
use crate::server::flow_ids::FlowId;
use crate::server::ports::{Location, PortMap, VirtualPort};
use openflow13::{config, ActionList, CanonicalMatch, Match, OxmField};
use std::collections::BTreeMap;

/// Priority of every rule in `edge`, except those of offloaded flows, of markers, and those that match every packet of a table.
const PRIORITY: u16 = 100;
const MISS_PRIORITY: u16 = 99;
const MARKERS_PRIORITY: u16 = 101;
/// The number of OXM_OF_ETH_TYPE.
const ETH_TYPE: u8 = 5;
/// Cookie of every rule in `edge`, except those of offloaded flows: "oneswtch".
pub const COOKIE: u64 = 0x6f6e_6573_7774_6368;
/// Name of the patch port in `edge` through which multicast packets leave `virt`.
pub const MULTICAST_PATCH: &str = "edge-mc";

/// Returns the priority of a rule with this match.
pub fn priority(matching: &Match) -> u16 {
    let [.., high, low] = MARKERS;
    let is_marker = |field: OxmField<'_>| field.field == ETH_TYPE && field.value == [high, low];
    match matching.is_empty() {
        true => MISS_PRIORITY,
        false if matching.fields().any(is_marker) => MARKERS_PRIORITY,
        false => PRIORITY,
    }
}

/// Returns the name of the patch port in `edge` for virtual port `number`.
pub fn patch_name(number: u32) -> String {
    format!("edge-{number}")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeRule {
    pub table: u8,
    pub matching: Match,
    pub actions: ActionList,
}

pub type EdgeRules = BTreeMap<(u8, CanonicalMatch), EdgeRule>;

/// A PCIe port of one switch's `edge`.
#[derive(Clone, Copy)]
struct PciePort {
    /// The switch at the other end.
    peer: SwitchIndex,
    number: u32,
    carrier: Carrier,
}

impl PciePort {
    /// Returns the way of a packet into the link with a flow-id; `None`: the link cannot carry that id.
    fn way(self, id: FlowId, before: ActionList) -> Option<ActionList> {
        let carried = self.carrier.carries(id);
        carried.then(|| self.carrier.put(before, id).output(self.number, 0))
    }
}

/// The input from which one switch's rules are derived.
pub struct EdgeInput<'a> {
    pub switch: SwitchIndex,
    /// Per switch; `None` for the hypervisor.
    pub links: &'a [Option<LinkConfig>],
    pub ports: &'a PortMap,
    pub flood: &'a Flood,
    pub offload: &'a Offload,
    /// OpenFlow port number of an interface of this `edge`, if it exists.
    pub number_of: &'a dyn Fn(&str) -> Option<u32>,
}

impl EdgeInput<'_> {
    pub fn rules(&self) -> EdgeRules {
        let mut rules = EdgeRules::new();
        for port in self.ports.iter() {
            self.ingress(port, &mut rules);
            self.markers(port, &mut rules);
            self.delivery(port, &mut rules);
            self.arrival(port, &mut rules);
            self.execution(port, &mut rules);
        }
        for generation in self.flood.generations() {
            self.multicast_departure(generation, &mut rules);
            self.multicast_arrival(generation, &mut rules);
        }
        self.offload_tables(&mut rules);
        rules
    }

    /// Adds the rules of the offload tables that do not depend on flows, if some port here has offloaded flows.
    fn offload_tables(&self, rules: &mut EdgeRules) {
        let mut is_needed = false;
        for port in self.ports.iter().filter(|port| self.is_offloaded(port)) {
            let here = |l: &&Location| l.switch == self.switch;
            let mut locations = std::iter::once(port.delivery()).chain(port.locations());
            let interface = locations.find(here).map(|l| &l.interface);
            if let Some(interface) = interface.and_then(|name| (self.number_of)(name)) {
                let (table, matching) = offload::delivery(port.number);
                let actions = ActionList::default().output(interface, 0);
                put_in_table(rules, table, matching, actions);
                is_needed = true;
            }
        }
        if is_needed {
            let misses = offload::misses().into_iter();
            let misses = misses.map(|(table, actions)| (table, Match::any(), actions));
            for (table, matching, actions) in offload::choosers().into_iter().chain(misses) {
                put_in_table(rules, table, matching, actions);
            }
        }
    }

    /// Tells whether packets for a port pass the offload tables. A port that its controller took down must get none.
    fn is_offloaded(&self, port: &VirtualPort) -> bool {
        self.offload.is_active(port.number) && port.config & config::PORT_DOWN == 0
    }

    /// Returns the delivery of a packet to a port's interface here, after `before`.
    fn delivered(&self, port: &VirtualPort, interface: u32, before: ActionList) -> ActionList {
        if self.is_offloaded(port) {
            appended(before, &offload::entrance(port.number))
        } else {
            before.output(interface, 0)
        }
    }

    /// Returns the way of a packet from a port's interface here, as [`Self::ingress`] adds it, whatever port it has come from.
    pub fn way(&self, port: &VirtualPort) -> ActionList {
        let Some(location) = port.locations().find(|l| l.switch == self.switch) else {
            return ActionList::default();
        };
        let unbound = appended(ActionList::default(), &set_field(&NO_PORT));
        let executor = port.executor_for(location);
        if executor == self.switch {
            let patch = (self.number_of)(&patch_name(port.number));
            return patch.map_or_else(ActionList::default, |patch| unbound.output(patch, 0));
        }
        let way = port.ingress_id.zip(self.toward(executor));
        way.and_then(|(id, link)| link.way(id, unbound))
            .unwrap_or_default()
    }

    /// Adds rules from the interface to `virt`, here or tagged toward its executor: both interfaces of a moving port work.
    fn ingress(&self, port: &VirtualPort, rules: &mut EdgeRules) {
        let Some(patch) = (self.number_of)(&patch_name(port.number)) else {
            return;
        };
        for location in port.locations().filter(|l| l.switch == self.switch) {
            let Some(interface) = (self.number_of)(&location.interface) else {
                continue;
            };
            let executor = port.executor_for(location);
            let actions = if executor == self.switch {
                Some(ActionList::default().output(patch, 0))
            } else {
                let id = port.ingress_id.zip(self.toward(executor));
                id.and_then(|(id, link)| link.way(id, ActionList::default()))
            };
            if let Some(actions) = actions {
                put(rules, Match::any().with_in_port(interface), actions);
            }
        }
    }

    /// Adds the path of markers from a moving port's old interface to its new one. The path passes each switch at which packets from the two
    /// interfaces meet, so an arriving marker proves that these switches have forwarded all earlier packets of the old interface.
    fn markers(&self, port: &VirtualPort, rules: &mut EdgeRules) {
        let Some(to) = port.moving.as_ref().map(|moving| &moving.to) else {
            return;
        };
        if port.home.switch != self.switch || port.home == *to {
            return;
        }
        let Some(from) = (self.number_of)(&port.home.interface) else {
            return;
        };
        let way = if to.switch == self.switch {
            let interface = (self.number_of)(&to.interface);
            interface.map(|number| ActionList::default().output(number, 0))
        } else {
            let link = self.toward(to.switch);
            link.and_then(|link| link.way(port.flow_id, ActionList::default()))
        };
        let of_port = Match::any().with_in_port(from);
        let matching = Match::from_oxm([of_port.as_oxm(), &MARKERS].concat());
        if let (Some(way), Ok(matching)) = (way, matching) {
            put(rules, matching, way);
        }
    }

    /// Adds rules out of `virt`: to the interface, or tagged toward it.
    fn delivery(&self, port: &VirtualPort, rules: &mut EdgeRules) {
        let Some(patch) = (self.number_of)(&patch_name(port.number)) else {
            return;
        };
        let to = port.delivery();
        if to.switch == self.switch {
            if let Some(interface) = (self.number_of)(&to.interface) {
                let actions = self.delivered(port, interface, ActionList::default());
                put(rules, Match::any().with_in_port(patch), actions);
            }
        } else if let Some(link) = self.toward(to.switch) {
            let oxm = &[];
            let leaving = Packets { from: patch, oxm };
            forward(rules, leaving, None, port.flow_id, &[link], None);
        }
    }

    /// Adds rules for packets with a flow-id from the PCIe links: deliver, or forward (the hypervisor only).
    fn arrival(&self, port: &VirtualPort, rules: &mut EdgeRules) {
        for link in self.pcie_ports() {
            let Some(to) = self.arrival_goal(port, link.peer) else {
                continue;
            };
            if to.switch == self.switch {
                let taken = match self.is_offloaded(port) {
                    // Parsed again, the packet counts without a tag.
                    true => link.carrier.take_whole(ActionList::default()),
                    false => link.carrier.take(ActionList::default()),
                };
                let interface = (self.number_of)(&to.interface);
                if let Some(interface) = interface {
                    let delivered = self.delivered(port, interface, taken);
                    transit(rules, link, port.flow_id, &[], Some(delivered));
                }
            } else if let Some(out) = self.toward(to.switch) {
                transit(rules, link, port.flow_id, &[out], None);
            }
        }
    }

    /// Returns the destination of a packet for `port` that arrived from switch `from`. Never `from` itself: while a port moves, packets
    /// still sent by the old path end at the old interface.
    fn arrival_goal<'p>(&self, port: &'p VirtualPort, from: SwitchIndex) -> Option<&'p Location> {
        let mut locations = std::iter::once(port.delivery()).chain(port.locations());
        if self.switch == HUB {
            locations.find(|l| l.switch != from)
        } else {
            locations.find(|l| l.switch == self.switch)
        }
    }

    /// Adds rules for packets from the PCIe links that entered at `port` elsewhere: into `virt`, or forwarded (the hypervisor only).
    fn execution(&self, port: &VirtualPort, rules: &mut EdgeRules) {
        let patch = (self.number_of)(&patch_name(port.number));
        let (Some(id), Some(patch)) = (port.ingress_id, patch) else {
            return;
        };
        for link in self.pcie_ports() {
            let Some(executor) = self.execution_goal(port, link.peer) else {
                continue;
            };
            if executor == self.switch {
                let taken = link.carrier.take_whole(ActionList::default());
                transit(rules, link, id, &[], Some(taken.output(patch, 0)));
            } else if let Some(out) = self.toward(executor) {
                transit(rules, link, id, &[out], None);
            }
        }
    }

    /// Returns the executor of a packet that entered at `port` and arrived from switch `from`. Never `from` itself: while the executor
    /// changes, packets still sent by the old path are executed at the old one.
    fn execution_goal(&self, port: &VirtualPort, from: SwitchIndex) -> Option<SwitchIndex> {
        if self.switch != HUB {
            let entered_elsewhere = port.locations().any(|l| l.switch != self.switch);
            return (entered_elsewhere && port.executors().contains(self.switch))
                .then_some(self.switch);
        }
        let location = port.locations().find(|l| l.switch == from)?;
        let mut executors =
            std::iter::once(port.executor_for(location)).chain(port.executors().iter());
        executors.find(|executor| *executor != from)
    }

    fn multicast_departure(&self, generation: &Generation, rules: &mut EdgeRules) {
        let Some(patch) = (self.number_of)(MULTICAST_PATCH) else {
            return;
        };
        let is_needed =
            |link: &PciePort| self.switch != HUB || generation.has_members_at(link.peer);
        let links: Vec<PciePort> = self.pcie_ports().filter(is_needed).collect();
        if !links.is_empty() {
            let oxm = &pkt_mark_oxm(generation.mark());
            let leaving = Packets { from: patch, oxm };
            forward(rules, leaving, None, generation.flow_id(), &links, None);
        }
    }

    fn multicast_arrival(&self, generation: &Generation, rules: &mut EdgeRules) {
        for link in self.pcie_ports() {
            let is_needed = |out: &PciePort| {
                self.switch == HUB && out.peer != link.peer && generation.has_members_at(out.peer)
            };
            let others: Vec<PciePort> = self.pcie_ports().filter(is_needed).collect();
            let delivered = generation.has_members_at(self.switch).then(|| {
                let taken = link.carrier.take(ActionList::default());
                let interfaces = generation.local_interfaces(self.switch);
                let numbers = interfaces.filter_map(self.number_of);
                numbers.fold(taken, |actions, number| actions.output(number, 0))
            });
            transit(rules, link, generation.flow_id(), &others, delivered);
        }
    }

    /// Iterates over this switch's PCIe ports.
    fn pcie_ports(&self) -> impl Iterator<Item = PciePort> + '_ {
        self.links.iter().enumerate().filter_map(|(switch, link)| {
            let link = link.as_ref()?;
            let (peer, name) = if self.switch == HUB {
                (switch, &link.hypervisor)
            } else if switch == self.switch {
                (HUB, &link.local)
            } else {
                return None;
            };
            let number = (self.number_of)(name)?;
            Some(PciePort {
                peer,
                number,
                carrier: Carrier::of(link.kind, number),
            })
        })
    }

    /// Returns the PCIe port toward `goal`.
    fn toward(&self, goal: SwitchIndex) -> Option<PciePort> {
        let next = if self.switch == HUB { goal } else { HUB };
        self.pcie_ports().find(|link| link.peer == next)
    }
}

/// Adds rules for packets with a flow-id from a PCIe link: to other links, and `delivered`, actions that take off the id.
fn transit(
    rules: &mut EdgeRules,
    link: PciePort,
    id: FlowId,
    others: &[PciePort],
    delivered: Option<ActionList>,
) {
    if link.carrier.carries(id) {
        let (from, oxm) = (link.number, &link.carrier.fields(id));
        let packets = Packets { from, oxm };
        forward(rules, packets, Some(link.carrier), id, others, delivered);
    }
}

/// Adds rules for packets that go to PCIe ports with a flow-id, and to `delivered`. `arrived`: the carrier by which they have it already.
fn forward(
    rules: &mut EdgeRules,
    packets: Packets<'_>,
    arrived: Option<Carrier>,
    id: FlowId,
    links: &[PciePort],
    delivered: Option<ActionList>,
) {
    let by = |carrier| links.iter().filter(move |link| link.carrier == carrier);
    let out = |actions: ActionList, carrier| {
        by(carrier).fold(actions, |actions, link| actions.output(link.number, 0))
    };
    let is_due = |carrier: Carrier| {
        arrived != Some(carrier) && carrier.carries(id) && by(carrier).next().is_some()
    };
    // First to links that carry the id as the packets already have it. Tags come last, because Open vSwitch may have to parse again.
    let mut actions = ActionList::default();
    if let Some(carrier) = arrived {
        actions = out(actions, carrier);
        actions = match delivered {
            Some(delivered) => appended(actions, delivered.as_bytes()),
            None if is_due(Carrier::TunnelId) => carrier.take(actions),
            None => actions,
        };
    }
    if is_due(Carrier::TunnelId) {
        actions = out(Carrier::TunnelId.put(actions, id), Carrier::TunnelId);
    }
    if is_due(Carrier::Tag) {
        let tagging = out(Carrier::Tag.put(ActionList::default(), id), Carrier::Tag);
        for (table, matching, actions) in packets.tagged(&actions, &tagging) {
            put_in_table(rules, table, matching, actions);
        }
    } else if let Some(matching) = packets.matching() {
        put(rules, matching, actions);
    }
}

fn put(rules: &mut EdgeRules, matching: Match, actions: ActionList) {
    put_in_table(rules, 0, matching, actions);
}

fn put_in_table(rules: &mut EdgeRules, table: u8, matching: Match, actions: ActionList) {
    if let Ok(key) = matching.canonical() {
        rules.insert(
            (table, key),
            EdgeRule {
                table,
                matching,
                actions,
            },
        );
    }
}

#[cfg(test)]
mod tests;
