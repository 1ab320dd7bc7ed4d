//! The contents of messages, named as os-ken names them.

use openflow13::*;

use crate::json::{hex, object, Json, Object};

fn address(bytes: &[u8; 6]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

fn matching(matching: &Match) -> Object {
    object! { "oxm": hex(matching.as_oxm()) }
}

fn actions(list: Actions<'_>) -> Vec<Object> {
    list.iter().map(|item| action(&item)).collect()
}

fn action(item: &ActionItem<'_>) -> Object {
    use actions::action_kind as k;
    let kind = |kind: u16| object! { "type": kind, "len": item.raw.len() };
    match item.action {
        Action::Output { port, max_len } => kind(k::OUTPUT)
            .with("port", &port)
            .with("max_len", &max_len),
        Action::Group(group_id) => kind(k::GROUP).with("group_id", &group_id),
        Action::SetQueue(queue_id) => kind(k::SET_QUEUE).with("queue_id", &queue_id),
        Action::PushVlan(ethertype) => kind(k::PUSH_VLAN).with("ethertype", &ethertype),
        Action::PopVlan => kind(k::POP_VLAN),
        Action::PushMpls(ethertype) => kind(k::PUSH_MPLS).with("ethertype", &ethertype),
        Action::PopMpls(ethertype) => kind(k::POP_MPLS).with("ethertype", &ethertype),
        Action::PushPbb(ethertype) => kind(k::PUSH_PBB).with("ethertype", &ethertype),
        Action::PopPbb => kind(k::POP_PBB),
        Action::SetMplsTtl(ttl) => kind(k::SET_MPLS_TTL).with("mpls_ttl", &ttl),
        Action::DecMplsTtl => kind(k::DEC_MPLS_TTL),
        Action::SetNwTtl(ttl) => kind(k::SET_NW_TTL).with("nw_ttl", &ttl),
        Action::DecNwTtl => kind(k::DEC_NW_TTL),
        Action::CopyTtlOut => kind(k::COPY_TTL_OUT),
        Action::CopyTtlIn => kind(k::COPY_TTL_IN),
        Action::SetField(field) => kind(k::SET_FIELD).with("oxm_value", &hex(field.value)),
        Action::Nicira { subtype, .. } => kind(k::EXPERIMENTER)
            .with("experimenter", &NX_VENDOR)
            .with("subtype", &subtype),
        Action::Experimenter { vendor, .. } => kind(k::EXPERIMENTER).with("experimenter", &vendor),
        Action::Other { kind: other, .. } => kind(other),
    }
}

fn instructions(list: &Instructions) -> Vec<Object> {
    list.iter()
        .map(|instruction| match instruction {
            Instruction::GotoTable(table_id) => object! { "type": 1u16, "table_id": table_id },
            Instruction::WriteMetadata { metadata, mask } => {
                object! { "type": 2u16, "metadata": metadata, "metadata_mask": mask }
            }
            Instruction::WriteActions(list) => object! { "type": 3u16, "actions": actions(list) },
            Instruction::ApplyActions(list) => object! { "type": 4u16, "actions": actions(list) },
            Instruction::ClearActions => object! { "type": 5u16 },
            Instruction::Meter(meter_id) => object! { "type": 6u16, "meter_id": meter_id },
            Instruction::Experimenter(raw) => object! { "raw": hex(raw) },
        })
        .collect()
}

fn buckets(buckets: &Buckets) -> Vec<Object> {
    buckets
        .iter()
        .map(|bucket| {
            object! {
                bucket: weight, watch_port, watch_group;
                "actions": actions(bucket.actions),
            }
        })
        .collect()
}

fn bands(bands: &[u8]) -> Vec<Object> {
    MeterBand::iter(bands)
        .map(|band| {
            let object =
                object! { "type": band.kind, "rate": band.rate, "burst_size": band.burst_size };
            match band.kind {
                2 => object.with("prec_level", &band.prec_level),
                _ => object,
            }
        })
        .collect()
}

fn port(port: &Port) -> Object {
    object! {
        port: config, state, curr, advertised, supported, peer, curr_speed, max_speed;
        "port_no": port.number,
        "hw_addr": address(&port.hw_addr),
        "name": port.name_str().into_owned(),
    }
}

fn flow_mod(message: &FlowMod) -> Object {
    object! {
        message: cookie, cookie_mask, table_id, idle_timeout, hard_timeout, priority, buffer_id,
        out_port, out_group, flags;
        "command": message.command as u8,
        "match": matching(&message.matching),
        "instructions": instructions(&message.instructions),
    }
}

fn flow_removed(message: &FlowRemoved) -> Object {
    object! {
        message: cookie, priority, reason, table_id, duration_sec, duration_nsec, idle_timeout,
        hard_timeout, packet_count, byte_count;
        "match": matching(&message.matching),
    }
}

fn masks(masks: &AsyncMasks) -> Object {
    object! {
        "packet_in_mask": masks.packet_in[..],
        "port_status_mask": masks.port_status[..],
        "flow_removed_mask": masks.flow_removed[..],
    }
}

fn request(request: &Multipart<MultipartRequest>) -> Object {
    use MultipartRequest as R;
    let object = object! { "flags": u16::from(request.more) };
    match &request.body {
        R::Desc | R::Table | R::GroupDesc | R::GroupFeatures | R::MeterFeatures | R::PortDesc => {
            object
        }
        R::Flow(flow) | R::Aggregate(flow) => object
            .with("table_id", &flow.table_id)
            .with("out_port", &flow.out_port)
            .with("out_group", &flow.out_group)
            .with("cookie", &flow.cookie)
            .with("cookie_mask", &flow.cookie_mask)
            .with("match", &matching(&flow.matching)),
        R::PortStats { port } => object.with("port_no", port),
        R::Queue { port, queue } => object.with("port_no", port).with("queue_id", queue),
        R::Group { group } => object.with("group_id", group),
        R::Meter { meter } | R::MeterConfig { meter } => object.with("meter_id", meter),
        R::TableFeatures(_) | R::FlowMonitor(_) => object,
        R::Experimenter(message) => object
            .with("experimenter", &message.vendor)
            .with("exp_type", &message.subtype),
    }
}

fn flow_stats(stats: &FlowStats) -> Object {
    object! {
        stats: table_id, duration_sec, duration_nsec, priority, idle_timeout, hard_timeout, flags,
        cookie, packet_count, byte_count;
        "match": matching(&stats.matching),
        "instructions": instructions(&stats.instructions),
    }
}

fn port_stats(stats: &PortStats) -> Object {
    object! {
        stats: port_no, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped,
        rx_errors, tx_errors, rx_frame_err, rx_over_err, rx_crc_err, collisions, duration_sec,
        duration_nsec;
    }
}

fn all<T>(entries: &[T], one: impl Fn(&T) -> Object) -> String {
    entries.iter().map(one).collect::<Vec<_>>().json()
}

/// The body of a multipart reply: an object or a list of them.
fn reply_body(body: &MultipartReply) -> String {
    use MultipartReply as R;
    match body {
        R::Desc(desc) => object! {
            "mfr_desc": SwitchDesc::text(&desc.manufacturer).into_owned(),
            "hw_desc": SwitchDesc::text(&desc.hardware).into_owned(),
            "sw_desc": SwitchDesc::text(&desc.software).into_owned(),
            "serial_num": SwitchDesc::text(&desc.serial).into_owned(),
            "dp_desc": SwitchDesc::text(&desc.datapath).into_owned(),
        }
        .json(),
        R::Flow(entries) => all(entries, flow_stats),
        R::Aggregate {
            packet_count,
            byte_count,
            flow_count,
        } => object! {
            "packet_count": *packet_count,
            "byte_count": *byte_count,
            "flow_count": *flow_count,
        }
        .json(),
        R::Table(entries) => all(entries, |stats| {
            object! {
                stats: table_id, active_count, lookup_count, matched_count;
            }
        }),
        R::PortStats(entries) => all(entries, port_stats),
        R::Queue(entries) => all(entries, |stats| {
            object! {
                stats: port_no, queue_id, tx_bytes, tx_packets, tx_errors, duration_sec,
                duration_nsec;
            }
        }),
        R::Group(entries) => all(entries, |stats| {
            let buckets: Vec<Object> = stats
                .buckets
                .iter()
                .map(|one| object! { "packet_count": one.packet_count, "byte_count": one.byte_count })
                .collect();
            object! {
                stats: group_id, ref_count, packet_count, byte_count, duration_sec, duration_nsec;
                "bucket_stats": buckets,
            }
        }),
        R::GroupDesc(entries) => all(entries, |group| {
            object! {
                "type": group.group_type,
                "group_id": group.group_id,
                "buckets": buckets(&group.buckets),
            }
        }),
        R::GroupFeatures(features) => object! {
            "types": features.types,
            "capabilities": features.capabilities,
            "max_groups": features.max_groups[..],
            "actions": features.actions[..],
        }
        .json(),
        R::Meter(entries) => all(entries, |stats| {
            let bands: Vec<Object> = stats
                .bands
                .iter()
                .map(|one| {
                    object! {
                        "packet_band_count": one.packet_count,
                        "byte_band_count": one.byte_count,
                    }
                })
                .collect();
            object! {
                stats: meter_id, flow_count, packet_in_count, byte_in_count, duration_sec,
                duration_nsec;
                "band_stats": bands,
            }
        }),
        R::MeterConfig(entries) => all(entries, |config| {
            object! { "flags": config.flags, "meter_id": config.meter_id, "bands": bands(&config.bands) }
        }),
        R::MeterFeatures(features) => object! {
            features: max_meter, band_types, capabilities, max_bands, max_color;
        }
        .json(),
        // Kept raw.
        R::TableFeatures(_) | R::Experimenter(_) => "{}".into(),
        R::PortDesc(entries) => all(entries, port),
    }
}

/// Returns an error's type and code; for an extension error, also its
/// experimenter.
pub fn error(code: ErrorCode, experimenter: Option<u32>) -> Object {
    match experimenter {
        Some(experimenter) => {
            object! { "type": code.kind, "experimenter": experimenter, "exp_type": code.code }
        }
        None => object! { "type": code.kind, "code": code.code },
    }
}

/// Returns a message's content as JSON.
pub fn fields(message: &Message) -> String {
    use Message as M;
    match message {
        M::Hello(hello) => object! { "versions": hello.versions() },
        M::Error(message) => {
            error(message.error, message.experimenter).with("data", &hex(&message.data))
        }
        M::EchoRequest(data) | M::EchoReply(data) => object! { "data": hex(data) },
        M::Experimenter(message) => object! {
            "experimenter": message.vendor,
            "exp_type": message.subtype,
            "data": hex(&message.body),
        },
        M::FeaturesRequest
        | M::GetConfigRequest
        | M::BarrierRequest
        | M::BarrierReply
        | M::GetAsyncRequest => object! {},
        M::FeaturesReply(features) => object! {
            features: datapath_id, n_buffers, n_tables, auxiliary_id, capabilities;
        },
        M::GetConfigReply(config) | M::SetConfig(config) => {
            object! { "flags": config.flags, "miss_send_len": config.miss_send_len }
        }
        M::PacketIn(packet) => object! {
            packet: buffer_id, total_len, reason, table_id, cookie;
            "match": matching(&packet.matching),
            "data": hex(&packet.data),
        },
        M::FlowRemoved(message) => flow_removed(message),
        M::PortStatus(status) => object! { "reason": status.reason, "desc": port(&status.port) },
        M::PacketOut(packet) => object! {
            "buffer_id": packet.buffer_id,
            "in_port": packet.in_port,
            "actions": actions(packet.actions.as_actions()),
            "data": hex(&packet.data),
        },
        M::FlowMod(message) => flow_mod(message),
        M::GroupMod(message) => object! {
            "command": message.command.number(),
            "type": message.group_type,
            "group_id": message.group_id,
            "buckets": buckets(&message.buckets),
        },
        M::PortMod(message) => object! {
            message: config, mask, advertise;
            "port_no": message.port,
            "hw_addr": address(&message.hw_addr),
        },
        M::TableMod(message) => object! { "table_id": message.table_id, "config": message.config },
        M::MultipartRequest(message) => request(message),
        M::MultipartReply(message) => {
            let more = u16::from(message.more);
            return format!(
                "{{\"flags\":{more},\"body\":{}}}",
                reply_body(&message.body)
            );
        }
        M::QueueGetConfigRequest { port } | M::QueueGetConfigReply { port, .. } => {
            object! { "port": *port }
        }
        M::RoleRequest(role) | M::RoleReply(role) => {
            object! { "role": role.role, "generation_id": role.generation_id }
        }
        M::GetAsyncReply(message) | M::SetAsync(message) => masks(message),
        M::MeterMod(message) => object! {
            "command": message.command as u16,
            "flags": message.flags,
            "meter_id": message.meter_id,
            "bands": bands(&message.bands),
        },
    }
    .json()
}
