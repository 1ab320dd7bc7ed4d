//! The wanted rules of each switch's `edge` bridge, derived from the port map (docs/architecture.md, "Rules in edge").

use crate::api::{LinkConfig, SwitchIndex};
use crate::layout::encoding::{resubmit, set_field, UNTAGGED};
use crate::layout::offload;
use crate::offload::Offload;
use crate::server::executors::HUB;
use crate::server::flood::{pkt_mark_oxm, Flood, Generation};
use crate::server::ports::{Location, PortMap, VirtualPort};
use openflow13::{
    config, group_no, group_type, port_no, ActionList, Buckets, CanonicalMatch, GroupMod,
    GroupModCommand, Match,
};
use std::collections::BTreeMap;

/// Packets that enter a PCIe link with tags of their own are parsed again before they get another one, because Open vSwitch keeps only two
/// tags of a packet that it is changing and would lose the third. Only a select group makes it recirculate a packet; this one has one
/// bucket, to table 1.
const REPARSE_GROUP: u32 = 1;
/// Leads to [`REPARSE_GROUP`]. After a clone that starts to recirculate, Open vSwitch 3.1 continues as if the packet had not left it
/// (`ctx->exit`, which `clone_xlate_actions` in ofproto-dpif-xlate.c does not restore), and repeats the clone in `virt` before anything
/// that a ct() or a select group recirculates there. The end of a group's bucket resets it.
const ENCLOSING_GROUP: u32 = 2;
const REPARSED_TABLE: u8 = 1;
/// Priority of every rule in `edge`, except those of offloaded flows and those that match every packet of a table.
const PRIORITY: u16 = 100;
const MISS_PRIORITY: u16 = 99;
/// Cookie of every rule in `edge`, except those of offloaded flows: "oneswtch".
pub const COOKIE: u64 = 0x6f6e_6573_7774_6368;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// Name of the patch port in `edge` through which multicast packets leave `virt`.
pub const MULTICAST_PATCH: &str = "edge-mc";

/// Returns the priority of a rule with this match.
pub fn priority(matching: &Match) -> u16 {
    match matching.is_empty() {
        true => MISS_PRIORITY,
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
        way.map_or_else(ActionList::default, |(id, link)| {
            appended(unbound, tagged(id).as_bytes()).output(link, 0)
        })
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
                id.map(|(id, link)| tagged(id).output(link, 0))
            };
            if let Some(actions) = actions {
                put(rules, Match::any().with_in_port(interface), actions);
            }
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
            depart(rules, patch, &[], tagged(port.flow_id).output(link, 0));
        }
    }

    /// Adds rules for tagged packets from the PCIe links: pop and deliver, or forward (the hypervisor only).
    fn arrival(&self, port: &VirtualPort, rules: &mut EdgeRules) {
        for (from, link) in self.pcie_ports() {
            let Some(to) = self.arrival_goal(port, from) else {
                continue;
            };
            let actions = if to.switch == self.switch {
                let popped = ActionList::default().pop_vlan();
                let popped = match self.is_offloaded(port) {
                    // Parsed again, the packet counts without the tag.
                    true => reparsed(popped),
                    false => popped,
                };
                let interface = (self.number_of)(&to.interface);
                interface.map(|interface| self.delivered(port, interface, popped))
            } else {
                self.toward(to.switch)
                    .map(|out| ActionList::default().output(out, 0))
            };
            if let Some(actions) = actions {
                put(
                    rules,
                    Match::any().with_in_port(link).with_vlan_vid(port.flow_id),
                    actions,
                );
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
        for (from, link) in self.pcie_ports() {
            let Some(executor) = self.execution_goal(port, from) else {
                continue;
            };
            let actions = if executor == self.switch {
                Some(reparsed(ActionList::default().pop_vlan()).output(patch, 0))
            } else {
                let out = self.toward(executor);
                out.map(|out| ActionList::default().output(out, 0))
            };
            if let Some(actions) = actions {
                let matching = Match::any().with_in_port(link).with_vlan_vid(id);
                put(rules, matching, actions);
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
        let mut actions = tagged(generation.flow_id());
        let mut leaves = false;
        for (switch, link) in self.pcie_ports() {
            if self.switch != HUB || generation.has_members_at(switch) {
                actions = actions.output(link, 0);
                leaves = true;
            }
        }
        if leaves {
            depart(rules, patch, &pkt_mark_oxm(generation.mark()), actions);
        }
    }

    fn multicast_arrival(&self, generation: &Generation, rules: &mut EdgeRules) {
        for (from, link) in self.pcie_ports() {
            let mut actions = ActionList::default();
            if self.switch == HUB {
                for (_, out) in self
                    .pcie_ports()
                    .filter(|(s, _)| *s != from && generation.has_members_at(*s))
                {
                    actions = actions.output(out, 0);
                }
            }
            if generation.has_members_at(self.switch) {
                actions = actions.pop_vlan();
                for interface in generation
                    .local_interfaces(self.switch)
                    .filter_map(self.number_of)
                {
                    actions = actions.output(interface, 0);
                }
            }
            put(
                rules,
                Match::any()
                    .with_in_port(link)
                    .with_vlan_vid(generation.flow_id()),
                actions,
            );
        }
    }

    /// Iterates over (peer switch, port number) of this switch's PCIe ports.
    fn pcie_ports(&self) -> impl Iterator<Item = (SwitchIndex, u32)> + '_ {
        self.links.iter().enumerate().filter_map(|(switch, link)| {
            let link = link.as_ref()?;
            if self.switch == HUB {
                Some((switch, (self.number_of)(&link.hypervisor)?))
            } else if switch == self.switch {
                Some((HUB, (self.number_of)(&link.local)?))
            } else {
                None
            }
        })
    }

    /// Returns the PCIe port toward `goal`.
    fn toward(&self, goal: SwitchIndex) -> Option<u32> {
        let next = if self.switch == HUB { goal } else { HUB };
        self.pcie_ports()
            .find(|(peer, _)| *peer == next)
            .map(|(_, number)| number)
    }
}

/// Pushes a flow-id.
pub fn tagged(flow_id: u16) -> ActionList {
    ActionList::default()
        .push_vlan(ETHERTYPE_VLAN)
        .set_vlan_vid(flow_id)
}

/// Appends actions to `actions` that make Open vSwitch parse the packet again: with its default vlan-limit it has not parsed the headers
/// behind the tag that they popped. It parses the content of an NSH header again, so the packet gets one for a moment. (A select group
/// would also do, but leaves a hash that select groups in `virt` would then use instead of their own.)
fn reparsed(actions: ActionList) -> ActionList {
    appended(actions, &[ENCAP_NSH, DECAP].concat())
}

/// Appends encoded actions.
fn appended(actions: ActionList, more: &[u8]) -> ActionList {
    let bytes = [actions.as_bytes(), more].concat();
    ActionList::from_bytes(bytes).unwrap_or_default()
}

/// NXAST_ENCAP: packet type (1, 0x894f).
const ENCAP_NSH: [u8; 16] = [
    0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 46, 0, 0, 0, 1, 0x89, 0x4f,
];
/// NXAST_DECAP: to what the header says (packet type (0, 0xfffe)).
const DECAP: [u8; 16] = [
    0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 47, 0, 0, 0, 0, 0xff, 0xfe,
];

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

/// Adds rules for packets from `patch` that match `oxm` and leave over PCIe: directly if untagged, after parsing again if tagged.
///
/// In table 1 a register identifies the source. Open vSwitch then sees no ingress port: for a packet-out that came through a patch port, it
/// would no longer know the bridge (ofproto-dpif-xlate.c, xlate_lookup_ofproto_()).
fn depart(rules: &mut EdgeRules, patch: u32, oxm: &[u8], actions: ActionList) {
    let from = |source: &[u8], vlan: &[u8]| Match::from_oxm([source, vlan, oxm].concat());
    let port = Match::any().with_in_port(patch);
    let register = [&REG0[..], &patch.to_be_bytes()].concat();
    let mut reparse = set_field(&register);
    reparse.extend(set_field(&NO_PORT));
    reparse.extend(REPARSED_COPY.concat());
    if let (Ok(untagged), Ok(tagged), Ok(reparsed), Ok(reparse)) = (
        from(port.as_oxm(), &UNTAGGED),
        from(port.as_oxm(), &TAGGED),
        from(&register, &[]),
        ActionList::from_bytes(reparse),
    ) {
        put(rules, untagged, actions.clone());
        put(rules, tagged, reparse);
        put_in_table(rules, REPARSED_TABLE, reparsed, actions);
    }
}

/// Header of NXM_NX_REG0.
const REG0: [u8; 4] = [0, 1, 0, 4];
/// NXM_OF_IN_PORT: OFPP_NONE.
const NO_PORT: [u8; 6] = [0, 0, 0, 2, 0xff, 0xff];
/// OXM_OF_VLAN_VID, masked: some.
const TAGGED: [u8; 8] = [0x80, 0, 6 << 1 | 1, 4, 0x10, 0, 0x10, 0];

/// NXAST_CLONE of [`ENCLOSING_GROUP`], preceded by a truncated output to no port. Hashing for the group makes Open vSwitch's userspace
/// datapath parse the packet again, two tags deep only, and its next change would write to the wrong place, so it must hash a copy. Open
/// vSwitch makes a copy only for a clone with an irreversible action, such as the truncation.
const REPARSED_COPY: [&[u8]; 3] = [
    &[0xff, 0xff, 0, 40, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0], // clone
    &[
        0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 39, 0xfe, 0xff, 0, 0, 0, 64,
    ], // truncated output to port 0xfeff
    &[0, 22, 0, 8, 0, 0, 0, ENCLOSING_GROUP as u8],
];

/// Returns the groups of every `edge`.
pub fn groups() -> [GroupMod; 2] {
    let enclosed = ActionList::new().group(REPARSE_GROUP);
    let enclosing = Buckets::build([(0, port_no::ANY, group_no::ANY, &enclosed)]);
    let reparsing = Buckets::from_bytes(reparse_bucket()).unwrap_or_default();
    [
        (REPARSE_GROUP, group_type::SELECT, reparsing),
        (ENCLOSING_GROUP, group_type::INDIRECT, enclosing),
    ]
    .map(|(group_id, group_type, buckets)| GroupMod {
        command: GroupModCommand::AddOrModify,
        group_type,
        group_id,
        buckets,
        selection: None,
    })
}

/// Encodes the bucket of [`REPARSE_GROUP`], as in OFPT_GROUP_MOD.
fn reparse_bucket() -> Vec<u8> {
    const WEIGHT: u8 = 1;
    const ANY: [u8; 4] = [0xff; 4];
    let mut bucket = vec![0, 32, 0, WEIGHT];
    bucket.extend(ANY); // watch_port
    bucket.extend(ANY); // watch_group
    bucket.extend([0; 4]);
    bucket.extend(resubmit(REPARSED_TABLE));
    bucket
}

#[cfg(test)]
mod tests;
