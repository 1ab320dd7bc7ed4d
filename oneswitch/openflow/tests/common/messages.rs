//! Strategies for the remaining messages, and for any message.

use openflow13::*;
use proptest::collection::vec;
use proptest::prelude::*;

use super::common::*;

fn flow_stats_request() -> impl Strategy<Value = FlowStatsRequest> {
    (any::<(u8, u32, u64, u64)>(), any_port(), matching()).prop_map(
        |((table_id, out_group, cookie, cookie_mask), out_port, matching)| FlowStatsRequest {
            table_id,
            out_port,
            out_group,
            cookie,
            cookie_mask,
            matching,
        },
    )
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
        any::<u32>().prop_map(|port| R::PortStats { port }),
        any::<(u32, u32)>().prop_map(|(port, queue)| R::Queue { port, queue }),
        any::<u32>().prop_map(|group| R::Group { group }),
        any::<u32>().prop_map(|meter| R::Meter { meter }),
        any::<u32>().prop_map(|meter| R::MeterConfig { meter }),
        vec(any::<[u8; 8]>(), 0..20).prop_map(|b| R::TableFeatures(b.concat().into())),
        (any::<(u32, u32)>(), bytes(40)).prop_map(|((vendor, subtype), body)| R::Experimenter {
            vendor,
            subtype,
            body
        }),
    ]
}

prop_compose! {
    pub fn flow_stats()(
        (table_id, duration_sec, duration_nsec, priority) in any::<(u8, u32, u32, u16)>(),
        (idle_timeout, hard_timeout, flags) in any::<(u16, u16, u16)>(),
        (cookie, packet_count, byte_count) in any::<(u64, u64, u64)>(),
        matching in matching(),
        instructions in instructions(),
    ) -> FlowStats {
        FlowStats {
            table_id, duration_sec, duration_nsec, priority, idle_timeout, hard_timeout, flags,
            cookie, packet_count, byte_count, matching, instructions,
        }
    }
}

fn port_stats() -> impl Strategy<Value = PortStats> {
    (any::<(u32, u32, u32)>(), any::<[u64; 12]>()).prop_map(
        |((port_no, duration_sec, duration_nsec), [a, b, c, d, e, f, g, h, i, j, k, l])| {
            PortStats {
                port_no,
                rx_packets: a,
                tx_packets: b,
                rx_bytes: c,
                tx_bytes: d,
                rx_dropped: e,
                tx_dropped: f,
                rx_errors: g,
                tx_errors: h,
                rx_frame_err: i,
                rx_over_err: j,
                rx_crc_err: k,
                collisions: l,
                duration_sec,
                duration_nsec,
            }
        },
    )
}

fn queue_stats() -> impl Strategy<Value = QueueStats> {
    (any::<[u32; 4]>(), any::<[u64; 3]>()).prop_map(
        |([port_no, queue_id, duration_sec, duration_nsec], [tx_bytes, tx_packets, tx_errors])| {
            QueueStats {
                port_no,
                queue_id,
                tx_bytes,
                tx_packets,
                tx_errors,
                duration_sec,
                duration_nsec,
            }
        },
    )
}

fn group_stats() -> impl Strategy<Value = GroupStats> {
    (
        any::<[u32; 4]>(),
        any::<[u64; 2]>(),
        vec(any::<(u64, u64)>(), 0..4),
    )
        .prop_map(
            |(
                [group_id, ref_count, duration_sec, duration_nsec],
                [packet_count, byte_count],
                buckets,
            )| {
                GroupStats {
                    group_id,
                    ref_count,
                    packet_count,
                    byte_count,
                    duration_sec,
                    duration_nsec,
                    buckets: buckets
                        .into_iter()
                        .map(|(packet_count, byte_count)| BucketCounter {
                            packet_count,
                            byte_count,
                        })
                        .collect(),
                }
            },
        )
}

fn meter_stats() -> impl Strategy<Value = MeterStats> {
    (
        any::<[u32; 4]>(),
        any::<[u64; 2]>(),
        vec(any::<(u64, u64)>(), 0..4),
    )
        .prop_map(
            |(
                [meter_id, flow_count, duration_sec, duration_nsec],
                [packet_in_count, byte_in_count],
                bands,
            )| {
                MeterStats {
                    meter_id,
                    flow_count,
                    packet_in_count,
                    byte_in_count,
                    duration_sec,
                    duration_nsec,
                    bands: bands
                        .into_iter()
                        .map(|(packet_count, byte_count)| MeterBandStats {
                            packet_count,
                            byte_count,
                        })
                        .collect(),
                }
            },
        )
}

fn text(most: usize) -> impl Strategy<Value = Box<[u8]>> {
    vec(1u8.., 0..most).prop_map(Vec::into_boxed_slice)
}

fn desc() -> impl Strategy<Value = SwitchDesc> {
    (text(256), text(256), text(256), text(32), text(256)).prop_map(
        |(manufacturer, hardware, software, serial, datapath)| SwitchDesc {
            manufacturer,
            hardware,
            software,
            serial,
            datapath,
        },
    )
}

pub fn multipart_reply() -> impl Strategy<Value = MultipartReply> {
    use MultipartReply as R;
    prop_oneof![
        desc().prop_map(R::Desc),
        vec(flow_stats(), 0..4).prop_map(R::Flow),
        any::<(u64, u64, u32)>().prop_map(|(packet_count, byte_count, flow_count)| R::Aggregate {
            packet_count,
            byte_count,
            flow_count
        }),
        vec(any::<(u8, u32, u64, u64)>(), 0..4).prop_map(|tables| R::Table(
            tables
                .into_iter()
                .map(
                    |(table_id, active_count, lookup_count, matched_count)| TableStats {
                        table_id,
                        active_count,
                        lookup_count,
                        matched_count
                    }
                )
                .collect()
        )),
        vec(port_stats(), 0..4).prop_map(R::PortStats),
        vec(queue_stats(), 0..4).prop_map(R::Queue),
        vec(group_stats(), 0..4).prop_map(R::Group),
        vec((any::<u32>(), group()), 0..4).prop_map(|groups| R::GroupDesc(
            groups
                .into_iter()
                .map(|(group_id, (group_type, buckets))| GroupDesc {
                    group_type,
                    group_id,
                    buckets
                })
                .collect()
        )),
        any::<(u32, u32, [u32; 4], [u32; 4])>().prop_map(
            |(types, capabilities, max_groups, actions)| {
                R::GroupFeatures(GroupFeatures {
                    types,
                    capabilities,
                    max_groups,
                    actions,
                })
            }
        ),
        vec(meter_stats(), 0..4).prop_map(R::Meter),
        vec((any::<(u16, u32)>(), bands()), 0..4).prop_map(|meters| R::MeterConfig(
            meters
                .into_iter()
                .map(|((flags, meter_id), bands)| MeterConfig {
                    flags,
                    meter_id,
                    bands
                })
                .collect()
        )),
        any::<(u32, u32, u32, u8, u8)>().prop_map(
            |(max_meter, band_types, capabilities, max_bands, max_color)| {
                R::MeterFeatures(MeterFeatures {
                    max_meter,
                    band_types,
                    capabilities,
                    max_bands,
                    max_color,
                })
            }
        ),
        bytes(300).prop_map(R::TableFeatures),
        vec(port(), 0..4).prop_map(R::PortDesc),
        (any::<(u32, u32)>(), bytes(40)).prop_map(|((vendor, subtype), body)| R::Experimenter {
            vendor,
            subtype,
            body
        }),
    ]
}

fn masks() -> impl Strategy<Value = AsyncMasks> {
    any::<[[u32; 2]; 3]>().prop_map(|[packet_in, port_status, flow_removed]| AsyncMasks {
        packet_in,
        port_status,
        flow_removed,
    })
}

fn role() -> impl Strategy<Value = Role> {
    (0u32..4, any::<u64>()).prop_map(|(role, generation_id)| Role {
        role,
        generation_id,
    })
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
    vec![
        (any::<(u8, Option<u32>)>())
            .prop_map(|(version, bitmap)| M::Hello(Hello { version, bitmap }))
            .boxed(),
        error().prop_map(M::Error).boxed(),
        bytes(100).prop_map(|b| M::EchoRequest(b.into())).boxed(),
        bytes(100).prop_map(|b| M::EchoReply(b.into())).boxed(),
        (any::<(u32, u32)>(), bytes(100))
            .prop_map(|((vendor, subtype), body)| {
                M::Experimenter(Experimenter {
                    vendor,
                    subtype,
                    body,
                })
            })
            .boxed(),
        Just(M::FeaturesRequest).boxed(),
        any::<(u64, u32, u8, u8, u32, u32)>()
            .prop_map(
                |(datapath_id, n_buffers, n_tables, auxiliary_id, capabilities, reserved)| {
                    M::FeaturesReply(Features {
                        datapath_id,
                        n_buffers,
                        n_tables,
                        auxiliary_id,
                        capabilities,
                        reserved,
                    })
                },
            )
            .boxed(),
        Just(M::GetConfigRequest).boxed(),
        any::<(u16, u16)>()
            .prop_map(|(flags, miss_send_len)| {
                M::GetConfigReply(SwitchConfig {
                    flags,
                    miss_send_len,
                })
            })
            .boxed(),
        (0u16..4, any::<u16>())
            .prop_map(|(flags, miss_send_len)| {
                M::SetConfig(SwitchConfig {
                    flags,
                    miss_send_len,
                })
            })
            .boxed(),
        packet_in().prop_map(M::PacketIn).boxed(),
        flow_removed().prop_map(M::FlowRemoved).boxed(),
        (any::<u8>(), port())
            .prop_map(|(reason, port)| M::PortStatus(PortStatus { reason, port }))
            .boxed(),
        packet_out().prop_map(M::PacketOut).boxed(),
        flow_mod().prop_map(M::FlowMod).boxed(),
        group_mod().prop_map(M::GroupMod).boxed(),
        any::<(u32, [u8; 6], u32, u32, u32)>()
            .prop_map(|(port, hw_addr, config, mask, advertise)| {
                M::PortMod(PortMod {
                    port,
                    hw_addr,
                    config,
                    mask,
                    advertise,
                })
            })
            .boxed(),
        any::<(u8, u32)>()
            .prop_map(|(table_id, config)| M::TableMod(TableMod { table_id, config }))
            .boxed(),
        (any::<bool>(), multipart_request())
            .prop_map(|(more, body)| M::MultipartRequest(Multipart { more, body }))
            .boxed(),
        (any::<bool>(), multipart_reply())
            .prop_map(|(more, body)| M::MultipartReply(Multipart { more, body }))
            .boxed(),
        Just(M::BarrierRequest).boxed(),
        Just(M::BarrierReply).boxed(),
        any::<u32>()
            .prop_map(|port| M::QueueGetConfigRequest { port })
            .boxed(),
        (any::<u32>(), bytes(100))
            .prop_map(|(port, queues)| M::QueueGetConfigReply { port, queues })
            .boxed(),
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
