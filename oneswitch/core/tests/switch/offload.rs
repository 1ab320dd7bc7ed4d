//! Offloaded flows: what `edge` gets, and what their writer is told.

use crate::build::{output, request};
use crate::fake::Flow;
use crate::lab::{Lab, GRACE, PATCH, PCIE};
use oneswitch_core::{
    Claim, Clients, Counted, FlowKey, FlowProtocol, MoveUntil, OffloadEvent, OffloadHello,
    OffloadRefused, OffloadRequest, OffloadTarget, WriterId,
};
use openflow13::{
    Action, ErrorCode, FlowModCommand, GroupMod, Message, MultipartReply, MultipartRequest,
    PortStats,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The port of the function, on snic0 in most tests.
pub const PORT: u32 = 2;
const GROUP: u32 = PORT << 16 | 7;
const RULE: u16 = 200;
const SHADOW: u16 = 300;
/// Longer than anything takes without an answer.
const LONG: Duration = Duration::from_millis(2_100);

pub fn client(number: u8) -> FlowKey {
    let end = |last: u8, port: u16| (IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port);
    FlowKey {
        protocol: FlowProtocol::Tcp,
        source: end(number, 1_000),
        destination: end(200, 80),
    }
}

pub fn target() -> OffloadRequest {
    let rewrite = OffloadTarget {
        eth_src: [2, 0, 0, 0, 0, 1],
        eth_dst: [2, 0, 0, 0, 0, 2],
        source: None,
        destination: Some((IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), 8080)),
    };
    OffloadRequest::Target(7, Some(rewrite))
}

pub fn install(rule: u64, number: u8) -> OffloadRequest {
    OffloadRequest::Install {
        rule,
        key: client(number),
        target: 7,
        clients: Clients::Source,
    }
}

pub fn hello(instance: u128, epoch: u64) -> OffloadHello {
    OffloadHello {
        port: PORT,
        owner: None,
        instance,
        epoch,
    }
}

fn counted(packets: u64) -> Counted {
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

    /// The rules and shadows of flows at a switch: cookie and priority.
    pub fn offloaded(&mut self, switch: usize) -> Vec<(u64, u16)> {
        let flows = self.edge(switch).flows.iter();
        let ours = flows.filter(|flow| flow.priority >= RULE);
        let mut ours: Vec<_> = ours.map(|flow| (flow.cookie, flow.priority)).collect();
        ours.sort_unstable();
        ours
    }

    /// A rule carries packets of 100 bytes.
    pub fn carry(&mut self, switch: usize, rule: u64, packets: u64) {
        let is_carrying = |flow: &&mut Flow| flow.cookie == rule && flow.priority == RULE;
        let flow = self.edge(switch).flows.iter_mut().find(is_carrying);
        let flow = flow.expect("a rule that is there");
        flow.packets += packets;
        flow.bytes += 100 * packets;
        let metered = self.edge(switch).meter_packets.entry(PORT).or_default();
        *metered += packets;
    }

    /// The controller's view of a port's packets: received from it, sent to it.
    pub fn port_packets(&mut self, number: u32) -> (u64, u64) {
        let asked = request(MultipartRequest::PortStats { port: number });
        let answers = self.ask(99, &asked);
        let stats = answers.iter().find_map(|(_, message)| match message {
            Message::MultipartReply(reply) => match &reply.body {
                MultipartReply::PortStats(stats) => stats.first().copied(),
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

    fn is_plain(&mut self, switch: usize) -> bool {
        let plain = |flow: &Flow| flow.table < 2;
        self.edge(switch).flows.iter().all(plain)
    }
}

/// A function at port 2 of snic0 with a connected writer, which has written its target.
fn lab() -> Lab {
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
    assert_eq!(lab.offloaded(1), [(1, RULE), (2, RULE)]);
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

#[test]
fn a_removal_is_effective_when_the_cached_flows_have_ended() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.told(1);
    lab.carry(1, 1, 3);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    assert_eq!(lab.offloaded(1), [(1, RULE), (1, SHADOW)]);
    assert_eq!(lab.told(1), []);
    lab.carry(1, 1, 1); // By a cached flow.
    lab.caches_end();
    let removed = OffloadEvent::Removed(vec![(1, counted(4))]);
    assert_eq!(
        lab.told(1),
        [removed.clone(), OffloadEvent::Effective(vec![1])]
    );
    // Until the counts are forgotten, the rule is kept and is listed.
    assert_eq!(lab.offloaded(1), [(1, RULE), (1, SHADOW)]);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    assert_eq!(lab.told(1), [removed, OffloadEvent::Effective(vec![1])]);
    lab.offload(1, &[OffloadRequest::Forget(1)]);
    assert_eq!(lab.offloaded(1), []);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    let unknown = OffloadEvent::Removed(vec![(1, counted(0))]);
    assert_eq!(lab.told(1), [unknown, OffloadEvent::Effective(vec![1])]);
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
    let removed = OffloadEvent::Removed(vec![(1, counted(0))]);
    assert_eq!(lab.told(1), [removed, OffloadEvent::Effective(vec![1])]);
}

#[test]
fn counts_are_reported_when_they_grow() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    lab.told(1);
    lab.carry(1, 2, 5);
    lab.wait(Duration::from_millis(1_100));
    let grown = OffloadEvent::Counted(vec![(2, counted(5))]);
    assert_eq!(lab.told(1), [grown]);
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
    // Asked for before the rule is forgotten, answered afterwards.
    lab.edge(1).slow = true;
    let asked = request(MultipartRequest::PortStats { port: PORT });
    lab.send(1, 5, &asked);
    lab.offload(1, &[OffloadRequest::Forget(1)]);
    lab.edge(1).slow = false;
    lab.run();
    let answers = lab.take(1);
    let told: Vec<_> = answers
        .iter()
        .filter_map(|(_, message)| match message {
            Message::MultipartReply(reply) => Some(reply.body.clone()),
            _ => None,
        })
        .collect();
    let [MultipartReply::PortStats(stats)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(stats[0].rx_packets, 7);
    assert_eq!(lab.port_packets(PORT), (7, 7));
    lab.restart();
    lab.run();
    assert_eq!(lab.port_packets(PORT), (7, 7));
}

#[test]
fn older_writers_are_turned_away() {
    let mut lab = lab();
    let now = lab.now;
    let turned_away = |lab: &mut Lab, id, hello: OffloadHello| {
        lab.core.offload_hello(WriterId(id), hello, now);
        lab.run();
        match lab.told(id).as_slice() {
            [OffloadEvent::Error(error), OffloadEvent::Close] => error.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(turned_away(&mut lab, 2, hello(5, 0)), "stale-writer");
    assert_eq!(turned_away(&mut lab, 3, hello(6, 9)), "stale-writer");
    let unknown = OffloadHello {
        port: 88,
        ..hello(5, 1)
    };
    assert_eq!(turned_away(&mut lab, 4, unknown), "port-unknown");
    let claim = Claim {
        owner: Some("nfagent/a/b".into()),
        force: false,
    };
    lab.core.give_port(PORT, claim).unwrap();
    assert_eq!(turned_away(&mut lab, 5, hello(5, 2)), "port-owned");
    let owner = OffloadHello {
        owner: Some("nfagent/a/b".into()),
        ..hello(5, 2)
    };
    lab.core.offload_hello(WriterId(6), owner, now);
    let (to, events): (Vec<_>, Vec<_>) = lab.core.take_offload_events().into_iter().unzip();
    assert_eq!(to, [1, 1, 6].map(WriterId));
    assert_eq!(events[1..], [OffloadEvent::Close, OffloadEvent::Welcome]);
    // The former writer's requests are void.
    lab.offload(1, &[install(1, 1)]);
    assert_eq!(lab.offloaded(1), []);
}

#[test]
fn another_instance_finds_nothing() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.carry(1, 1, 3);
    lab.core.offload_closed(WriterId(1), lab.now);
    lab.writer(2, 6, 1);
    lab.offload(2, &[OffloadRequest::List]);
    assert_eq!(lab.told(2), [OffloadEvent::Listed(vec![])]);
    lab.caches_end();
    assert_eq!(lab.told(2), []);
    assert_eq!(lab.offloaded(1), []);
    assert!(!lab.edge(1).groups.contains_key(&GROUP));
    assert_eq!(lab.port_packets(PORT), (3, 3));
}

#[test]
fn rules_without_a_writer_are_removed() {
    for stops in [false, true] {
        let mut lab = lab();
        lab.offload(1, &[install(1, 1)]);
        lab.carry(1, 1, 3);
        if !stops {
            lab.core.offload_closed(WriterId(1), lab.now);
        }
        lab.wait(Duration::from_millis(2_400));
        assert_eq!(lab.offloaded(1), [(1, RULE)]);
        lab.wait(Duration::from_millis(500));
        assert_eq!(lab.offloaded(1), [(1, RULE), (1, SHADOW)]);
        lab.wait(LONG);
        assert_eq!(lab.offloaded(1), []);
        assert!(lab.is_plain(1));
        assert_eq!(lab.port_packets(PORT), (3, 3));
    }
}

#[test]
fn a_writer_that_returns_keeps_its_rules() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.core.offload_closed(WriterId(1), lab.now);
    lab.wait(Duration::from_secs(2));
    lab.writer(2, 5, 2);
    lab.offload(2, &[OffloadRequest::List]);
    let told = lab.told(2);
    let [OffloadEvent::Listed(listed)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!((listed[0].rule, listed[0].is_removed), (1, false));
    lab.wait(Duration::from_secs(2));
    assert_eq!(lab.offloaded(1), [(1, RULE)]);
}

#[test]
fn a_restart_adopts_rules_and_removals() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1), install(2, 2)]);
    lab.carry(1, 1, 3);
    lab.carry(1, 2, 4);
    lab.offload(1, &[OffloadRequest::Remove(2)]);
    let before = lab.edge(1).flows.clone();
    lab.restart();
    lab.core.offload_hello(WriterId(2), hello(5, 2), lab.now);
    assert_eq!(lab.told(2), [], "the switch has not told its rules");
    lab.run();
    assert_eq!(lab.told(2), [OffloadEvent::Welcome]);
    assert_eq!(lab.edge(1).flows, before);
    lab.offload(2, &[OffloadRequest::List]);
    let told = lab.told(2);
    let [OffloadEvent::Listed(listed)] = told.as_slice() else {
        panic!("{told:?}");
    };
    let mut listed = listed.clone();
    listed.sort_by_key(|each| each.rule);
    assert_eq!(listed.len(), 2);
    assert_eq!(
        (listed[0].is_removed, listed[0].counted),
        (false, counted(3))
    );
    assert_eq!(
        (listed[1].is_removed, listed[1].counted),
        (true, counted(4))
    );
    assert_eq!((listed[1].key, listed[1].target), (client(2), 7));
    lab.caches_end();
    let removed = OffloadEvent::Removed(vec![(2, counted(4))]);
    assert_eq!(lab.told(2), [removed, OffloadEvent::Effective(vec![2])]);
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
    let mut foreign = edge.flows.iter().find(|f| f.cookie == 2).unwrap().clone();
    foreign.cookie = 77;
    foreign.priority = SHADOW;
    edge.flows.push(foreign);
    let wrong = GroupMod {
        command: openflow13::GroupModCommand::Modify,
        group_type: openflow13::group_type::INDIRECT,
        group_id: GROUP,
        buckets: openflow13::Buckets::build([(0, u32::MAX, u32::MAX, &output(1))]),
    };
    edge.groups.insert(GROUP, (wrong.group_type, wrong.buckets));
    lab.core.request_audit(lab.now);
    lab.run();
    assert_eq!(lab.offloaded(1), [(1, RULE), (2, RULE)]);
    assert_eq!(lab.edge(1).flows.len(), before.len());
    assert_eq!(lab.outputs(1), [PATCH + PORT]);
    assert_eq!(lab.core.status().switches[1].repairs, repairs + 3);
    lab.core.request_audit(lab.now);
    lab.offload(1, &[install(3, 3), OffloadRequest::Remove(1)]);
    assert_eq!(lab.core.status().switches[1].repairs, repairs + 3);
    assert_eq!(lab.offloaded(1).len(), 4);
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
    assert_eq!(lab.offloaded(1), [(1, RULE)]);
    lab.caches_end();
    let removed = OffloadEvent::Removed(vec![(2, counted(0))]);
    assert_eq!(lab.told(1), [removed, OffloadEvent::Effective(vec![2])]);
    lab.carry(1, 1, 2);
    assert_eq!(lab.port_packets(PORT), (5, 5));
    lab.offload(1, &[OffloadRequest::Remove(1), OffloadRequest::Forget(2)]);
    lab.caches_end();
    let removed = OffloadEvent::Removed(vec![(1, counted(5))]);
    assert_eq!(lab.told(1), [removed, OffloadEvent::Effective(vec![1])]);
}

#[test]
fn rules_are_at_the_new_home_before_the_flip_and_leave_the_old_one() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.carry(1, 1, 3);
    lab.begin_move(PORT, 0, 9, MoveUntil::Prepared);
    lab.run();
    assert_eq!(lab.offloaded(0), [(1, RULE)]);
    assert_eq!(lab.outputs(0), [PATCH + PORT]);
    lab.offload(1, &[install(2, 2)]);
    assert_eq!(lab.offloaded(0).len(), 2);
    lab.continue_move(PORT, MoveUntil::Done);
    lab.carry(0, 1, 2);
    lab.wait(2 * GRACE);
    assert_eq!(lab.core.move_outcome(PORT), Some(Ok(())));
    assert_eq!(
        lab.offloaded(1),
        [(1, RULE), (2, RULE)],
        "its counts are not final"
    );
    lab.carry(1, 1, 1);
    lab.caches_end();
    assert_eq!(lab.offloaded(1), []);
    assert!(lab.is_plain(1));
    assert_eq!(lab.offloaded(0), [(1, RULE), (2, RULE)]);
    assert_eq!(lab.port_packets(PORT), (6, 6));
    lab.told(1);
    lab.offload(1, &[OffloadRequest::Remove(1)]);
    lab.caches_end();
    let removed = OffloadEvent::Removed(vec![(1, counted(6))]);
    assert_eq!(lab.told(1), [removed, OffloadEvent::Effective(vec![1])]);
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
    assert_eq!(lab.offloaded(1), [(1, RULE)]);
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

#[test]
fn a_deleted_port_takes_its_rules_along() {
    let mut lab = lab();
    lab.offload(1, &[install(1, 1)]);
    lab.told(1);
    lab.core
        .remove_port(PORT, &Claim::default(), lab.now)
        .unwrap();
    lab.run();
    let told = lab.told(1);
    assert_eq!(told[0], OffloadEvent::Reset);
    assert_eq!(told.last(), Some(&OffloadEvent::Close));
    assert_eq!(lab.offloaded(1), []);
    assert!(lab.is_plain(1));
    assert!(!lab.edge(1).groups.contains_key(&GROUP));
}

#[test]
fn a_writer_waits_while_the_switch_has_much_to_confirm() {
    let mut lab = lab();
    lab.edge(1).slow = true;
    let key = |n: u16| FlowKey {
        source: (client(1).source.0, n),
        ..client(1)
    };
    let requests: Vec<_> = (0..4_100)
        .map(|n: u16| OffloadRequest::Install {
            rule: n.into(),
            key: key(n),
            target: 7,
            clients: Clients::Source,
        })
        .collect();
    assert!(lab.core.takes_offload_of(WriterId(1)));
    lab.offload(1, &requests);
    assert!(!lab.core.takes_offload_of(WriterId(1)));
    // Its silence is not its own.
    lab.wait(Duration::from_secs(5));
    lab.edge(1).slow = false;
    lab.run();
    assert!(lab.core.takes_offload_of(WriterId(1)));
    assert_eq!(lab.offloaded(1).len(), 4_100);
}
