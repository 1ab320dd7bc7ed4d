//! Questions of a controller about the switch as a whole, and those that it may not ask.

use crate::build::{add, any, everything, from, output, request};
use crate::lab::{port, Answer, Lab};
use crate::statistics::{bodies, port_stats};
use crate::verdicts::dumped;
use oneswitch_core::{Bridge, ControllerId, ControllerRole};
use openflow13::{
    config, encode, port_no, ErrorCode, ErrorMessage, Experimenter, FlowStatsRequest, Hello,
    Message, MultipartReply, MultipartRequest, PortStats, PortStatus, QueueStats,
};

fn refused(answers: &[Answer]) -> Option<(u32, ErrorCode)> {
    match answers {
        [(header, Message::Error(e))] => Some((header.xid, e.error)),
        _ => None,
    }
}

#[test]
fn features_are_the_hubs_once_they_are_known() {
    let mut lab = Lab::dark(2, &[0, 1]);
    lab.controller_up(1);
    let features = |lab: &mut Lab| match &lab.ask(5, &Message::FeaturesRequest)[..] {
        [(header, Message::FeaturesReply(f))] => {
            let numbers = (header.xid, f.datapath_id, f.n_buffers, f.auxiliary_id);
            assert_eq!(numbers, (5, 0xa1, 0, 0));
            (f.n_tables, f.capabilities)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(features(&mut lab), (254, 0x4f));
    (0..2).for_each(|switch| lab.connect(switch));
    lab.run();
    lab.take(1);
    assert_eq!(features(&mut lab), (254, 0x4f));
}

#[test]
fn echoes_come_back_and_what_is_not_a_request_is_refused() {
    let mut lab = Lab::new(1, &[0]);
    let answers = lab.ask(6, &Message::EchoRequest(vec![1, 2, 3]));
    assert!(matches!(&answers[..], [(header, Message::EchoReply(data))]
        if header.xid == 6 && data[..] == [1, 2, 3]));
    let error = ErrorMessage {
        error: ErrorCode::BAD_REQUEST_BAD_TYPE,
        experimenter: None,
        data: Box::default(),
    };
    assert_eq!(lab.ask(7, &Message::EchoReply(vec![1])), []);
    let experimenter = Message::Experimenter(Experimenter {
        vendor: 0x2320,
        subtype: 1,
        body: Box::default(),
    });
    for (message, error) in [
        (experimenter, ErrorCode::BAD_REQUEST_BAD_EXP_TYPE),
        (Message::BarrierReply, ErrorCode::BAD_REQUEST_BAD_TYPE),
        (Message::Error(error), ErrorCode::BAD_REQUEST_BAD_TYPE),
        (
            Message::Hello(Hello::new(0x10)),
            ErrorCode::BAD_REQUEST_BAD_TYPE,
        ),
    ] {
        assert_eq!(refused(&lab.ask(8, &message)), Some((8, error)));
    }
    assert_eq!(
        lab.core.controller_role(ControllerId(1)),
        Some(ControllerRole::Equal)
    );
    assert_eq!(lab.core.controller_role(ControllerId(2)), None);
}

#[test]
fn what_no_switch_can_read_is_refused_with_or_without_one() {
    // An OXM of no class that there is.
    let mut frame = encode(9, &Message::FlowMod(add(1, from(1), &output(1)))).unwrap();
    frame[52] = 0x12;
    let mut errors = Vec::new();
    for connected in [false, true] {
        let mut lab = Lab::dark(1, &[0]);
        if connected {
            lab.connect(0);
        }
        lab.controller_up(1);
        lab.run();
        lab.take(1);
        lab.send_raw(1, &frame);
        lab.run();
        errors.push(refused(&lab.take(1)).unwrap());
        assert!(lab.virt(0).flows.is_empty());
    }
    assert_eq!(errors[0], errors[1]);
    assert_eq!(errors[0].0, 9);
}

#[test]
fn an_interface_that_somebody_takes_down_takes_its_port_down() {
    let mut lab = Lab::new(2, &[0, 1]);
    let described =
        |lab: &mut Lab| match &bodies(lab.ask(4, &request(MultipartRequest::PortDesc)))[..] {
            [MultipartReply::PortDesc(ports)] => ports.iter().map(|p| p.config).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
    for (turned, expected) in [(config::PORT_DOWN, [0, config::PORT_DOWN]), (0, [0, 0])] {
        let changed = openflow13::Port {
            config: turned,
            ..port(2, "if2")
        };
        let status = PortStatus {
            reason: PortStatus::MODIFY,
            port: changed,
        };
        lab.edge(1).ports.insert(2, changed);
        let frame = encode(0, &Message::PortStatus(status)).unwrap();
        lab.core.switch_message(1, Bridge::Edge, &frame, lab.now);
        lab.run();
        assert_eq!(described(&mut lab), expected);
    }
}

#[test]
fn queues_are_told_of_by_the_virtual_port() {
    let mut lab = Lab::new(2, &[0, 1]);
    let queue = |port_no, tx_packets| QueueStats {
        port_no,
        queue_id: 3,
        tx_bytes: 0,
        tx_packets,
        tx_errors: 0,
        duration_sec: 0,
        duration_nsec: 0,
    };
    lab.edge(0).queues = vec![queue(1, 10), queue(2, 20)];
    lab.edge(1).queues = vec![queue(1, 11), queue(2, 21)];
    let mut ask = |port| {
        let body = MultipartRequest::Queue { port, queue: 3 };
        let answers = lab.ask(5, &request(body));
        if let Some((_, error)) = refused(&answers) {
            return Err(error);
        }
        match &bodies(answers)[..] {
            [MultipartReply::Queue(queues)] => {
                let told = queues.iter().map(|q| (q.port_no, q.queue_id, q.tx_packets));
                Ok(told.collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(port_no::ANY), Ok(vec![(1, 3, 10), (2, 3, 21)]));
    assert_eq!(ask(2), Ok(vec![(2, 3, 21)]));
    assert_eq!(ask(3), Err(ErrorCode::QUEUE_OP_FAILED_BAD_PORT));
}

#[test]
fn the_local_port_is_the_hubs() {
    let mut lab = Lab::new(2, &[0, 1]);
    for (switch, packets) in [(0, 5), (1, 6)] {
        lab.virt(switch)
            .ports
            .insert(port_no::LOCAL, port(port_no::LOCAL, "virt"));
        let stats = PortStats {
            rx_packets: packets,
            ..PortStats::default()
        };
        lab.virt(switch).port_stats.insert(port_no::LOCAL, stats);
    }
    let stats = port_stats(&mut lab, port_no::LOCAL);
    let told: Vec<_> = stats.iter().map(|s| (s.port_no, s.rx_packets)).collect();
    assert_eq!(told, [(port_no::LOCAL, 5)]);
}

#[test]
fn features_of_tables_and_meters_are_the_hubs_part_by_part() {
    let mut lab = Lab::new(2, &[0, 1]);
    (lab.virt(0).max_meter, lab.virt(1).max_meter) = (60, 70);
    let answers = lab.ask(8, &request(MultipartRequest::MeterFeatures));
    assert!(
        matches!(&answers[..], [(header, Message::MultipartReply(reply))]
        if header.xid == 8 && !reply.more
            && matches!(&reply.body, MultipartReply::MeterFeatures(f) if f.max_meter == 60))
    );
    let asked = MultipartRequest::TableFeatures(vec![0; 64].into());
    let answers = lab.ask(9, &request(asked));
    let more: Vec<bool> = answers
        .iter()
        .map(|(header, message)| match message {
            Message::MultipartReply(reply) if header.xid == 9 => reply.more,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(more, [true, false]);
}

#[test]
fn rules_that_flood_are_found_by_their_output() {
    let mut lab = Lab::new(2, &[0, 1]);
    for (cookie, port) in [(1, port_no::FLOOD), (2, port_no::ALL), (3, 2)] {
        let matching = any().with_vlan_vid(cookie as u16);
        lab.ask(1, &Message::FlowMod(add(cookie, matching, &output(port))));
    }
    for switch in 0..2 {
        for flow in &mut lab.virt(switch).flows {
            (flow.packets, flow.bytes) = (flow.cookie, 100 * flow.cookie);
        }
    }
    let filter = |out_port| FlowStatsRequest {
        out_port,
        ..everything()
    };
    for (out_port, cookies) in [
        (port_no::FLOOD, vec![1]),
        (port_no::ALL, vec![2]),
        (2, vec![3]),
        (port_no::ANY, vec![1, 2, 3]),
        (7, vec![]),
    ] {
        let flows = lab.ask(2, &request(MultipartRequest::Flow(filter(out_port))));
        assert_eq!(dumped(&flows), cookies, "{out_port:#x}");
        let sum: u64 = cookies.iter().sum::<u64>() * 2;
        match &bodies(lab.ask(3, &request(MultipartRequest::Aggregate(filter(out_port)))))[..] {
            [MultipartReply::Aggregate {
                packet_count,
                byte_count,
                flow_count,
            }] => assert_eq!(
                (*packet_count, *byte_count, *flow_count as usize),
                (sum, 100 * sum, cookies.len()),
                "{out_port:#x}"
            ),
            other => panic!("{other:?}"),
        }
    }
}

/// Why each port is down.
fn reasons(lab: &Lab) -> Vec<Option<String>> {
    let ports = lab.core.ports();
    assert!(ports.iter().all(|p| p.up == p.reason.is_none()));
    ports.into_iter().map(|p| p.reason).collect()
}

#[test]
fn a_port_that_is_down_says_why() {
    let mut lab = Lab::new(3, &[0, 1]);
    let up = || Some(None::<String>);
    let second = |lab: &Lab| reasons(lab).pop();
    assert_eq!(reasons(&lab), [None, None]);
    lab.edge(1).carrier(2, false);
    lab.run();
    let no_link = "interface if2 of snic0 has no link".to_owned();
    assert_eq!(reasons(&lab), [None, Some(no_link)]);
    lab.edge(1).carrier(2, true);
    lab.run();
    assert_eq!(second(&lab), up());
    let port_mod = |config| {
        Message::PortMod(openflow13::PortMod {
            port: 2,
            hw_addr: port(2, "").hw_addr,
            config,
            mask: config::ALL,
            advertise: 0,
        })
    };
    lab.ask(1, &port_mod(config::PORT_DOWN));
    let by_controller = "a controller took it down (PORT_DOWN)".to_owned();
    assert_eq!(second(&lab), Some(Some(by_controller)));
    assert_eq!(lab.core.ports()[1].config, ["PORT_DOWN"]);
    lab.ask(2, &port_mod(0));
    assert_eq!(second(&lab), up());
    // A patch port of any switch, and the interface itself.
    for (switch, number, reason) in [
        (2, 102, "patch port edge-2 is missing on snic1"),
        (1, 2, "interface if2 is not on bridge edge of snic0"),
    ] {
        let taken = lab.edge(switch).ports.remove(&number).unwrap();
        lab.disconnect(switch);
        lab.connect(switch);
        lab.run();
        assert_eq!(second(&lab), Some(Some(reason.into())));
        lab.edge(switch).ports.insert(number, taken);
        lab.disconnect(switch);
        lab.connect(switch);
        lab.run();
        assert_eq!(second(&lab), up());
    }
    lab.disconnect(1);
    let away = "switch snic0 is not connected".to_owned();
    assert_eq!(second(&lab), Some(Some(away)));
}
