//! Offloaded flows: what `edge` gets, and what it reports.

use crate::build::{output, request};
use crate::fake::Flow;
use crate::lab::{Lab, GRACE, PATCH, PCIE};
use oneswitch_core::{
    Clients, Counted, FlowKey, FlowProtocol, MoveUntil, OffloadEvent, OffloadHello, OffloadRefused,
    OffloadRequest, OffloadRewrite, OffloadTarget, WriterId,
};
use openflow13::{
    Action, ErrorCode, FlowModCommand, GroupMod, Message, MultipartReply, MultipartRequest,
    PortStats,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The port of the function, on snic0 in most tests.
pub const PORT: u32 = 2;
pub const GROUP: u32 = PORT << 16 | 7;
const RULE: u16 = 200;

pub fn client(number: u8) -> FlowKey {
    let end = |last: u8, port: u16| (IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port);
    FlowKey {
        protocol: FlowProtocol::Tcp,
        source: end(number, 1_000),
        destination: end(200, 80),
    }
}

pub fn target() -> OffloadRequest {
    let rewrite = OffloadRewrite {
        eth_src: [2, 0, 0, 0, 0, 1],
        eth_dst: [2, 0, 0, 0, 0, 2],
        source: None,
        destination: Some((IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), 8080)),
    };
    OffloadRequest::Target(7, Some(OffloadTarget::Rewrite(rewrite)))
}

pub fn install(rule: u64, number: u8) -> OffloadRequest {
    OffloadRequest::Install {
        rule,
        key: client(number),
        target: 7,
        clients: Clients::Source,
        counter: counter_of(rule),
    }
}

/// Two counters, for rules with even and with odd numbers.
pub fn counter_of(rule: u64) -> u16 {
    20 + (rule % 2) as u16
}

fn meter_of(rule: u64) -> u32 {
    PORT << 16 | u32::from(counter_of(rule))
}

pub fn hello(instance: u128, epoch: u64) -> OffloadHello {
    OffloadHello {
        port: PORT,
        owner: None,
        instance,
        epoch,
    }
}

pub fn counted(packets: u64) -> Counted {
    let bytes = packets * 100;
    Counted { packets, bytes }
}

impl Lab {
    /// A writer connects, and is welcome.
    pub fn writer(&mut self, id: u64, instance: u128, epoch: u64) {
        self.core
            .offload_hello(WriterId(id), hello(instance, epoch), self.now);
        self.run();
        let events = self.told(id);
        assert_eq!(events.first(), Some(&OffloadEvent::Welcome), "{events:?}");
    }

    /// Requests and everything that follows at once.
    pub fn offload(&mut self, id: u64, requests: &[OffloadRequest]) {
        self.core.offload_requests(WriterId(id), requests, self.now);
        self.run();
    }

    /// Returns the events for a writer, and discards those for others.
    pub fn told(&mut self, id: u64) -> Vec<OffloadEvent> {
        let events = self.core.take_offload_events().into_iter();
        let to = events.filter(|(to, _)| *to == WriterId(id));
        to.map(|(_, event)| event).collect()
    }

    /// The cached flows of all switches that were to be asked have ended.
    pub fn caches_end(&mut self) {
        self.run();
        for switch in self.core.take_cache_orders() {
            self.core.cached_flows_ended(switch, true, self.now);
        }
        self.run();
    }

    /// The rules of flows at a switch, by number.
    pub fn offloaded(&mut self, switch: usize) -> Vec<u64> {
        let flows = self.edge(switch).flows.iter();
        let ours = flows.filter(|flow| flow.priority == RULE);
        let mut ours: Vec<_> = ours.map(|flow| flow.cookie).collect();
        ours.sort_unstable();
        ours
    }

    /// A rule carries packets of 100 bytes.
    pub fn carry(&mut self, switch: usize, rule: u64, packets: u64) {
        let is_carrying = |flow: &&mut Flow| flow.cookie == rule && flow.priority == RULE;
        let flow = self.edge(switch).flows.iter_mut().find(is_carrying);
        flow.expect("a rule that is there").packets += packets;
        self.carry_cached(switch, rule, packets);
    }

    /// A cached flow of a rule carries packets.
    pub fn carry_cached(&mut self, switch: usize, rule: u64, packets: u64) {
        assert!(self.has_meter(switch, rule));
        let counted = self.edge(switch).meter_packets.entry(meter_of(rule));
        *counted.or_default() += packets;
    }

    pub fn has_meter(&mut self, switch: usize, rule: u64) -> bool {
        self.edge(switch).meters.contains_key(&meter_of(rule))
    }

    /// The controller's view of a port's packets: received from it, sent to it.
    pub fn port_packets(&mut self, number: u32) -> (u64, u64) {
        let asked = request(MultipartRequest::PortStats { port: number });
        let answers = self.ask(99, &asked);
        let stats = answers.iter().find_map(|(_, message)| match message {
            Message::MultipartReply(reply) => match &reply.body {
                MultipartReply::PortStats(stats) => stats.first().cloned(),
                _ => None,
            },
            _ => None,
        });
        let stats: PortStats = stats.expect("an answer");
        assert_eq!(stats.rx_bytes, 100 * stats.rx_packets);
        (stats.rx_packets, stats.tx_packets)
    }

    /// The outputs of a target at a switch.
    fn outputs(&mut self, switch: usize) -> Vec<u32> {
        let (_, buckets) = self.edge(switch).groups[&GROUP].clone();
        let bucket = buckets.iter().next().unwrap();
        let outputs = bucket.actions.iter().filter_map(|item| match item.action {
            Action::Output { port, .. } => Some(port),
            _ => None,
        });
        outputs.collect()
    }

    pub fn is_plain(&mut self, switch: usize) -> bool {
        let plain = |flow: &Flow| flow.table < 2;
        self.edge(switch).flows.iter().all(plain)
    }
}

/// A function at port 2 of snic0 with a connected writer, which has written its target.
pub fn lab() -> Lab {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.writer(1, 5, 1);
    lab.offload(1, &[target()]);
    lab
}

#[test]
fn an_install_is_confirmed_when_its_switch_has_it() {
    let mut lab = lab();
    lab.edge(1).slow = true;
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    assert_eq!(lab.told(1), []);
    lab.edge(1).slow = false;
    lab.run();
    assert_eq!(lab.told(1), [OffloadEvent::Installed(vec![1, 2])]);
    assert_eq!(lab.offloaded(1), [1, 2]);
    assert_eq!(lab.offloaded(0), []);
    assert!(lab.is_plain(0));
    assert_eq!(lab.outputs(1), [PATCH + PORT]);
}

#[test]
fn only_ports_with_targets_pass_the_offload_tables() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.writer(1, 5, 1);
    assert!(lab.is_plain(1));
    lab.offload(1, &[target()]);
    assert!(!lab.is_plain(1));
    lab.offload(1, &[OffloadRequest::Drop(7)]);
    assert!(lab.is_plain(1));
    assert!(!lab.edge(1).groups.contains_key(&GROUP));
}

#[test]
fn refusals_name_their_reason() {
    let mut lab = lab();
    let foreign = OffloadRequest::Install {
        rule: 4,
        key: client(4),
        target: 8,
        clients: Clients::Source,
        counter: 1,
    };
    lab.offload(1, &[install(1, 1), install(1, 2), install(2, 1), foreign]);
    let told = lab.told(1);
    let collisions = [
        (1, OffloadRefused::Collision),
        (2, OffloadRefused::Collision),
    ];
    let mut refused = collisions.to_vec();
    refused.push((4, OffloadRefused::Unsupported));
    assert_eq!(told[0], OffloadEvent::Refused(refused));
    lab.edge(1).refuse = Some(Box::new(|message| match message {
        Message::FlowMod(flow) if flow.command == FlowModCommand::Add => {
            Some(ErrorCode::FLOW_MOD_FAILED_TABLE_FULL)
        }
        _ => None,
    }));
    lab.offload(1, &[install(9, 9)]);
    let full = OffloadEvent::Refused(vec![(9, OffloadRefused::Full)]);
    assert_eq!(lab.told(1), [full]);
    lab.edge(1).refuse = None;
    lab.disconnect_bridge(1, oneswitch_core::Bridge::Edge);
    lab.offload(1, &[install(9, 9)]);
    let rate = OffloadEvent::Refused(vec![(9, OffloadRefused::Rate)]);
    assert_eq!(lab.told(1), [rate]);
}

/// The events of a removal that is effective: the total of the rule's counter, if it has changed.
pub fn effective(rule: u64, total: Option<u64>) -> Vec<OffloadEvent> {
    let carried = total.map(|packets| (counter_of(rule), counted(packets)));
    let carried = carried.map(|carried| OffloadEvent::Carried(vec![carried]));
    let events = carried.into_iter();
    events
        .chain([OffloadEvent::Effective(vec![rule])])
        .collect()
}

#[test]
fn a_removal_is_effective_when_the_cached_flows_have_ended() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.told(1);
    lab.carry(1, 1, 3);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    assert_eq!(lab.offloaded(1), []);
    // Its flow is not free.
    lab.offload(1, &[install(3, 1)]);
    let collision = OffloadEvent::Refused(vec![(3, OffloadRefused::Collision)]);
    assert_eq!(lab.told(1), [collision]);
    lab.carry_cached(1, 1, 1);
    lab.caches_end();
    assert_eq!(lab.told(1), effective(1, Some(4)));
    // Nor is an unknown rule known to have no cached flow.
    lab.offload(1, &[install(3, 1), OffloadRequest::Remove(1)]);
    assert_eq!(lab.told(1), [OffloadEvent::Installed(vec![3])]);
    lab.caches_end();
    assert_eq!(lab.told(1), effective(1, None));
    assert_eq!(lab.offloaded(1), [3]);
}

#[test]
fn a_list_waits_for_rules_that_are_leaving() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    lab.carry(1, 1, 3);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    lab.writer(2, 5, 2);
    lab.offload(2, &[OffloadRequest::List]);
    assert_eq!(lab.told(2), []);
    lab.carry_cached(1, 1, 1);
    lab.caches_end();
    let told = lab.told(2);
    assert_eq!(told[..2], effective(1, Some(4)));
    assert_eq!(listed(&told[2..]), [2]);
    // A switch that is not in service could make it wait for ever.
    lab.offload(2, &[OffloadRequest::Remove(2)]);
    lab.disconnect_bridge(1, oneswitch_core::Bridge::Edge);
    lab.offload(2, &[OffloadRequest::List]);
    assert_eq!(listed(&lab.told(2)), Vec::<u64>::new());
}

/// Returns the rules of the only event, a list.
pub fn listed(told: &[OffloadEvent]) -> Vec<u64> {
    let [OffloadEvent::Listed(listed)] = told else {
        panic!("{told:?}");
    };
    let mut rules: Vec<_> = listed.iter().map(|each| each.rule).collect();
    rules.sort_unstable();
    rules
}

#[test]
fn without_an_answer_the_cached_flows_end_by_themselves() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    for switch in lab.core.take_cache_orders() {
        lab.core.cached_flows_ended(switch, false, lab.now);
    }
    lab.told(1);
    for _ in 0..3 {
        lab.wait(Duration::from_millis(600));
        assert_eq!(lab.told(1), []);
        lab.offload(1, &[OffloadRequest::Alive]);
    }
    lab.wait(Duration::from_millis(300));
    assert_eq!(lab.told(1), effective(1, None));
}

#[test]
fn counts_are_reported_when_they_grow() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    lab.told(1);
    lab.carry(1, 2, 5);
    lab.wait(Duration::from_millis(1_100));
    let grown = [
        OffloadEvent::Counted(vec![(2, 5)]),
        OffloadEvent::Carried(vec![(counter_of(2), counted(5))]),
    ];
    assert_eq!(lab.told(1), grown);
    lab.offload(1, &[OffloadRequest::Alive]);
    lab.wait(Duration::from_millis(1_100));
    assert_eq!(lab.told(1), []);
}

#[test]
fn a_ports_counters_contain_what_was_offloaded() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    lab.carry(1, 1, 3);
    lab.carry(1, 2, 4);
    assert_eq!(lab.port_packets(PORT), (7, 7));
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    lab.caches_end();
    assert_eq!(lab.port_packets(PORT), (7, 7));
    lab.restart();
    lab.run();
    assert_eq!(lab.port_packets(PORT), (7, 7));
}

#[test]
fn an_audit_repairs_rules_and_targets() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    let before = lab.edge(1).flows.clone();
    let repairs = lab.core.status().switches[1].repairs;
    let edge = lab.edge(1);
    edge.flows.retain(|flow| flow.cookie != 1);
    let foreign = edge.flows.iter_mut().find(|f| f.cookie == 2);
    foreign.unwrap().cookie = 77; // It has replaced rule 2.
    let wrong = GroupMod {
        command: openflow13::GroupModCommand::Modify,
        group_type: openflow13::group_type::INDIRECT,
        group_id: GROUP,
        buckets: openflow13::Buckets::build([(0, u32::MAX, u32::MAX, &output(1))]),
        selection: None,
    };
    edge.groups.insert(GROUP, (wrong.group_type, wrong.buckets));
    lab.core.request_audit(lab.now);
    lab.run();
    assert_eq!(lab.offloaded(1), [1, 2]);
    assert_eq!(lab.edge(1).flows.len(), before.len());
    assert_eq!(lab.outputs(1), [PATCH + PORT]);
    assert_eq!(lab.core.status().switches[1].repairs, repairs + 4);
    lab.core.request_audit(lab.now);
    lab.offload(1, &[install(3, 3), OffloadRequest::Remove(1)]);
    assert_eq!(lab.core.status().switches[1].repairs, repairs + 4);
    assert_eq!(lab.offloaded(1), [2, 3]);
}

#[test]
fn rules_removed_while_their_switch_was_away_are_expected_there() {
    for is_foreign in [false, true] {
        let mut lab = lab();
        lab.offload(1, &[install(1, 1), install(2, 2)]);
        let repairs = lab.core.status().switches[1].repairs;
        lab.disconnect_bridge(1, oneswitch_core::Bridge::Edge);
        lab.offload(1, &[OffloadRequest::Remove(1)]);
        if is_foreign {
            // Another flow has the number of the rule that leaves.
            let other = lab.edge(1).flows.iter_mut().find(|f| f.cookie == 2);
            other.unwrap().cookie = 1;
        }
        lab.connect_bridge(1, oneswitch_core::Bridge::Edge);
        lab.run();
        assert_eq!(lab.offloaded(1), [2]);
        let found = if is_foreign { 2 } else { 0 };
        assert_eq!(lab.core.status().switches[1].repairs, repairs + found);
    }
}

#[test]
fn an_audit_repairs_meters() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.carry(1, 1, 3);
    lab.wait(Duration::from_millis(1_100));
    lab.told(1);
    let edge = lab.edge(1);
    let meter = edge.meters.remove(&meter_of(1)).unwrap();
    edge.meter_packets.clear();
    edge.flows.retain(|flow| flow.cookie != 1); // Open vSwitch deletes a meter's rules with it.
    edge.meters.insert(99, meter);
    lab.core.request_audit(lab.now);
    lab.run();
    assert_eq!(lab.offloaded(1), [1]);
    let meters: Vec<_> = lab.edge(1).meters.keys().copied().collect();
    assert_eq!(meters, [meter_of(1)]);
    lab.carry(1, 1, 2);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    lab.caches_end();
    assert_eq!(lab.told(1), effective(1, Some(5)));
    assert_eq!(lab.port_packets(PORT), (5, 5));
}

#[test]
fn a_restarted_switch_gets_its_rules_again() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    lab.carry(1, 1, 3);
    lab.offload(1, &[OffloadRequest::Remove(2)]);
    lab.wait(Duration::from_millis(1_100));
    lab.told(1);
    lab.disconnect(1);
    lab.edge(1).flows.clear();
    lab.edge(1).groups.clear();
    lab.edge(1).meters.clear();
    lab.edge(1).meter_packets.clear();
    lab.connect(1);
    lab.run();
    assert_eq!(lab.offloaded(1), [1]);
    lab.caches_end();
    assert_eq!(lab.told(1), effective(2, None));
    lab.carry(1, 1, 2);
    assert_eq!(lab.port_packets(PORT), (5, 5));
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    lab.caches_end();
    assert_eq!(lab.told(1), effective(1, Some(5)));
}

#[test]
fn rules_are_at_the_new_home_before_the_flip_and_leave_the_old_one() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.carry(1, 1, 3);
    lab.begin_move(PORT, 0, 9, MoveUntil::Prepared);
    lab.run();
    assert_eq!(lab.offloaded(0), [1]);
    assert_eq!(lab.outputs(0), [PATCH + PORT]);
    lab.offload(1, &[install(2, 2)]);
    assert_eq!(lab.offloaded(0).len(), 2);
    lab.continue_move(PORT, MoveUntil::Done);
    lab.carry(0, 1, 2);
    lab.wait(2 * GRACE);
    assert_eq!(lab.core.move_outcome(PORT), Some(Ok(())));
    assert_eq!(lab.offloaded(1), [1, 2], "its cached flows have not ended");
    lab.carry(1, 1, 1);
    lab.caches_end();
    assert_eq!(lab.offloaded(1), []);
    assert!(lab.is_plain(1));
    assert_eq!(lab.offloaded(0), [1, 2]);
    assert_eq!(lab.port_packets(PORT), (6, 6));
    lab.told(1);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    lab.caches_end();
    assert_eq!(lab.told(1), effective(1, Some(6)));
}

#[test]
fn an_aborted_move_leaves_the_goal_as_it_was() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.begin_move(PORT, 0, 9, MoveUntil::Prepared);
    lab.run();
    lab.core.abort_move(PORT, lab.now).unwrap();
    lab.caches_end();
    assert_eq!(lab.offloaded(0), []);
    assert!(lab.is_plain(0));
    assert_eq!(lab.offloaded(1), [1]);
}

#[test]
fn targets_follow_the_executor() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.execute_at(PORT, Some(0));
    assert_eq!(lab.outputs(1), [PCIE]);
    lab.execute_at(PORT, None);
    assert_eq!(lab.outputs(1), [PATCH + PORT]);
}
