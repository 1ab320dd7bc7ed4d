//! The required content of each fake switch, derived naively from one bridge that got the same messages.

use crate::fake::{FakeBridge, Flow};
use crate::lab::{Lab, MULTICAST_PATCH, PATCH, PCIE};
use oneswitch_core::{Bridge, LinkKind};
use openflow13::{
    group_no, port_no, Action, ActionList, Buckets, FlowMod, Instruction, Instructions,
};
use std::collections::{BTreeMap, BTreeSet};

pub const FLOOD_GROUP: u32 = 0xffff_fe00;
pub const ALL_GROUP: u32 = 0xfffe_ffff;

/// Where every virtual port executes: at one switch, while it moves at two.
pub type Executors = BTreeMap<u32, BTreeSet<usize>>;

impl Lab {
    /// Restarts the daemon, which must write nothing to the `virt` of a switch that has what it needs. It reads them all, so it also makes
    /// the repairs that were put off.
    pub fn restart_at_rest(&mut self) {
        let before: Vec<_> = self.switches.iter().map(|s| tables(&s.virt)).collect();
        let written: Vec<_> = self.switches.iter().map(|s| s.virt.accepted).collect();
        self.restart();
        self.run();
        for ((switch, before), written) in self.switches.iter().zip(before).zip(written) {
            if tables(&switch.virt) == before {
                assert_eq!(switch.virt.accepted, written, "something was rewritten");
            }
        }
    }

    /// Compares everything on the switches that are up with what `one` bridge holds, but for rules that a switch was told to refuse.
    pub fn check(
        &mut self,
        one: &FakeBridge,
        by_port: &Executors,
        may_differ: impl Fn(usize, &Flow) -> bool,
    ) {
        let mut executors: BTreeSet<usize> = by_port.values().flatten().copied().collect();
        // Packets that enter at no port are executed where everything is, if there is one such switch.
        let unmapped = if executors.len() == 1 {
            *executors.first().unwrap()
        } else {
            0
        };
        executors.insert(unmapped);
        let everywhere = one.flows.iter().any(|f| writes_in_port(&f.instructions));
        for switch in 0..self.switches.len() {
            if !self.switches[switch].virt.connected {
                continue;
            }
            let here = |f: &Flow| {
                let at = match f.matching.in_port() {
                    Some(port) if !everywhere => by_port.get(&port).cloned(),
                    _ => Some(executors.clone()),
                };
                at.unwrap_or(BTreeSet::from([unmapped]))
            };
            let mut wanted: Vec<Flow> = one
                .flows
                .iter()
                .filter(|f| here(f).contains(&switch))
                .map(|f| physical_flow(f, here(f).len()))
                .collect();
            let virt = &self.switches[switch].virt;
            let mut there = virt.flows.clone();
            for flow in &mut there {
                (flow.packets, flow.bytes) = (0, 0);
                // Rules of a moving port keep their timers at the old home.
                if !everywhere && flow.matching.in_port().is_some() && here(flow).len() > 1 {
                    flow.idle = 0;
                }
            }
            let key = |f: &Flow| (f.table, f.priority, f.key.clone());
            let ignored: BTreeSet<_> = wanted
                .iter()
                .filter(|f| may_differ(switch, f))
                .map(key)
                .collect();
            wanted.retain(|f| !ignored.contains(&key(f)));
            there.retain(|f| !ignored.contains(&key(f)));
            for list in [&mut wanted, &mut there] {
                // Later copies get what is left of it.
                list.iter_mut().for_each(|f| f.hard = f.hard.min(1));
                // They do not carry flags about the message that made the rule.
                let message = FlowMod::CHECK_OVERLAP | FlowMod::RESET_COUNTS;
                list.iter_mut().for_each(|f| f.flags &= !message);
                list.sort_by(|a, b| {
                    (a.table, a.priority, &a.key).cmp(&(b.table, b.priority, &b.key))
                });
            }
            assert_eq!(there, wanted, "flows of switch {switch}");
            let executes = executors.contains(&switch);
            let mut groups: BTreeMap<u32, (u8, Buckets)> = one
                .groups
                .iter()
                .filter(|_| executes)
                .map(|(id, (kind, buckets))| (*id, (*kind, physical_buckets(buckets))))
                .collect();
            for hidden in [FLOOD_GROUP, ALL_GROUP] {
                let flood = virt.groups.get(&hidden).expect("the group of floods");
                groups.insert(hidden, flood.clone());
            }
            assert_eq!(virt.groups, groups, "groups of switch {switch}");
            let meters = if executes {
                one.meters.clone()
            } else {
                BTreeMap::new()
            };
            assert_eq!(virt.meters, meters, "meters of switch {switch}");
        }
    }

    /// As [`Self::check_executed_paths`], with every port executed at its home.
    pub fn check_paths(&self, homes: &BTreeMap<u32, (usize, u32)>) {
        let executors = homes.iter().map(|(port, home)| (*port, home.0)).collect();
        self.check_executed_paths(homes, &executors);
    }

    /// Follows packets from every `virt` through the `edge` bridges: each port is reached once, by unicast and by flood, with the tenant's
    /// tags as they were; a flood does not come back to where it entered. And from every port to the `virt` that executes it.
    /// `homes`: the switch and interface number of each virtual port.
    pub fn check_executed_paths(
        &self,
        homes: &BTreeMap<u32, (usize, u32)>,
        executors: &BTreeMap<u32, usize>,
    ) {
        let mut everybody: Vec<_> = homes.values().copied().collect();
        everybody.sort_unstable();
        for (from, tags) in (0..self.switches.len()).flat_map(|s| [(s, &[][..]), (s, &[7, 8][..])])
        {
            let walk = |port, mark| {
                let left = self.walk(from, port, Packet::new(tags, mark), 0);
                left.into_iter().map(|(place, kept)| {
                    assert_eq!(kept, tags);
                    place
                })
            };
            for (port, home) in homes {
                let got: Vec<_> = walk(PATCH + port, 0).collect();
                assert_eq!(got, [*home], "from switch {from} to port {port}");
            }
            let executed = executors.iter().filter(|(_, at)| **at == from);
            let entered = executed.map(|(port, _)| *port).chain([0]);
            for in_port in entered {
                let got = self.flooded(from, in_port, tags);
                let mut wanted = everybody.clone();
                wanted.retain(|place| homes.get(&in_port) != Some(place));
                assert_eq!(got, wanted, "a flood from switch {from}, port {in_port}");
            }
        }
        for (port, (switch, interface)) in homes {
            for tags in [vec![], vec![7, 8]] {
                let got = self.walk(*switch, *interface, Packet::new(&tags, 0), 0);
                let entered = ((executors[port], PATCH + port), tags);
                assert_eq!(got, [entered], "ingress of port {port}");
            }
        }
    }

    /// The interfaces, in order, that a packet with `tags` leaves by which `virt` of a switch floods, and which entered at `in_port`.
    pub fn flooded(&self, from: usize, in_port: u32, tags: &[u16]) -> Vec<(usize, u32)> {
        self.sent_by(FLOOD_GROUP, from, in_port, tags)
    }

    /// As [`Self::flooded`], by one of the two groups.
    pub fn sent_by(
        &self,
        group: u32,
        from: usize,
        in_port: u32,
        tags: &[u16],
    ) -> Vec<(usize, u32)> {
        let walk = |port, mark| self.walk(from, port, Packet::new(tags, mark), 0);
        let mut left = Vec::new();
        let (_, buckets) = &self.switches[from].virt.groups[&group];
        for bucket in buckets.iter() {
            let mut mark = 0;
            for item in bucket.actions.iter() {
                match item.action {
                    Action::SetField(field) => mark = number(field.value),
                    Action::Output { port: 0xfe00, .. } => left.extend(walk(MULTICAST_PATCH, mark)),
                    // Open vSwitch does not send a packet out of the port that it came in by.
                    Action::Output { port, .. } if port == in_port => {}
                    Action::Output { port, .. } => left.extend(walk(PATCH + port, mark)),
                    other => panic!("{other:?}"),
                }
            }
        }
        let mut places = Vec::new();
        for (place, kept) in left {
            assert_eq!(kept, tags);
            places.push(place);
        }
        places.sort_unstable();
        places
    }

    /// The interfaces and the ways into `virt`, with the tags, that a packet leaves by which enters `edge` of `switch` at `in_port`.
    fn walk(&self, switch: usize, in_port: u32, mut packet: Packet, table: u8) -> Departures {
        let mut left = Vec::new();
        // Popping one tag shows nothing of what is behind it.
        let mut parsed = true;
        let mut inside = false;
        let rules = matching(&self.switches[switch].edge, table, in_port, &packet);
        assert!(rules.len() <= 1, "{rules:?}");
        let instructions = rules.iter().flat_map(|f| f.instructions.iter());
        for instruction in instructions {
            let Instruction::ApplyActions(actions) = instruction else {
                panic!("{instruction:?}");
            };
            for item in actions.iter() {
                match item.action {
                    Action::PushVlan(_) => packet.tags.push(0),
                    Action::PopVlan => {
                        packet.tags.pop().expect("a tag to pop");
                        parsed = false;
                    }
                    // Into an NSH header, and out of it: parsed again.
                    Action::Nicira { subtype: 46, .. } => inside = true,
                    Action::Nicira { subtype: 47, .. } => parsed |= std::mem::take(&mut inside),
                    // Table 1 knows from register 0 where the packet came from; the packet itself comes from no port.
                    Action::SetField(field) if (field.class, field.field) == (1, 0) => {
                        assert_eq!(number(field.value), in_port);
                    }
                    Action::SetField(field) if (field.class, field.field) == (0, 0) => {
                        assert_eq!(number(field.value), 0xffff);
                    }
                    Action::SetField(field) if (field.class, field.field) == TUNNEL_ID => {
                        packet.tunnel = number(field.value);
                    }
                    Action::SetField(field) => {
                        *packet.tags.last_mut().expect("a tag to write") =
                            number(field.value) as u16 & 0xfff;
                    }
                    // A copy for the group that has it parsed again, and goes on with table 1.
                    Action::Nicira { subtype: 42, .. } => {
                        let copy = item.nested().expect("a clone's actions");
                        let last = copy.iter().last().map(|item| item.action);
                        assert_eq!(last, Some(Action::Group(2)));
                        left.extend(self.walk(switch, in_port, packet.clone(), 1))
                    }
                    Action::Output { port, .. } if port < PCIE => {
                        left.push(((switch, port), packet.tags.clone()))
                    }
                    Action::Output { port, .. } if port > PATCH => {
                        assert!(parsed && !inside, "enters virt unparsed");
                        left.push(((switch, port), packet.tags.clone()))
                    }
                    Action::Output { port, .. } => {
                        let (peer, at) = match switch {
                            0 => ((port - PCIE) as usize, PCIE),
                            _ => (0, PCIE + switch as u32),
                        };
                        let crossing = self.crossing(peer.max(switch), &packet);
                        left.extend(self.walk(peer, at, crossing, 0));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        left
    }

    /// The packet behind the link of an sNIC: beside its bytes, only a link of type `pcie` carries something.
    fn crossing(&self, snic: usize, packet: &Packet) -> Packet {
        let tunnel = match self.links[snic - 1] {
            LinkKind::Pcie => packet.tunnel,
            _ => 0,
        };
        Packet {
            tunnel,
            ..Packet::new(&packet.tags, 0)
        }
    }

    /// The session of every bridge that is connected is up, and nothing is in flight.
    pub fn check_rest(&mut self) {
        assert_eq!(self.core.in_flight(), 0);
        let status = self.core.status();
        for (switch, view) in status.switches.iter().enumerate() {
            for (bridge, state) in [(Bridge::Virt, view.virt), (Bridge::Edge, view.edge)] {
                let up = state == oneswitch_core::BridgeState::Up;
                assert_eq!(up, self.bridge(switch, bridge).connected);
            }
        }
    }
}

type Departures = Vec<((usize, u32), Vec<u16>)>;

/// OXM_OF_TUNNEL_ID.
const TUNNEL_ID: (u16, u8) = (0x8000, 38);

#[derive(Clone)]
struct Packet {
    /// The outermost one last.
    tags: Vec<u16>,
    mark: u32,
    tunnel: u32,
}

impl Packet {
    fn new(tags: &[u16], mark: u32) -> Self {
        Self {
            tags: tags.to_vec(),
            mark,
            tunnel: 0,
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b))
}

/// The rules of an `edge` that a packet matches.
fn matching(edge: &FakeBridge, table: u8, in_port: u32, packet: &Packet) -> Vec<Flow> {
    let vid = packet.tags.last().map_or(0, |t| u32::from(*t) | 0x1000);
    let fits = |f: &&Flow| {
        let mut fields = f.matching.fields();
        f.table == table
            && fields.all(|field| {
                let mask = field.mask.map_or(u32::MAX, number);
                if matches!((field.class, field.field), (0x8000, 4 | 5)) {
                    return false; // of markers, which these packets are not
                }
                let value = match (field.class, field.field) {
                    (0x8000, 0) if table == 0 => in_port,
                    (1, 0) if table == 1 => in_port,
                    (0x8000, 6) => vid,
                    (1, 33) => packet.mark,
                    TUNNEL_ID => packet.tunnel,
                    other => panic!("{other:?}"),
                };
                value & mask == number(field.value) & mask
            })
    };
    edge.flows.iter().filter(fits).cloned().collect()
}

/// The rules, groups and meters of a bridge, in any order.
type Tables = (
    Vec<Flow>,
    BTreeMap<u32, (u8, Buckets)>,
    BTreeMap<u32, (u16, Box<[u8]>)>,
);

fn tables(bridge: &FakeBridge) -> Tables {
    let mut flows = bridge.flows.clone();
    flows.sort_unstable_by_key(|f| (f.table, f.priority, f.key.clone()));
    (flows, bridge.groups.clone(), bridge.meters.clone())
}

pub fn writes_in_port(instructions: &Instructions) -> bool {
    let mut found = false;
    instructions.for_each_action(&mut |item| {
        found |= matches!(item.action, Action::Nicira { subtype: 7, .. });
    });
    found
}

fn physical_flow(flow: &Flow, copies: usize) -> Flow {
    let timed = flow.idle != 0 || flow.hard != 0;
    let mut instructions = Vec::new();
    for instruction in flow.instructions.iter() {
        match instruction {
            Instruction::ApplyActions(actions) => {
                let list = with_flood_group(actions.iter().map(|i| (i.action, i.raw)));
                instructions.extend(Instructions::apply(&list).as_bytes());
            }
            Instruction::Meter(id) => {
                instructions.extend([0, 6, 0, 8]);
                instructions.extend(id.to_be_bytes());
            }
            other => panic!("{other:?}"),
        }
    }
    Flow {
        idle: if copies > 1 { 0 } else { flow.idle },
        flags: flow.flags | if timed { FlowMod::SEND_FLOW_REM } else { 0 },
        instructions: Instructions::from_bytes(instructions).unwrap(),
        packets: 0,
        bytes: 0,
        ..flow.clone()
    }
}

fn with_flood_group<'a>(actions: impl Iterator<Item = (Action<'a>, &'a [u8])>) -> ActionList {
    let mut bytes = Vec::new();
    for (action, raw) in actions {
        match action {
            Action::Output {
                port: port_no::FLOOD,
                ..
            } => bytes.extend(ActionList::new().group(FLOOD_GROUP).as_bytes()),
            Action::Output {
                port: port_no::ALL, ..
            } => bytes.extend(ActionList::new().group(ALL_GROUP).as_bytes()),
            _ => bytes.extend(raw),
        }
    }
    ActionList::from_bytes(bytes).unwrap()
}

fn physical_buckets(buckets: &Buckets) -> Buckets {
    let lists: Vec<ActionList> = buckets
        .iter()
        .map(|b| with_flood_group(b.actions.iter().map(|i| (i.action, i.raw))))
        .collect();
    Buckets::build(
        lists
            .iter()
            .map(|list| (0, port_no::ANY, group_no::ANY, list)),
    )
}
