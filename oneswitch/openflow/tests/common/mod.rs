//! Strategies that generate every kind of message, as a controller or a switch
//! could send it.
#![allow(dead_code)]

use openflow13::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Generates a struct: the fields before the semicolon are arbitrary numbers, each of the others has its strategy.
macro_rules! arbitrary {
    ($($type:ident)::+ { $($number:ident),* $(; $($field:ident: $strategy:expr),+)? }) => {
        (any::<[u64; 16]>(), $($($strategy),+)?).prop_map(|(numbers, $($($field),+)?)| {
            let mut _numbers = numbers.into_iter();
            $($type)::+ { $($number: _numbers.next().unwrap() as _,)* $($($field),+)? }
        })
    };
}
pub(crate) use arbitrary;

/// A port that Open vSwitch can output to.
pub fn output_port() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..0xff00, port_no::IN_PORT..=port_no::LOCAL]
}

/// A port that Open vSwitch can name.
pub fn any_port() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..0xff00, port_no::MAX..=port_no::ANY]
}

fn tlv(class: u16, field: u8, value: Vec<u8>, mask: Option<Vec<u8>>) -> Vec<u8> {
    let mut bytes = class.to_be_bytes().to_vec();
    let length = value.len() + mask.as_ref().map_or(0, Vec::len);
    bytes.push(field << 1 | u8::from(mask.is_some()));
    bytes.push(length as u8);
    bytes.extend(value);
    bytes.extend(mask.unwrap_or_default());
    bytes
}

/// Generates a value of `width` bytes, possibly with a mask that fits it.
fn masked(class: u16, field: u8, width: usize) -> impl Strategy<Value = Vec<u8>> {
    (
        vec(any::<u8>(), width),
        proptest::option::of(vec(any::<u8>(), width)),
    )
        .prop_map(move |(mut value, mask)| {
            if let Some(mask) = &mask {
                value.iter_mut().zip(mask).for_each(|(v, m)| *v &= m);
            }
            tlv(class, field, value, mask)
        })
}

fn exact(class: u16, field: u8, width: usize, limit: u32) -> impl Strategy<Value = Vec<u8>> {
    (0..=limit).prop_map(move |value| {
        let bytes = u64::from(value).to_be_bytes();
        tlv(class, field, bytes[8 - width..].to_vec(), None)
    })
}

/// Generates OXM lists that Open vSwitch accepts: fields without prerequisites
/// anywhere, one stack of layers in order.
pub fn oxm() -> impl Strategy<Value = Vec<u8>> {
    let basic = oxm_class::OPENFLOW_BASIC;
    let some = |strategy: BoxedStrategy<Vec<u8>>| {
        proptest::option::weighted(0.4, strategy).prop_map(Option::unwrap_or_default)
    };
    let fixed =
        move |field: u8, value: &[u8]| Just(tlv(basic, field, value.to_vec(), None)).boxed();
    let free = vec![
        exact(basic, 0, 4, 0xfeff).boxed(),
        masked(basic, 2, 8).boxed(),
        masked(basic, 3, 6).boxed(),
        masked(basic, 4, 6).boxed(),
        masked(basic, 38, 8).boxed(),
        masked(oxm_class::NXM_1, 2, 4).boxed(),
        masked(oxm_class::NXM_1, 108, 16).boxed(),
        masked(oxm_class::NXM_1, 44, 8).boxed(),
    ];
    let layers = |must: Vec<BoxedStrategy<Vec<u8>>>, may: Vec<BoxedStrategy<Vec<u8>>>| {
        let may = may.into_iter().map(some).collect::<Vec<_>>().prop_shuffle();
        (must, may).prop_map(|(must, may)| must.into_iter().chain(may).collect::<Vec<_>>())
    };
    let ip = |ethertype: &[u8], protocol: u8, mut may: Vec<BoxedStrategy<Vec<u8>>>| {
        may.extend([
            exact(basic, 8, 1, 63).boxed(),
            exact(basic, 9, 1, 3).boxed(),
        ]);
        layers(vec![fixed(5, ethertype), fixed(10, &[protocol])], may)
    };
    let stack = prop_oneof![
        layers(vec![exact(basic, 5, 2, 0xffff).boxed()], vec![]),
        layers(
            vec![(0x1000u32..0x2000)
                .prop_map(move |vid| { tlv(basic, 6, (vid as u16).to_be_bytes().to_vec(), None) })
                .boxed()],
            vec![exact(basic, 7, 1, 7).boxed()],
        ),
        layers(
            vec![fixed(5, &[0x88, 0x47])],
            vec![exact(basic, 34, 4, 0xf_ffff).boxed()]
        ),
        layers(
            vec![fixed(5, &[8, 6])],
            vec![exact(basic, 21, 2, 2).boxed(), masked(basic, 22, 4).boxed()]
        ),
        ip(
            &[8, 0],
            6,
            vec![
                masked(basic, 11, 4).boxed(),
                masked(basic, 12, 4).boxed(),
                masked(basic, 13, 2).boxed(),
                masked(basic, 14, 2).boxed(),
            ]
        ),
        ip(
            &[0x86, 0xdd],
            17,
            vec![
                masked(basic, 26, 16).boxed(),
                masked(basic, 27, 16).boxed(),
                masked(basic, 15, 2).boxed(),
            ]
        ),
    ];
    let free = free
        .into_iter()
        .map(some)
        .collect::<Vec<_>>()
        .prop_shuffle();
    (free, stack, any::<bool>()).prop_map(|(free, stack, first)| {
        let (before, after) = if first { (free, stack) } else { (stack, free) };
        [before, after].concat().concat()
    })
}

pub fn matching() -> impl Strategy<Value = Match> {
    oxm().prop_map(|oxm| Match::from_oxm(oxm).unwrap())
}

/// A `learn` with any timeouts, priority and cookie, which matches on a tag's id, loads bits and outputs.
fn learn() -> impl Strategy<Value = Vec<u8>> {
    const MATCH: &[u8] = &[0, 12, 0x80, 0, 8, 6, 0, 0, 0x80, 0, 6, 6, 0, 0];
    const LOAD: &[u8] = &[0x28, 16, 0, 1, 0, 1, 0, 4, 0, 0];
    const OUTPUT: &[u8] = &[0x10, 32, 0x80, 0, 0, 4, 0, 0];
    let specs = vec(prop::sample::select(&[MATCH, LOAD, OUTPUT][..]), 0..4);
    (
        any::<[u8; 14]>(),
        0..4_u8,
        0..255_u8,
        any::<[u8; 4]>(),
        specs,
    )
        .prop_map(|(head, flags, table, finishing, specs)| {
            let head = [&head[..], &[0, flags, table, 0], &finishing].concat();
            nicira(16, &[head, specs.concat(), vec![0; 8]].concat())
        })
}

fn nicira(subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20];
    bytes.extend(subtype.to_be_bytes());
    bytes.extend(body);
    bytes.resize(bytes.len().div_ceil(8) * 8, 0);
    let length = (bytes.len() as u16).to_be_bytes();
    bytes[2..4].copy_from_slice(&length);
    bytes
}

fn standard(kind: u16, argument: [u8; 4]) -> Vec<u8> {
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend(8u16.to_be_bytes());
    bytes.extend(argument);
    bytes
}

fn action() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (output_port(), any::<u16>())
            .prop_map(|(port, len)| ActionList::new().output(port, len).as_bytes().to_vec()),
        (0u16..4096).prop_map(|vid| ActionList::new().set_vlan_vid(vid).as_bytes().to_vec()),
        any::<u32>().prop_map(|group| ActionList::new().group(group).as_bytes().to_vec()),
        (prop_oneof![15u16..=24, 1u16..=2], any::<[u8; 4]>()).prop_map(|(kind, argument)| {
            match kind {
                17 => standard(kind, [0x81, 0, argument[2], argument[3]]),
                19 => standard(kind, [0x88, 0x47, argument[2], argument[3]]),
                _ => standard(kind, argument),
            }
        }),
        (
            prop_oneof![Just(1u16), Just(14), Just(34), Just(43)],
            any::<[u8; 6]>()
        )
            .prop_map(|(subtype, body)| nicira(subtype, &body)),
        learn(),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4)
                .prop_map(|list| nicira(42, &[vec![0; 6], list.concat()].concat())),
            vec(inner, 0..4).prop_map(|list| nicira(35, &[vec![0; 14], list.concat()].concat())),
        ]
    })
}

pub fn actions() -> impl Strategy<Value = ActionList> {
    vec(action(), 0..5).prop_map(|list| ActionList::from_bytes(list.concat()).unwrap())
}

pub fn instructions() -> impl Strategy<Value = Instructions> {
    let with_actions = |kind: u8, list: ActionList| {
        let length = (8 + list.as_bytes().len()) as u16;
        let mut bytes = vec![0, kind];
        bytes.extend(length.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(list.as_bytes());
        bytes
    };
    let all = vec![
        any::<u8>()
            .prop_map(|table| vec![0, 1, 0, 8, table, 0, 0, 0])
            .boxed(),
        any::<[u8; 16]>()
            .prop_map(|body| [vec![0, 2, 0, 24, 0, 0, 0, 0], body.to_vec()].concat())
            .boxed(),
        actions()
            .prop_map(move |list| with_actions(3, list))
            .boxed(),
        actions()
            .prop_map(move |list| with_actions(4, list))
            .boxed(),
        Just(vec![0, 5, 0, 8, 0, 0, 0, 0]).boxed(),
        any::<[u8; 4]>()
            .prop_map(|id| [vec![0, 6, 0, 8], id.to_vec()].concat())
            .boxed(),
    ];
    all.into_iter()
        .map(|one| proptest::option::of(one).prop_map(Option::unwrap_or_default))
        .collect::<Vec<_>>()
        .prop_shuffle()
        .prop_map(|list| Instructions::from_bytes(list.concat()).unwrap())
}

pub fn flow_mod() -> impl Strategy<Value = FlowMod> {
    use FlowModCommand as C;
    let commands = [
        C::Add,
        C::Modify,
        C::ModifyStrict,
        C::Delete,
        C::DeleteStrict,
    ];
    arbitrary! { FlowMod {
        cookie, cookie_mask, idle_timeout, hard_timeout, priority, buffer_id, out_group, importance;
        table_id: 0u8..0xff, command: (0usize..5).prop_map(move |command| commands[command]),
        out_port: any_port(), flags: 0u16..0x20, matching: matching(), instructions: instructions()
    } }
}

/// Buckets that fit a group's type, and the type.
pub fn group() -> impl Strategy<Value = (u8, Buckets)> {
    (0u8..4, vec((any::<u16>(), any_port(), actions()), 1..4)).prop_map(|(kind, buckets)| {
        let only = (kind == group_type::INDIRECT).then_some(1);
        let count = only.unwrap_or(buckets.len());
        let built = Buckets::build(buckets.iter().take(count).map(|(weight, port, actions)| {
            let weight = (kind == group_type::SELECT).then_some(*weight);
            let port = (kind == group_type::FAST_FAILOVER).then_some(*port & 0x7fff);
            let port = port.unwrap_or(port_no::ANY);
            (weight.unwrap_or(0), port, group_no::ANY, actions)
        }));
        (kind, built)
    })
}

pub fn group_mod() -> impl Strategy<Value = GroupMod> {
    use GroupModCommand as C;
    (0usize..4, any::<u32>(), group()).prop_map(|(command, group_id, (group_type, buckets))| {
        let command = [C::Add, C::Modify, C::Delete, C::AddOrModify][command];
        let buckets = if command == C::Delete {
            Buckets::default()
        } else {
            buckets
        };
        GroupMod {
            command,
            group_type,
            group_id,
            buckets,
            selection: None,
        }
    })
}

pub fn bands() -> impl Strategy<Value = Box<[u8]>> {
    let band = arbitrary! { MeterBand { rate, burst_size, prec_level; kind: 1u16..3 } };
    vec(band, 0..4).prop_map(|bands| {
        let mut out = Vec::new();
        bands.iter().for_each(|band| band.put(&mut out));
        out.into_boxed_slice()
    })
}

pub fn meter_mod() -> impl Strategy<Value = MeterMod> {
    use MeterModCommand as C;
    let command = (0usize..3).prop_map(|command| [C::Add, C::Modify, C::Delete][command]);
    let flags = prop_oneof![Just(1u16), Just(2), Just(0xd)];
    arbitrary! { MeterMod { meter_id; command: command, flags: flags, bands: bands() } }
}

pub fn port() -> impl Strategy<Value = Port> {
    arbitrary! { Port {
        number, config, state, curr, advertised, supported, peer, curr_speed, max_speed;
        hw_addr: any::<[u8; 6]>(), name: any::<[u8; 16]>()
    } }
}

pub fn bytes(most: usize) -> impl Strategy<Value = Box<[u8]>> {
    vec(any::<u8>(), 0..most).prop_map(Vec::into_boxed_slice)
}

pub fn packet_out() -> impl Strategy<Value = PacketOut> {
    let in_port = prop_oneof![0u32..0xff00, port_no::CONTROLLER..=port_no::ANY];
    arbitrary! { PacketOut { buffer_id, packet_type; in_port: in_port, actions: actions(), data: bytes(200) } }
}

pub fn packet_in() -> impl Strategy<Value = PacketIn> {
    arbitrary! { PacketIn {
        buffer_id, total_len, reason, table_id, cookie; matching: matching(), data: bytes(200)
    } }
}

pub fn flow_removed() -> impl Strategy<Value = FlowRemoved> {
    arbitrary! { FlowRemoved {
        cookie, priority, reason, table_id, duration_sec, duration_nsec, idle_timeout,
        hard_timeout, packet_count, byte_count; matching: matching()
    } }
}
