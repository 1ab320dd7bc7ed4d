//! One answer from several switches.

use crate::build::{
    add, any, delete, everything, flow_stats, from, group, meter, output, request, writes_in_port,
};
use crate::lab::{Answer, Lab, GRACE};
use crate::removals::count;
use crate::verdicts::{cookies, dumped};
use oneswitch_core::MoveUntil;
use openflow13::{
    decode, group_no, meter_no, port_no, ErrorCode, FlowMod, FlowStats, FlowStatsRequest,
    GroupModCommand, Match, Message, MeterModCommand, MultipartReply, MultipartRequest, PortStats,
};

pub fn bodies(answers: Vec<Answer>) -> Vec<MultipartReply> {
    answers
        .into_iter()
        .filter_map(|(_, message)| match message {
            Message::MultipartReply(reply) => Some(reply.body),
            Message::PortStatus(_) => None,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn flows(lab: &mut Lab) -> Vec<FlowStats> {
    let mut flows = Vec::new();
    for body in bodies(lab.ask(70, &flow_stats())) {
        match body {
            MultipartReply::Flow(some) => flows.extend(some),
            other => panic!("{other:?}"),
        }
    }
    flows.sort_by_key(|f| f.cookie);
    flows
}

/// Cookie and packets of each rule.
pub fn counted(lab: &mut Lab) -> Vec<(u64, u64)> {
    let flows = flows(lab);
    flows.iter().map(|f| (f.cookie, f.packet_count)).collect()
}

/// Packets and flows.
fn aggregate(lab: &mut Lab, matching: Match) -> (u64, u32) {
    let filter = openflow13::FlowStatsRequest {
        matching,
        ..everything()
    };
    let message = request(MultipartRequest::Aggregate(filter));
    match &bodies(lab.ask(71, &message))[..] {
        [MultipartReply::Aggregate {
            packet_count,
            flow_count,
            ..
        }] => (*packet_count, *flow_count),
        other => panic!("{other:?}"),
    }
}

pub fn port_stats(lab: &mut Lab, port: u32) -> Vec<PortStats> {
    match &bodies(lab.ask(72, &request(MultipartRequest::PortStats { port })))[..] {
        [MultipartReply::PortStats(stats)] => stats.clone(),
        other => panic!("{other:?}"),
    }
}

pub fn count_port(lab: &mut Lab, switch: usize, interface: u32, packets: u64) {
    let stats = PortStats {
        rx_packets: packets,
        tx_packets: 2 * packets,
        collisions: u64::MAX,
        ..PortStats::default()
    };
    lab.edge(switch).port_stats.insert(interface, stats);
}

#[test]
fn counters_are_sums_and_every_rule_is_told_once() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    for cookie in 1..=8 {
        let matching = any().with_vlan_vid(cookie as u16);
        lab.ask(1, &Message::FlowMod(add(cookie, matching, &output(1))));
        (0..3).for_each(|s| count(&mut lab, s, cookie, 10 * cookie + s as u64));
    }
    lab.ask(1, &Message::FlowMod(add(9, from(2), &output(1))));
    count(&mut lab, 1, 9, 5);
    let mut wanted: Vec<(u64, u64)> = (1..=8).map(|c| (c, 30 * c + 3)).collect();
    wanted.push((9, 5));
    assert_eq!(counted(&mut lab), wanted);
    assert_eq!(aggregate(&mut lab, any()), (30 * 36 + 24 + 5, 9));
    assert_eq!(aggregate(&mut lab, from(2)), (5, 1));
}

#[test]
fn switches_may_list_their_rules_in_different_orders() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    for cookie in 1..=30u64 {
        // Every third rule is on one switch only.
        let matching = match cookie % 3 {
            0 => from(1 + (cookie / 3 % 3) as u32).with_vlan_vid(cookie as u16),
            _ => any().with_vlan_vid(cookie as u16),
        };
        lab.ask(1, &Message::FlowMod(add(cookie, matching, &output(1))));
    }
    let mut wanted = vec![0; 31];
    for switch in 0..3 {
        for flow in &mut lab.virt(switch).flows {
            flow.packets = (switch as u64 + 1) * 1000 + flow.cookie;
            wanted[flow.cookie as usize] += flow.packets;
        }
    }
    let wanted: Vec<(u64, u64)> = (1..).zip(wanted.split_off(1)).collect();
    assert_eq!(counted(&mut lab), wanted, "all in the same order");
    lab.virt(1).flows.rotate_left(7);
    assert_eq!(counted(&mut lab), wanted, "one begins in the middle");
    lab.virt(2).flows.reverse();
    assert_eq!(counted(&mut lab), wanted, "one the other way round");
    for at in [3, 9, 15] {
        lab.virt(0).flows.swap(at, at + 2);
    }
    assert_eq!(counted(&mut lab), wanted, "some exchanged");
}

#[test]
fn long_answers_come_in_parts_of_which_the_last_says_so() {
    let mut lab = Lab::new(2, &[0, 1]);
    for number in 0..1200u16 {
        let rule = add(number.into(), any().with_vlan_vid(number), &output(1));
        lab.send(1, 1, &Message::FlowMod(rule));
    }
    lab.run();
    lab.send(1, 7, &flow_stats());
    lab.run();
    let frames = lab.take_raw(1);
    assert!(frames.len() > 1);
    let mut rules = 0;
    for (index, frame) in frames.iter().enumerate() {
        let (header, Message::MultipartReply(reply)) = decode(frame).unwrap() else {
            panic!();
        };
        assert_eq!(header.xid, 7);
        assert_eq!(reply.more, index + 1 < frames.len());
        match reply.body {
            MultipartReply::Flow(flows) => rules += flows.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(rules, 1200);
}

#[test]
fn rules_and_their_counters_survive_moves() {
    let mut lab = Lab::new(3, &[0, 1, 1]);
    for (cookie, matching) in [(1, any()), (2, from(2)), (3, from(3)), (77, from(77))] {
        lab.ask(1, &Message::FlowMod(add(cookie, matching, &output(1))));
    }
    count(&mut lab, 0, 1, 1);
    for (cookie, packets) in [(1, 10), (2, 20), (3, 30)] {
        count(&mut lab, 1, cookie, packets);
    }
    let wanted = [(1, 11), (2, 20), (3, 30), (77, 0)];
    assert_eq!(counted(&mut lab), wanted);
    lab.move_port(2, 2, 5);
    lab.take(1);
    assert_eq!(counted(&mut lab), wanted);
    assert_eq!(cookies(lab.virt(1)), [1, 3]);
    count(&mut lab, 2, 2, 4);
    // The last port leaves switch 1.
    lab.move_port(3, 0, 5);
    lab.move_port(2, 0, 6);
    lab.take(1);
    assert_eq!(counted(&mut lab), [(1, 11), (2, 24), (3, 30), (77, 0)]);
    assert_eq!(cookies(lab.virt(1)), []);
    assert_eq!(aggregate(&mut lab, any()), (65, 4));
}

#[test]
fn an_answer_under_way_counts_nothing_twice_when_a_move_ends() {
    for kind in [
        flow_stats(),
        request(MultipartRequest::Aggregate(everything())),
    ] {
        let mut lab = Lab::new(3, &[0, 1, 2]);
        lab.ask(1, &Message::FlowMod(add(1, any(), &output(1))));
        lab.ask(1, &Message::FlowMod(add(2, from(2), &output(1))));
        (0..3).for_each(|s| count(&mut lab, s, 1, 1));
        count(&mut lab, 1, 2, 20);
        lab.begin_move(2, 0, 5, MoveUntil::Done);
        lab.run();
        lab.take(1);
        lab.virt(2).slow = true;
        lab.send(1, 5, &kind);
        lab.run();
        lab.wait(2 * GRACE);
        assert_eq!(lab.core.move_outcome(2), Some(Ok(())));
        lab.virt(2).slow = false;
        lab.run();
        let total: u64 = bodies(lab.take(1))
            .iter()
            .map(|body| match body {
                MultipartReply::Flow(flows) => flows.iter().map(|f| f.packet_count).sum(),
                MultipartReply::Aggregate { packet_count, .. } => *packet_count,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(total, 23);
        assert_eq!(counted(&mut lab), [(1, 3), (2, 20)]);
    }
}

#[test]
fn counters_stay_when_a_port_is_removed_and_when_rules_return_to_their_switches() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(2, from(2), &output(1))));
    count(&mut lab, 1, 2, 20);
    lab.ask(2, &Message::FlowMod(add(7, any(), &writes_in_port(2))));
    count(&mut lab, 0, 2, 3);
    assert_eq!(counted(&mut lab), [(2, 23), (7, 0)]);
    lab.ask(
        3,
        &Message::FlowMod(FlowMod {
            cookie: 7,
            cookie_mask: u64::MAX,
            ..delete(any())
        }),
    );
    assert_eq!(cookies(lab.virt(0)), []);
    assert_eq!(counted(&mut lab), [(2, 23)]);
    lab.core
        .remove_port(2, &Default::default(), lab.now)
        .unwrap();
    lab.run();
    lab.take(1);
    assert_eq!(cookies(lab.virt(0)), [2]);
    assert_eq!(counted(&mut lab), [(2, 23)]);
}

#[test]
fn a_port_that_moves_to_an_interface_that_counted_one_packet_more_keeps_its_counters() {
    let mut lab = Lab::new(2, &[0, 1]);
    count_port(&mut lab, 1, 2, 100);
    count_port(&mut lab, 0, 5, 101);
    lab.begin_move(2, 0, 5, MoveUntil::Done);
    lab.run();
    lab.wait(2 * GRACE);
    lab.take(1);
    count_port(&mut lab, 0, 5, 108);
    assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 107);
}

#[test]
fn port_statistics_survive_a_move_and_what_the_interfaces_counted_before() {
    let mut lab = Lab::new(2, &[0, 1]);
    count_port(&mut lab, 1, 2, 100);
    count_port(&mut lab, 0, 5, 1000);
    assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 100);
    lab.begin_move(2, 0, 5, MoveUntil::Flipped);
    lab.run();
    lab.take(1);
    // Both interfaces carry packets now.
    count_port(&mut lab, 0, 5, 1010);
    count_port(&mut lab, 1, 2, 103);
    assert_eq!(port_stats(&mut lab, 2)[0].rx_packets, 113);
    lab.finish_move(2);
    lab.take(1);
    let stats = port_stats(&mut lab, 2);
    assert_eq!((stats.len(), stats[0].port_no), (1, 2));
    assert_eq!((stats[0].rx_packets, stats[0].tx_packets), (113, 226));
    assert_eq!(stats[0].collisions, u64::MAX, "not kept");
    let all: Vec<u32> = port_stats(&mut lab, port_no::ANY)
        .iter()
        .map(|s| s.port_no)
        .collect();
    assert_eq!(all, [1, 2]);
    assert_eq!(port_stats(&mut lab, 9), []);
}

#[test]
fn groups_meters_and_tables_are_sums_over_all_switches() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &group(GroupModCommand::Add, 5, &[1, 2]));
    lab.ask(2, &meter(MeterModCommand::Add, 6, 100));
    for switch in 0..2 {
        let packets = 3 + switch as u64;
        lab.virt(switch).group_packets.insert(5, packets);
        lab.virt(switch).meter_packets.insert(6, packets);
        lab.virt(switch).lookups = 100 * packets;
    }
    lab.ask(3, &Message::FlowMod(add(1, any(), &output(1))));
    match &bodies(lab.ask(
        4,
        &request(MultipartRequest::Group {
            group: group_no::ALL,
        }),
    ))[..]
    {
        [MultipartReply::Group(groups)] => {
            assert_eq!(groups.len(), 1, "the flood group is hidden");
            assert_eq!(
                (groups[0].packet_count, groups[0].buckets[1].byte_count),
                (7, 700)
            );
        }
        other => panic!("{other:?}"),
    }
    match &bodies(lab.ask(
        5,
        &request(MultipartRequest::Meter {
            meter: meter_no::ALL,
        }),
    ))[..]
    {
        [MultipartReply::Meter(meters)] => assert_eq!(meters[0].packet_in_count, 7),
        other => panic!("{other:?}"),
    }
    match &bodies(lab.ask(6, &request(MultipartRequest::Table)))[..] {
        [MultipartReply::Table(tables)] => {
            assert_eq!((tables[0].active_count, tables[0].lookup_count), (1, 700));
            assert_eq!(tables[1].active_count, 0);
        }
        other => panic!("{other:?}"),
    }
    match &bodies(lab.ask(7, &request(MultipartRequest::GroupDesc)))[..] {
        [MultipartReply::GroupDesc(groups)] => assert_eq!(groups.len(), 1),
        other => panic!("{other:?}"),
    }
    let unknown = lab.ask(8, &request(MultipartRequest::Meter { meter: 9 }));
    assert!(matches!(&unknown[..], [(h, Message::Error(e))]
        if h.xid == 8 && e.error == ErrorCode::METER_MOD_FAILED_UNKNOWN_METER));
}

#[test]
fn a_request_for_one_meter_gets_that_meter() {
    let mut lab = Lab::new(2, &[0, 1]);
    for id in [6, 7] {
        lab.ask(id, &meter(MeterModCommand::Add, id, 100));
    }
    let answer = lab.ask(8, &request(MultipartRequest::Meter { meter: 7 }));
    match &bodies(answer)[..] {
        [MultipartReply::Meter(meters)] => {
            let ids: Vec<u32> = meters.iter().map(|meter| meter.meter_id).collect();
            assert_eq!(ids, [7]);
        }
        other => panic!("{other:?}"),
    }
    let answer = lab.ask(9, &request(MultipartRequest::MeterConfig { meter: 6 }));
    match &bodies(answer)[..] {
        [MultipartReply::MeterConfig(meters)] => assert_eq!(meters.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_switch_that_dies_with_half_an_answer_given_spoils_nothing() {
    let mut lab = Lab::new(2, &[0, 1]);
    for cookie in 1..=8 {
        let matching = from(2).with_vlan_vid(cookie as u16);
        lab.send(1, 1, &Message::FlowMod(add(cookie, matching, &output(1))));
    }
    lab.run();
    // Switch 1 gives the first part of its answer only.
    lab.send(1, 2, &flow_stats());
    lab.flush();
    lab.virt(1).work();
    let part = lab.virt(1).output.remove(0);
    lab.virt(1).output.clear();
    lab.core
        .switch_message(1, oneswitch_core::Bridge::Virt, &part, lab.now);
    lab.disconnect(1);
    lab.run();
    let answers: Vec<Answer> = lab.take(1);
    assert_eq!(dumped(&answers), (1..=8).collect::<Vec<u64>>());
}

#[test]
fn rules_of_a_switch_that_answered_and_died_are_told_once() {
    let mut lab = Lab::new(3, &[0, 1, 2]);
    lab.ask(1, &Message::FlowMod(add(1, from(2), &output(1))));
    count(&mut lab, 1, 1, 9);
    lab.virt(2).slow = true;
    lab.send(1, 2, &flow_stats());
    lab.run();
    lab.disconnect(1);
    lab.virt(2).slow = false;
    lab.run();
    assert_eq!(dumped(&lab.take(1)), [1]);
}

#[test]
fn requests_are_answered_without_any_switch() {
    let mut lab = Lab::dark(2, &[0, 1]);
    lab.controller_up(1);
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(1))));
    let bodies = [
        MultipartRequest::Desc,
        MultipartRequest::Flow(everything()),
        MultipartRequest::Aggregate(everything()),
        MultipartRequest::Table,
        MultipartRequest::PortStats { port: port_no::ANY },
        MultipartRequest::Queue {
            port: port_no::ANY,
            queue: u32::MAX,
        },
        MultipartRequest::Group {
            group: group_no::ALL,
        },
        MultipartRequest::GroupDesc,
        MultipartRequest::GroupFeatures,
        MultipartRequest::Meter {
            meter: meter_no::ALL,
        },
        MultipartRequest::MeterConfig {
            meter: meter_no::ALL,
        },
        MultipartRequest::MeterFeatures,
        MultipartRequest::TableFeatures(Box::default()),
        MultipartRequest::PortDesc,
    ];
    for (xid, body) in (10..).zip(bodies) {
        let answers = lab.ask(xid, &request(body));
        assert_eq!(answers.len(), 1, "{xid}");
        assert_eq!(answers[0].0.xid, xid);
    }
    assert_eq!(flows(&mut lab).len(), 1);
}

#[test]
fn groups_and_meters_keep_their_counters_when_a_switch_executes_no_more() {
    for remove in [false, true] {
        let mut lab = Lab::new(2, &[0, 1]);
        lab.ask(1, &group(GroupModCommand::Add, 5, &[1, 2]));
        lab.ask(2, &meter(MeterModCommand::Add, 6, 100));
        for switch in 0..2 {
            lab.virt(switch).group_packets.insert(5, 3);
            lab.virt(switch).meter_packets.insert(6, 3);
        }
        if remove {
            lab.core
                .remove_port(2, &Default::default(), lab.now)
                .unwrap();
            lab.run();
        } else {
            lab.move_port(2, 0, 5);
        }
        assert!(!lab.virt(1).groups.contains_key(&5));
        for restarted in [false, true] {
            if restarted {
                lab.check_journal();
                lab.restart();
                lab.run();
            }
            lab.take(1);
            let message = request(MultipartRequest::Group { group: 5 });
            match &bodies(lab.ask(4, &message))[..] {
                [MultipartReply::Group(groups)] => assert_eq!(groups[0].packet_count, 6),
                other => panic!("{other:?}"),
            }
            let message = request(MultipartRequest::Meter { meter: 6 });
            match &bodies(lab.ask(5, &message))[..] {
                [MultipartReply::Meter(meters)] => assert_eq!(meters[0].packet_in_count, 6),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn nothing_outputs_to_a_hidden_group() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &Message::FlowMod(add(1, any(), &output(port_no::FLOOD))));
    let out_group = 0xffff_fe00;
    let filter = FlowStatsRequest {
        out_group,
        ..everything()
    };
    let asked = lab.ask(2, &request(MultipartRequest::Flow(filter.clone())));
    assert_eq!(bodies(asked), [MultipartReply::Flow(vec![])]);
    (0..2).for_each(|s| count(&mut lab, s, 1, 5));
    let asked = lab.ask(3, &request(MultipartRequest::Aggregate(filter)));
    let nothing = MultipartReply::Aggregate {
        packet_count: 0,
        byte_count: 0,
        flow_count: 0,
    };
    assert_eq!(bodies(asked), [nothing]);
    let message = FlowMod {
        out_group,
        ..delete(any())
    };
    assert_eq!(lab.ask(4, &Message::FlowMod(message)), []);
    assert_eq!(lab.cookies(), [vec![1], vec![1]]);
}

#[test]
fn an_answer_is_about_the_time_of_the_request() {
    let mut lab = Lab::new(2, &[0, 1]);
    for cookie in 1..=4 {
        let matching = any().with_vlan_vid(cookie as u16);
        lab.send(1, 1, &Message::FlowMod(add(cookie, matching, &output(1))));
    }
    lab.run();
    (0..2).for_each(|s| count(&mut lab, s, 1, 5));
    lab.send(1, 2, &flow_stats());
    lab.send(1, 3, &request(MultipartRequest::Aggregate(everything())));
    lab.send(1, 4, &Message::FlowMod(delete(any().with_vlan_vid(1))));
    lab.send(
        1,
        5,
        &Message::FlowMod(add(22, any().with_vlan_vid(2), &output(1))),
    );
    lab.send(
        1,
        6,
        &Message::FlowMod(add(9, any().with_vlan_vid(9), &output(1))),
    );
    lab.run();
    let answers = lab.take(1);
    let told = bodies(answers.clone());
    assert_eq!(dumped(&answers[..answers.len() - 1]), [1, 2, 3, 4]);
    assert!(matches!(
        told.last(),
        Some(MultipartReply::Aggregate {
            packet_count: 10,
            flow_count: 4,
            ..
        })
    ));
    assert_eq!(dumped(&lab.ask(7, &flow_stats())), [3, 4, 9, 22]);
}
