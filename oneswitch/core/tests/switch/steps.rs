//! The steps of random histories, from small pools, so that they interact.

use crate::build::{
    add, any, everything, flow_stats, from, group, meter, output, packet_out, writes_in_port,
};
use crate::lab::PATCHES;
use openflow13::{
    group_no, ActionList, FlowMod, FlowModCommand, GroupModCommand, Instructions, Match, Message,
    MeterModCommand, MultipartRequest,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub enum Step {
    Flow(FlowMod),
    Other(Message),
    /// One round, so that messages of several rounds are in flight at once.
    Round,
    Rest,
    Wait,
    Move(u32, usize, u32),
    /// To another executor; `None`: the home.
    Execute(u32, Option<usize>),
    Flip(u32),
    Finish(u32),
    Abort(u32),
    AddPort(u32, usize, u32, Option<Option<usize>>),
    RemovePort(u32),
    Disconnect(usize),
    Connect(usize),
    /// The daemon is killed, once nothing is in flight.
    Restart,
    Slow(usize, bool),
    /// Something happens behind the core's back while a switch is away.
    Tamper(usize),
    /// A switch refuses what the others accept: rules with this cookie.
    Picky(usize),
}

pub const SWITCHES: usize = 3;
pub const PICKY: u64 = 66;

fn matches() -> impl Strategy<Value = Match> {
    prop_oneof![
        Just(any()),
        (1..5u32).prop_map(from),
        (1..3u16).prop_map(|v| any().with_vlan_vid(v)),
        (1..5u32, 1..3u16).prop_map(|(p, v)| from(p).with_vlan_vid(v)),
    ]
}

fn actions() -> impl Strategy<Value = ActionList> {
    prop_oneof![
        4 => (1..5u32).prop_map(output),
        1 => Just(output(openflow13::port_no::FLOOD)),
        2 => (1..3u32).prop_map(|g| ActionList::new().group(g)),
        1 => Just(writes_in_port(2)),
        1 => Just(ActionList::new()),
    ]
}

fn instructions() -> impl Strategy<Value = Instructions> {
    (actions(), 0..6u8).prop_map(|(actions, meter)| {
        let mut bytes = Vec::new();
        if meter == 1 {
            bytes.extend([0, 6, 0, 8, 0, 0, 0, 1]);
        }
        bytes.extend(Instructions::apply(&actions).as_bytes());
        Instructions::from_bytes(bytes).unwrap()
    })
}

fn flow_mods() -> impl Strategy<Value = FlowMod> {
    let command = prop_oneof![
        5 => Just(FlowModCommand::Add),
        1 => Just(FlowModCommand::Modify),
        1 => Just(FlowModCommand::ModifyStrict),
        1 => Just(FlowModCommand::Delete),
        1 => Just(FlowModCommand::DeleteStrict),
    ];
    let cookie = prop_oneof![8 => 1..4u64, 1 => Just(PICKY)];
    let filters = (
        prop_oneof![4 => Just(0u64), 1 => Just(u64::MAX)],
        0..8u32,
        0..8u32,
    );
    let timers = prop_oneof![4 => Just((0u16, 0u16)), 1 => Just((5000, 0)), 1 => Just((0, 9000))];
    (
        matches(),
        instructions(),
        command,
        cookie,
        filters,
        timers,
        0..8u16,
        (0..2u8, 1..3u16),
    )
        .prop_map(
            |(
                matching,
                instructions,
                command,
                cookie,
                (mask, out_port, out_group),
                (idle, hard),
                flags,
                (table, priority),
            )| {
                let adds = command == FlowModCommand::Add;
                let filter = |n: u32, any: u32| match n {
                    1..=2 if command.is_delete() => n,
                    _ => any,
                };
                FlowMod {
                    command,
                    cookie_mask: if adds { 0 } else { mask },
                    table_id: if command == FlowModCommand::Delete && table == 1 {
                        0xff
                    } else {
                        table
                    },
                    idle_timeout: idle,
                    hard_timeout: hard,
                    priority,
                    out_port: match out_port {
                        3 if command.is_delete() => openflow13::port_no::FLOOD,
                        n => filter(n, openflow13::port_no::ANY),
                    },
                    out_group: filter(out_group, group_no::ANY),
                    flags: if adds { flags & 7 } else { 0 },
                    instructions,
                    ..add(cookie, matching, &ActionList::new())
                }
            },
        )
}

fn others() -> impl Strategy<Value = Message> {
    let group_commands = prop_oneof![
        3 => Just(GroupModCommand::Add),
        1 => Just(GroupModCommand::Modify),
        1 => Just(GroupModCommand::Delete),
    ];
    let meter_commands = prop_oneof![
        3 => Just(MeterModCommand::Add),
        1 => Just(MeterModCommand::Modify),
        1 => Just(MeterModCommand::Delete),
    ];
    prop_oneof![
        3 => (group_commands, 1..4u32, 1..5u32).prop_map(|(command, id, out)| {
            let (id, out) = match (command, id) {
                (GroupModCommand::Delete, 3) => (group_no::ALL, vec![]),
                (GroupModCommand::Delete, _) => (id, vec![]),
                (_, 3) => (2, vec![openflow13::port_no::FLOOD]),
                _ => (id, vec![out]),
            };
            group(command, id, &out)
        }),
        2 => (meter_commands, 1..3u32).prop_map(|(command, rate)| meter(command, 1, rate)),
        2 => Just(Message::BarrierRequest),
        1 => Just(flow_stats()),
        1 => Just(crate::build::request(MultipartRequest::Aggregate(everything()))),
        1 => Just(crate::build::request(MultipartRequest::PortDesc)),
        1 => Just(crate::build::request(MultipartRequest::Group { group: group_no::ALL })),
        1 => (1..6u32, actions()).prop_map(|(p, a)| packet_out(p, a)),
    ]
}

pub fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => flow_mods().prop_map(Step::Flow),
        6 => others().prop_map(Step::Other),
        6 => Just(Step::Round),
        2 => Just(Step::Rest),
        1 => Just(Step::Wait),
        2 => (1..5u32, 0..SWITCHES, 1..=PATCHES).prop_map(|(n, s, i)| Step::Move(n, s, i)),
        1 => (1..5u32).prop_map(Step::Flip),
        1 => (1..5u32).prop_map(Step::Finish),
        1 => (1..5u32).prop_map(Step::Abort),
        1 => (1..5u32, 0..SWITCHES, 1..=PATCHES, proptest::option::of(executors()))
            .prop_map(|(n, s, i, e)| Step::AddPort(n, s, i, e)),
        2 => (1..5u32, executors()).prop_map(|(n, e)| Step::Execute(n, e)),
        1 => (1..5u32).prop_map(Step::RemovePort),
        1 => (0..SWITCHES).prop_map(Step::Disconnect),
        2 => (0..SWITCHES).prop_map(Step::Connect),
        1 => Just(Step::Restart),
        1 => (0..SWITCHES, any_bool()).prop_map(|(s, slow)| Step::Slow(s, slow)),
        1 => (0..SWITCHES).prop_map(Step::Tamper),
        1 => (0..SWITCHES).prop_map(Step::Picky),
    ]
}

fn executors() -> impl Strategy<Value = Option<usize>> {
    proptest::option::of(0..SWITCHES)
}

fn any_bool() -> impl Strategy<Value = bool> {
    prop_oneof![Just(true), Just(false)]
}
