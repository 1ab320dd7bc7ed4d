//! Strategies for the remaining messages, and for any message.

use openflow13::*;
use proptest::collection::vec;
use proptest::prelude::*;

use super::common::*;

fn flow_stats_request() -> impl Strategy<Value = FlowStatsRequest> {
    arbitrary! { FlowStatsRequest {
        table_id, out_group, cookie, cookie_mask; out_port: any_port(), matching: matching()
    } }
}

fn experimenter() -> impl Strategy<Value = Experimenter> {
    arbitrary! { Experimenter { vendor, subtype; body: bytes(100) } }
}

pub fn multipart_request() -> impl Strategy<Value = MultipartRequest> {
    use MultipartRequest as R;
    prop_oneof![
        prop_oneof![
            Just(R::Desc),
            Just(R::Table),
            Just(R::GroupDesc),
            Just(R::GroupFeatures),
            Just(R::MeterFeatures),
            Just(R::PortDesc),
        ],
        flow_stats_request().prop_map(R::Flow),
        flow_stats_request().prop_map(R::Aggregate),
        arbitrary! { R::PortStats { port } },
        arbitrary! { R::Queue { port, queue } },
        arbitrary! { R::Group { group } },
        arbitrary! { R::Meter { meter } },
        arbitrary! { R::MeterConfig { meter } },
        vec(any::<[u8; 8]>(), 0..20).prop_map(|b| R::TableFeatures(b.concat().into())),
        experimenter().prop_map(R::Experimenter),
    ]
}

pub fn flow_stats() -> impl Strategy<Value = FlowStats> {
    arbitrary! { FlowStats {
        table_id, duration_sec, duration_nsec, priority, idle_timeout, hard_timeout, flags, importance, idle_age, cookie,
        packet_count, byte_count; matching: matching(), instructions: instructions().prop_map(with_meter_first)
    } }
}

/// A meter behind others stands for an action of OpenFlow 1.5, where a switch says it.
fn with_meter_first(list: Instructions) -> Instructions {
    const METER: [u8; 2] = [0, 6];
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut rest = list.as_bytes();
    while !rest.is_empty() {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let (one, behind) = rest.split_at(length);
        parts.push(one);
        rest = behind;
    }
    parts.sort_by_key(|part| !part.starts_with(&METER));
    Instructions::from_bytes(parts.concat()).unwrap()
}

fn port_stats() -> impl Strategy<Value = PortStats> {
    arbitrary! { PortStats {
        port_no, duration_sec, duration_nsec, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped,
        tx_dropped, rx_errors, tx_errors, rx_frame_err, rx_over_err, rx_crc_err, collisions;
        intel: Just(None)
    } }
}

fn queue_stats() -> impl Strategy<Value = QueueStats> {
    arbitrary! { QueueStats {
        port_no, queue_id, duration_sec, duration_nsec, tx_bytes, tx_packets, tx_errors
    } }
}

fn group_stats() -> impl Strategy<Value = GroupStats> {
    let buckets = vec(
        arbitrary! { BucketCounter { packet_count, byte_count } },
        0..4,
    );
    arbitrary! { GroupStats {
        group_id, ref_count, duration_sec, duration_nsec, packet_count, byte_count; buckets: buckets
    } }
}

fn meter_stats() -> impl Strategy<Value = MeterStats> {
    let bands = vec(
        arbitrary! { MeterBandStats { packet_count, byte_count } },
        0..4,
    );
    arbitrary! { MeterStats {
        meter_id, flow_count, duration_sec, duration_nsec, packet_in_count, byte_in_count; bands: bands
    } }
}

fn text(most: usize) -> impl Strategy<Value = Box<[u8]>> {
    vec(1u8.., 0..most).prop_map(Vec::into_boxed_slice)
}

fn desc() -> impl Strategy<Value = SwitchDesc> {
    arbitrary! { SwitchDesc {
        ; manufacturer: text(256), hardware: text(256), software: text(256), serial: text(32), datapath: text(256)
    } }
}

pub fn multipart_reply() -> impl Strategy<Value = MultipartReply> {
    use MultipartReply as R;
    let tables = arbitrary! { TableStats { table_id, active_count, lookup_count, matched_count } };
    let groups = (any::<u32>(), group()).prop_map(|(group_id, (group_type, buckets))| GroupDesc {
        group_type,
        group_id,
        buckets,
        selection: None,
    });
    let group_features = arbitrary! { GroupFeatures {
        types, capabilities; max_groups: any::<[u32; 4]>(), actions: any::<[u32; 4]>()
    } };
    let meters = arbitrary! { MeterConfig { flags, meter_id; bands: bands() } };
    let meter_features = arbitrary! { MeterFeatures {
        max_meter, band_types, capabilities, max_bands, max_color
    } };
    prop_oneof![
        desc().prop_map(R::Desc),
        vec(flow_stats(), 0..4).prop_map(R::Flow),
        arbitrary! { R::Aggregate { packet_count, byte_count, flow_count } },
        vec(tables, 0..4).prop_map(R::Table),
        vec(port_stats(), 0..4).prop_map(R::PortStats),
        vec(queue_stats(), 0..4).prop_map(R::Queue),
        vec(group_stats(), 0..4).prop_map(R::Group),
        vec(groups, 0..4).prop_map(R::GroupDesc),
        group_features.prop_map(R::GroupFeatures),
        vec(meter_stats(), 0..4).prop_map(R::Meter),
        vec(meters, 0..4).prop_map(R::MeterConfig),
        meter_features.prop_map(R::MeterFeatures),
        bytes(300).prop_map(R::TableFeatures),
        vec(port(), 0..4).prop_map(R::PortDesc),
        experimenter().prop_map(R::Experimenter),
    ]
}

fn masks() -> impl Strategy<Value = AsyncMasks> {
    let mask = any::<[u32; 2]>;
    (mask(), mask(), mask()).prop_map(|(packet_in, port_status, flow_removed)| AsyncMasks {
        packet_in,
        port_status,
        flow_removed,
        ..AsyncMasks::NONE
    })
}

fn role() -> impl Strategy<Value = Role> {
    arbitrary! { Role { generation_id; role: 0u32..4 } }
}

fn error() -> impl Strategy<Value = ErrorMessage> {
    (any::<(u16, u16, u32)>(), any::<bool>(), bytes(100)).prop_map(
        |((kind, code, vendor), extension, data)| {
            let kind = if extension {
                EXPERIMENTER_ERROR
            } else {
                kind & 0xff
            };
            ErrorMessage {
                error: ErrorCode { kind, code },
                experimenter: extension.then_some(vendor),
                data,
            }
        },
    )
}

/// One strategy for each kind of message.
pub fn each_message() -> Vec<BoxedStrategy<Message>> {
    use Message as M;
    let features = arbitrary! { Features {
        datapath_id, n_buffers, n_tables, auxiliary_id, capabilities, reserved
    } };
    let port_mod = arbitrary! { PortMod {
        port, config, mask, advertise; hw_addr: any::<[u8; 6]>()
    } };
    vec![
        (any::<(u8, Option<u32>)>())
            .prop_map(|(version, bitmap)| M::Hello(Hello { version, bitmap }))
            .boxed(),
        error().prop_map(M::Error).boxed(),
        bytes(100).prop_map(|b| M::EchoRequest(b.into())).boxed(),
        bytes(100).prop_map(|b| M::EchoReply(b.into())).boxed(),
        experimenter().prop_map(M::Experimenter).boxed(),
        Just(M::FeaturesRequest).boxed(),
        features.prop_map(M::FeaturesReply).boxed(),
        Just(M::GetConfigRequest).boxed(),
        arbitrary! { SwitchConfig { flags, miss_send_len } }
            .prop_map(M::GetConfigReply)
            .boxed(),
        arbitrary! { SwitchConfig { miss_send_len; flags: 0u16..4 } }
            .prop_map(M::SetConfig)
            .boxed(),
        packet_in().prop_map(M::PacketIn).boxed(),
        flow_removed().prop_map(M::FlowRemoved).boxed(),
        arbitrary! { PortStatus { reason; port: port() } }
            .prop_map(M::PortStatus)
            .boxed(),
        packet_out().prop_map(M::PacketOut).boxed(),
        flow_mod().prop_map(M::FlowMod).boxed(),
        group_mod().prop_map(M::GroupMod).boxed(),
        port_mod.prop_map(M::PortMod).boxed(),
        arbitrary! { TableMod { table_id, config } }
            .prop_map(M::TableMod)
            .boxed(),
        (any::<bool>(), multipart_request())
            .prop_map(|(more, body)| M::MultipartRequest(Multipart { more, body }))
            .boxed(),
        (any::<bool>(), multipart_reply())
            .prop_map(|(more, body)| M::MultipartReply(Multipart { more, body }))
            .boxed(),
        Just(M::BarrierRequest).boxed(),
        Just(M::BarrierReply).boxed(),
        arbitrary! { M::QueueGetConfigRequest { port } }.boxed(),
        arbitrary! { M::QueueGetConfigReply { port; queues: bytes(100) } }.boxed(),
        role().prop_map(M::RoleRequest).boxed(),
        role().prop_map(M::RoleReply).boxed(),
        Just(M::GetAsyncRequest).boxed(),
        masks().prop_map(M::GetAsyncReply).boxed(),
        masks().prop_map(M::SetAsync).boxed(),
        meter_mod().prop_map(M::MeterMod).boxed(),
    ]
}

/// Any message.
pub fn message() -> impl Strategy<Value = Message> {
    proptest::strategy::Union::new(each_message())
}
