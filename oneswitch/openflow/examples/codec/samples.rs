//! Messages written by the library's builders, as input for other
//! implementations.

use openflow13::*;

use crate::json::{hex, Object};

fn flow_mod(matching: Match, actions: &ActionList) -> FlowMod {
    FlowMod {
        cookie: 0x1234,
        cookie_mask: 0,
        table_id: 3,
        command: FlowModCommand::Add,
        idle_timeout: 5,
        hard_timeout: 60,
        priority: 100,
        buffer_id: NO_BUFFER,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        flags: FlowMod::SEND_FLOW_REM,
        importance: 0,
        matching,
        instructions: Instructions::apply(actions),
    }
}

fn port(number: u32, name: &str) -> Port {
    Port {
        number,
        hw_addr: [2, 0, 0, 0, 0, 7],
        name: Port::name_bytes(name),
        config: config::NO_FWD,
        state: state::LIVE,
        ..Port::default()
    }
}

/// By name, as hexadecimal digits.
pub fn samples() -> Object {
    let mut object = Object::default();
    let mut add = |name, frame: &[u8]| {
        object = std::mem::take(&mut object).with(name, &hex(frame));
    };
    let transit = ActionList::new()
        .push_vlan(0x8100)
        .set_vlan_vid(5)
        .output(2, 0);
    let deliver = ActionList::new()
        .pop_vlan()
        .output(port_no::IN_PORT, 0)
        .group(9);
    let matching = Match::any().with_in_port(7).with_vlan_vid(5);
    let buckets = Buckets::build([
        (3, port_no::ANY, group_no::ANY, &transit),
        (4, port_no::ANY, group_no::ANY, &deliver),
    ]);
    let mut bands = Vec::new();
    MeterBand {
        kind: 1,
        rate: 1000,
        burst_size: 20,
        prec_level: 0,
    }
    .put(&mut bands);
    let messages = [
        (
            "transit",
            Message::FlowMod(flow_mod(Match::any().with_in_port(7), &transit)),
        ),
        (
            "deliver",
            Message::FlowMod(flow_mod(matching.clone(), &deliver)),
        ),
        (
            "drop",
            Message::FlowMod(flow_mod(Match::any(), &ActionList::new())),
        ),
        (
            "group",
            Message::GroupMod(GroupMod {
                command: GroupModCommand::Add,
                group_type: group_type::SELECT,
                group_id: 9,
                buckets,
                selection: None,
            }),
        ),
        (
            "meter",
            Message::MeterMod(MeterMod {
                command: MeterModCommand::Add,
                flags: meter_flags::KBPS | meter_flags::BURST,
                meter_id: 6,
                bands: bands.into_boxed_slice(),
            }),
        ),
        (
            "features",
            Message::FeaturesReply(Features {
                datapath_id: 0xabc,
                n_buffers: 0,
                n_tables: 254,
                auxiliary_id: 0,
                capabilities: 0x4f,
                reserved: 0,
            }),
        ),
        (
            "flow_removed",
            Message::FlowRemoved(FlowRemoved {
                cookie: 0x1234,
                priority: 100,
                reason: FlowRemoved::IDLE_TIMEOUT,
                table_id: 3,
                duration_sec: 10,
                duration_nsec: 500_000_000,
                idle_timeout: 5,
                hard_timeout: 60,
                packet_count: 77,
                byte_count: 8888,
                matching,
            }),
        ),
        (
            "port_status",
            Message::PortStatus(PortStatus {
                reason: PortStatus::MODIFY,
                port: port(4, "vm4"),
            }),
        ),
        ("hello", Message::Hello(Hello::new(1 << VERSION))),
    ];
    for (name, message) in &messages {
        add(name, &encode(1, message).unwrap_or_default());
    }
    let inner = encode(1, &Message::FlowMod(flow_mod(Match::any(), &transit))).unwrap_or_default();
    add("bundle_open", &bundle::encode_open(1, 8));
    add(
        "bundle_add",
        &bundle::encode_add(8, &inner).unwrap_or_default(),
    );
    add("bundle_commit", &bundle::encode_commit(1, 8));
    add("bundle_discard", &bundle::encode_discard(1, 8));
    add(
        "error",
        &encode_error(1, ErrorCode::FLOW_MOD_FAILED_OVERLAP, &inner),
    );
    add(
        "extension_error",
        &encode_error(1, ErrorCode::ONF_DUP_INST, &inner),
    );
    let replies = MultipartReply::PortDesc(vec![port(4, "vm4"), port(5, "vm5")]);
    for frame in encode_multipart_reply(1, &replies) {
        add("port_desc", &frame);
    }
    object
}

/// An error message of every known code.
pub fn errors() -> Object {
    let request = encode(1, &Message::BarrierRequest).unwrap_or_default();
    ErrorCode::ALL
        .iter()
        .fold(Object::default(), |object, &code| {
            let frame = encode_error(1, code, &request);
            object.with(code.name().unwrap_or_default(), &hex(&frame))
        })
}

/// Returns replies in which every number differs, so that swapped fields are
/// detected.
pub fn replies() -> Object {
    let mut count = 0u64;
    let mut next = || {
        count += 1;
        count << 33 | count
    };
    let mut object = Object::default();
    // The listed fields get the next numbers.
    macro_rules! numbered {
        ($($type:ident)::+ { $($number:ident),+ $(; $($rest:tt)+)? }) => {
            $($type)::+ { $($number: next() as _,)+ $($($rest)+)? }
        };
    }
    let queue = numbered! { QueueStats {
        port_no, queue_id, tx_bytes, tx_packets, tx_errors, duration_sec, duration_nsec
    } };
    let port = numbered! { PortStats {
        port_no, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, rx_errors,
        tx_errors, rx_frame_err, rx_over_err, rx_crc_err, collisions, duration_sec, duration_nsec;
        intel: None
    } };
    let table = numbered! { TableStats { active_count, lookup_count, matched_count; table_id: 3 } };
    let group = numbered! { GroupStats {
        group_id, ref_count, packet_count, byte_count, duration_sec, duration_nsec;
        buckets: vec![
            numbered! { BucketCounter { packet_count, byte_count } },
            numbered! { BucketCounter { packet_count, byte_count } },
        ]
    } };
    let meter = numbered! { MeterStats {
        meter_id, flow_count, packet_in_count, byte_in_count, duration_sec, duration_nsec;
        bands: vec![numbered! { MeterBandStats { packet_count, byte_count } }]
    } };
    let flow = numbered! { FlowStats {
        duration_sec, duration_nsec, priority, idle_timeout, hard_timeout, flags, cookie,
        packet_count, byte_count;
        table_id: 7,
        importance: 0,
        idle_age: 0,
        matching: Match::any().with_in_port(1),
        instructions: Instructions::apply(&ActionList::new().output(2, 3))
    } };
    let aggregate =
        numbered! { MultipartReply::Aggregate { packet_count, byte_count, flow_count } };
    let features = MultipartReply::GroupFeatures(numbered! { GroupFeatures {
        types, capabilities;
        max_groups: [1, 2, 3, 4].map(|_| next() as u32),
        actions: [1, 2, 3, 4].map(|_| next() as u32)
    } });
    for (name, reply) in [
        ("queue", MultipartReply::Queue(vec![queue])),
        ("port", MultipartReply::PortStats(vec![port])),
        ("table", MultipartReply::Table(vec![table])),
        ("group", MultipartReply::Group(vec![group])),
        ("meter", MultipartReply::Meter(vec![meter])),
        ("flow", MultipartReply::Flow(vec![flow])),
        ("aggregate", aggregate),
        ("group_features", features),
    ] {
        for frame in encode_multipart_reply(1, &reply) {
            object = object.with(name, &hex(&frame));
        }
    }
    let masks = AsyncMasks {
        packet_in: [1, 2],
        port_status: [3, 4],
        flow_removed: [5, 6],
        ..AsyncMasks::NONE
    };
    let config = SwitchConfig {
        flags: 1,
        miss_send_len: 2,
    };
    let role = Role {
        role: Role::MASTER,
        generation_id: 3,
    };
    for (name, message) in [
        ("async", Message::GetAsyncReply(masks)),
        ("config", Message::GetConfigReply(config)),
        ("role", Message::RoleReply(role)),
    ] {
        object = object.with(name, &hex(&encode(1, &message).unwrap_or_default()));
    }
    object
}
