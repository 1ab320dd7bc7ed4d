//! Several controllers: roles, masks, and what each is told.

use crate::build::{add, any, flow_stats, group, meter, output, packet_out};
use crate::lab::{port, Answer, Lab};
use openflow13::{
    config, kind, port_no, AsyncMasks, ErrorCode, FlowMod, GroupModCommand, Message,
    MeterModCommand, PortMod, Role, SwitchConfig, TableMod,
};
use std::cell::Cell;
use std::rc::Rc;

fn role(role: u32, generation_id: u64) -> Message {
    Message::RoleRequest(Role {
        role,
        generation_id,
    })
}

fn is_error(answers: &[Answer], error: ErrorCode) -> bool {
    matches!(answers, [(_, Message::Error(e))] if e.error == error)
}

fn granted(answers: &[Answer]) -> (u32, u64) {
    match answers {
        [(_, Message::RoleReply(role))] => (role.role, role.generation_id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn there_is_one_master_of_the_newest_generation() {
    let mut lab = Lab::new(1, &[0]);
    lab.controller_up(2);
    assert_eq!(
        granted(&lab.ask(1, &role(Role::NO_CHANGE, 0))),
        (Role::EQUAL, u64::MAX)
    );
    assert_eq!(
        granted(&lab.ask(2, &role(Role::MASTER, u64::MAX))),
        (Role::MASTER, u64::MAX)
    );
    // Generations wrap around.
    lab.send(2, 3, &role(Role::MASTER, 1));
    lab.run();
    assert_eq!(granted(&lab.take(2)), (Role::MASTER, 1));
    let told = lab.take(1);
    assert!(
        matches!(&told[..], [(_, Message::Experimenter(m))] if (m.vendor, m.subtype) == (0x4f4e_4600, 1911) && m.body[..4] == Role::SLAVE.to_be_bytes()),
        "{told:?}"
    );
    assert_eq!(
        granted(&lab.ask(4, &role(Role::NO_CHANGE, 0))),
        (Role::SLAVE, 1)
    );
    let stale = lab.ask(5, &role(Role::MASTER, 0));
    assert!(is_error(&stale, ErrorCode::ROLE_REQUEST_FAILED_STALE));
    let stale = lab.ask(6, &role(Role::SLAVE, u64::MAX));
    assert!(is_error(&stale, ErrorCode::ROLE_REQUEST_FAILED_STALE));
    assert_eq!(
        granted(&lab.ask(7, &role(Role::EQUAL, 0))),
        (Role::EQUAL, 1)
    );
    assert_eq!(
        granted(&lab.ask(8, &role(Role::MASTER, 1))),
        (Role::MASTER, 1)
    );
}

#[test]
fn a_slave_reads_but_does_not_write() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.ask(1, &role(Role::SLAVE, 1));
    let table_mod = Message::TableMod(TableMod {
        table_id: 0,
        config: 0,
    });
    let port_mod = Message::PortMod(PortMod {
        port: 1,
        hw_addr: port(1, "p1").hw_addr,
        config: config::PORT_DOWN,
        mask: config::PORT_DOWN,
        advertise: 0,
    });
    for message in [
        Message::FlowMod(add(1, any(), &output(1))),
        packet_out(1, output(1)),
        group(GroupModCommand::Add, 5, &[1]),
        meter(MeterModCommand::Add, 6, 100),
        port_mod,
        table_mod,
    ] {
        assert!(is_error(
            &lab.ask(2, &message),
            ErrorCode::BAD_REQUEST_IS_SLAVE
        ));
    }
    assert!(matches!(
        &lab.ask(4, &flow_stats())[..],
        [(_, Message::MultipartReply(_))]
    ));
    assert_eq!(lab.ask(5, &Message::BarrierRequest).len(), 1);
    let virt = lab.virt(0);
    assert_eq!(virt.flows, []);
    assert!(virt.meters.is_empty() && !virt.groups.contains_key(&5));
    assert_eq!(lab.edge(0).ports[&1].config, 0);
}

#[test]
fn a_slave_is_told_of_a_wrong_length_before_it_is_told_that_it_is_one() {
    let mut lab = Lab::new(1, &[0]);
    lab.ask(1, &role(Role::SLAVE, 1));
    // The lengths of each kind that Open vSwitch 3.1 takes, up to 49 bytes; it does not look at anything else.
    let right: [(u8, &[u16]); 6] = [
        (kind::PACKET_OUT, &[24, 25, 26, 32, 40, 41, 47, 48, 49]),
        (kind::FLOW_MOD, &[48]),
        (kind::GROUP_MOD, &[16, 24, 32, 40, 48]),
        (kind::PORT_MOD, &[40]),
        (kind::TABLE_MOD, &[16]),
        (kind::METER_MOD, &[16, 24, 32, 40, 48]),
    ];
    for (kind, right) in right {
        for length in (8u16..=26).chain([32, 40, 41, 47, 48, 49]) {
            let mut frame = vec![0; length.into()];
            frame[..2].copy_from_slice(&[4, kind]);
            frame[2..4].copy_from_slice(&length.to_be_bytes());
            lab.send_raw(1, &frame);
            lab.run();
            let error = match right.contains(&length) {
                true => ErrorCode::BAD_REQUEST_IS_SLAVE,
                false => ErrorCode::BAD_REQUEST_BAD_LEN,
            };
            assert!(is_error(&lab.take(1), error), "kind {kind}, {length} bytes");
        }
    }
}

#[test]
fn a_switch_that_is_being_compared_learns_how_to_treat_fragments() {
    let mut lab = Lab::new(2, &[0, 1]);
    let told = Rc::new(Cell::new(0));
    let last = Rc::clone(&told);
    lab.virt(1).refuse = Some(Box::new(move |message| {
        if let Message::SetConfig(config) = message {
            last.set(config.flags);
        }
        None
    }));
    lab.disconnect(1);
    lab.virt(1).slow = true;
    lab.connect(1);
    lab.flush();
    lab.ask(
        1,
        &Message::SetConfig(SwitchConfig {
            flags: 1,
            miss_send_len: 128,
        }),
    );
    lab.virt(1).slow = false;
    lab.run();
    assert_eq!(told.get(), 1);
}

#[test]
fn fragments_are_the_switchs_business_and_the_rest_each_controllers() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_up(2);
    let config = SwitchConfig {
        flags: 1,
        miss_send_len: 77,
    };
    assert_eq!(lab.ask(1, &Message::SetConfig(config)), []);
    let answers = lab.ask(2, &Message::GetConfigRequest);
    assert!(matches!(&answers[..], [(_, Message::GetConfigReply(c))] if *c == config));
    lab.send(2, 3, &Message::GetConfigRequest);
    lab.run();
    let others = SwitchConfig {
        flags: 1,
        miss_send_len: 128,
    };
    assert!(matches!(&lab.take(2)[..], [(_, Message::GetConfigReply(c))] if *c == others));
}

#[test]
fn each_is_told_what_it_asked_for_and_errors_go_to_who_erred() {
    let mut lab = Lab::new(2, &[0, 1]);
    lab.controller_up(2);
    lab.controller_up(3);
    let deaf = AsyncMasks::NONE;
    lab.send(2, 1, &Message::SetAsync(deaf));
    lab.send(2, 2, &Message::GetAsyncRequest);
    lab.send(3, 1, &role(Role::SLAVE, 1));
    lab.run();
    assert!(matches!(&lab.take(2)[..], [(_, Message::GetAsyncReply(m))] if *m == deaf));
    lab.take(3);
    let rule = FlowMod {
        flags: FlowMod::SEND_FLOW_REM,
        ..add(1, any(), &output(1))
    };
    lab.ask(1, &Message::FlowMod(rule));
    lab.send(2, 9, &Message::FlowMod(crate::build::delete(any())));
    lab.send(
        2,
        10,
        &packet_out(1, openflow13::ActionList::new().group(5)),
    );
    lab.run();
    assert!(matches!(&lab.take(1)[..], [(_, Message::FlowRemoved(_))]));
    let answers = lab.take(2);
    assert!(is_error(&answers, ErrorCode::BAD_ACTION_BAD_OUT_GROUP) && answers[0].0.xid == 10);
    assert_eq!(lab.take(3), [], "slaves are not told by default");
    lab.core
        .remove_port(2, &Default::default(), lab.now)
        .unwrap();
    lab.run();
    assert!(matches!(&lab.take(1)[..], [(_, Message::PortStatus(_))]));
    assert!(matches!(&lab.take(3)[..], [(_, Message::PortStatus(_))]));
    assert_eq!(lab.take(2), []);
}

#[test]
fn what_cannot_be_read_is_refused_or_ends_the_connection() {
    let mut lab = Lab::new(1, &[0]);
    lab.send_raw(1, &[4, 99, 0, 8, 0, 0, 0, 7]);
    lab.run();
    let answers = lab.take(1);
    assert!(is_error(&answers, ErrorCode::BAD_REQUEST_BAD_TYPE) && answers[0].0.xid == 7);
    lab.send_raw(1, &[4, 1, 0]);
    lab.run();
    assert_eq!(lab.disconnects, 1);
}

#[test]
fn ports_have_no_queues() {
    let mut lab = Lab::new(1, &[0]);
    for asked in [1, port_no::ANY] {
        let answers = lab.ask(7, &Message::QueueGetConfigRequest { port: asked });
        assert!(
            matches!(&answers[..], [(header, Message::QueueGetConfigReply { port, queues })]
                if header.xid == 7 && *port == asked && queues.is_empty()),
            "{answers:?}"
        );
    }
    let unknown = lab.ask(8, &Message::QueueGetConfigRequest { port: 77 });
    assert!(is_error(&unknown, ErrorCode::QUEUE_OP_FAILED_BAD_PORT));
}
