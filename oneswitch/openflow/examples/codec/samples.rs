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
    let queue = QueueStats {
        port_no: next() as u32,
        queue_id: next() as u32,
        tx_bytes: next(),
        tx_packets: next(),
        tx_errors: next(),
        duration_sec: next() as u32,
        duration_nsec: next() as u32,
    };
    let port = PortStats {
        port_no: next() as u32,
        rx_packets: next(),
        tx_packets: next(),
        rx_bytes: next(),
        tx_bytes: next(),
        rx_dropped: next(),
        tx_dropped: next(),
        rx_errors: next(),
        tx_errors: next(),
        rx_frame_err: next(),
        rx_over_err: next(),
        rx_crc_err: next(),
        collisions: next(),
        duration_sec: next() as u32,
        duration_nsec: next() as u32,
    };
    let table = TableStats {
        table_id: 3,
        active_count: next() as u32,
        lookup_count: next(),
        matched_count: next(),
    };
    let group = GroupStats {
        group_id: next() as u32,
        ref_count: next() as u32,
        packet_count: next(),
        byte_count: next(),
        duration_sec: next() as u32,
        duration_nsec: next() as u32,
        buckets: vec![
            BucketCounter {
                packet_count: next(),
                byte_count: next(),
            },
            BucketCounter {
                packet_count: next(),
                byte_count: next(),
            },
        ],
    };
    let meter = MeterStats {
        meter_id: next() as u32,
        flow_count: next() as u32,
        packet_in_count: next(),
        byte_in_count: next(),
        duration_sec: next() as u32,
        duration_nsec: next() as u32,
        bands: vec![MeterBandStats {
            packet_count: next(),
            byte_count: next(),
        }],
    };
    let flow = FlowStats {
        table_id: 7,
        duration_sec: next() as u32,
        duration_nsec: next() as u32,
        priority: next() as u16,
        idle_timeout: next() as u16,
        hard_timeout: next() as u16,
        flags: next() as u16,
        cookie: next(),
        packet_count: next(),
        byte_count: next(),
        matching: Match::any().with_in_port(1),
        instructions: Instructions::apply(&ActionList::new().output(2, 3)),
    };
    let aggregate = MultipartReply::Aggregate {
        packet_count: next(),
        byte_count: next(),
        flow_count: next() as u32,
    };
    let features = MultipartReply::GroupFeatures(GroupFeatures {
        types: next() as u32,
        capabilities: next() as u32,
        max_groups: [1, 2, 3, 4].map(|_| next() as u32),
        actions: [1, 2, 3, 4].map(|_| next() as u32),
    });
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
