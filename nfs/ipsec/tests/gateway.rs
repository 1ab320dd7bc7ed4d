//! Two gateways with a tunnel: what passes, what is dropped, and why.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{
    esp, frame, headers, numbers, packet, payload, put, sent, with_header, Gateway, Pair, EAST,
    HOSTS, INSIDE, OUTSIDE, WEST,
};
use nf_ipsec::Ipsec;
use nf_packet::{icmp4, icmp6, Icmp};
use nf_runtime::{
    testing::{Harness, Output},
    NetworkFunction,
};
use proptest::prelude::*;
use serde_json::json;

const SECOND: u64 = 1_000_000_000;

fn dropped(reason: &'static str) -> Output {
    Output::Dropped(reason)
}

/// Protects a packet with `payload` at the west gateway.
#[track_caller]
fn protected(west: &mut Gateway, payload: &[u8]) -> Vec<u8> {
    sent(west.process(INSIDE, &frame(WEST, false, payload)), OUTSIDE)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn packets_arrive_as_they_were(
        outer_v6: bool, inner_v6: bool, udp: bool, esn: bool, long: bool, class in 0_u8..=255,
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1350), 1..4),
    ) {
        let material = if long { 36 } else { 20 };
        let pair = Pair { is_ipv6: outer_v6, udp, esn, material, ..Pair::default() };
        let [mut west, mut east] = pair.gateways();
        for payload in payloads {
            let mut original = frame(WEST, inner_v6, &payload);
            match inner_v6 {
                true => original[15] = class << 4,
                false => original = with_header(original, |header| header[1] = class),
            }
            let outer = sent(west.process(INSIDE, &original), OUTSIDE);
            prop_assert!(outer.len() <= 1514);
            prop_assert!(!outer.windows(16).any(|part| payload.len() > 16 && part == &payload[..16]));
            let arrived = sent(east.process(OUTSIDE, &outer), INSIDE);
            prop_assert_eq!(&arrived[..6], &common::HOST_MAC);
            // Both gateways are routers.
            match inner_v6 {
                true => original[21] -= 2,
                false => original = with_header(original, |header| header[8] -= 2),
            }
            prop_assert_eq!(&arrived[14..], &original[14..]);
        }
    }

    #[test]
    fn a_damaged_packet_is_dropped_and_the_next_one_passes(udp: bool, at in any::<prop::sample::Index>(), bit in 0_u8..8, cut in any::<prop::sample::Index>()) {
        let [mut west, mut east] = Pair { udp, ..Pair::default() }.gateways();
        let outer = protected(&mut west, b"0123456789");
        let mut damaged = outer.clone();
        let start = esp(&outer);
        let at = start + at.index(outer.len() - start);
        damaged[at] ^= 1 << bit;
        prop_assert!(matches!(east.process(OUTSIDE, &damaged), Output::Dropped(_)));
        let length = cut.index(outer.len());
        prop_assert!(matches!(east.process(OUTSIDE, &outer[..length]), Output::Dropped(_)));
        sent(east.process(OUTSIDE, &outer), INSIDE);
    }
}

#[test]
fn packets_are_dropped_by_reason() {
    let pair = Pair {
        esn: false,
        ..Pair::default()
    };
    let [mut west, mut east] = pair.gateways();
    let outer = protected(&mut west, b"once");
    let start = esp(&outer);
    let with = |at: usize, value: u8| {
        let mut changed = outer.clone();
        changed[at] ^= value;
        changed
    };
    assert_eq!(
        east.process(OUTSIDE, &with(start, 1)),
        dropped("esp: unknown SPI")
    );
    for at in [start + 6, start + 8, start + 20, outer.len() - 1] {
        assert_eq!(
            east.process(OUTSIDE, &with(at, 1)),
            dropped("esp: forged"),
            "{at}"
        );
    }
    let cut = |bytes: usize| {
        let cut = outer[..bytes].to_vec();
        let length = (bytes - 14) as u16;
        with_header(cut, |header| {
            header[2..4].copy_from_slice(&length.to_be_bytes())
        })
    };
    assert_eq!(
        east.process(OUTSIDE, &cut(start + 20)),
        dropped("esp: truncated")
    );
    assert_eq!(
        east.process(OUTSIDE, &cut(outer.len() - 1)),
        dropped("esp: length")
    );
    assert_eq!(
        east.process(OUTSIDE, &cut(outer.len() - 4)),
        dropped("esp: forged")
    );
    sent(east.process(OUTSIDE, &outer), INSIDE);
    assert_eq!(east.process(OUTSIDE, &outer), dropped("esp: replayed"));
    for _ in 0..64 {
        let next = protected(&mut west, b"more");
        sent(east.process(OUTSIDE, &next), INSIDE);
    }
    assert_eq!(
        east.process(OUTSIDE, &outer),
        dropped("esp: behind the window")
    );
    let fragment = with_header(outer.clone(), |header| header[6] = 0x20);
    assert_eq!(east.process(OUTSIDE, &fragment), dropped("esp: fragment"));
}

#[test]
fn only_selected_packets_pass_either_way() {
    let [mut west, _] = Pair::default().gateways();
    let elsewhere = packet(
        [HOSTS[WEST][0], "10.9.0.1"].map(|each| each.parse().unwrap()),
        b"x",
    );
    assert_eq!(
        west.process(INSIDE, &elsewhere),
        dropped("no tunnel selects it")
    );
    // The east takes only port 9000, so the west's packets are of another tunnel's flows.
    let narrow = json!({"selectors": [{"local": "10.2.0.0/24", "remote": "10.1.0.0/24", "protocol": 17, "local_ports": [8001, 9000]}]});
    let pair = Pair {
        tunnel: narrow,
        ..Pair::default()
    };
    let mut east = Harness::<Ipsec>::new(pair.config(EAST)).unwrap();
    let outer = protected(&mut west, b"x");
    assert_eq!(east.process(OUTSIDE, &outer), dropped("esp: selector"));
    assert_eq!(
        east.process(OUTSIDE, &frame(WEST, false, b"plain")),
        dropped("not for the gateway")
    );
    let mut plain = frame(WEST, false, b"plain");
    plain[5] = 1;
    assert_eq!(east.process(OUTSIDE, &plain), dropped("unprotected"));
    let later = with_header(frame(EAST, false, b"12345678"), |header| header[7] = 2);
    assert_eq!(
        east.process(INSIDE, &later),
        dropped("no tunnel selects it")
    );
}

#[test]
fn a_tunnel_takes_its_own_encapsulation_only() {
    let [mut west, mut east] = Pair::default().gateways();
    let [mut west_udp, mut east_udp] = Pair {
        udp: true,
        ..Pair::default()
    }
    .gateways();
    let plain = protected(&mut west, b"x");
    let udp = protected(&mut west_udp, b"x");
    assert_eq!(headers(&udp).destination_port, 4500);
    assert_eq!(
        east_udp.process(OUTSIDE, &plain),
        dropped("esp: encapsulation")
    );
    assert_eq!(east.process(OUTSIDE, &udp), dropped("esp: encapsulation"));
    let mut ike = udp.clone();
    ike[42..46].fill(0);
    assert_eq!(east_udp.process(OUTSIDE, &ike), dropped("not ESP in UDP"));
}

#[test]
fn a_long_packet_is_answered_and_one_as_long_as_told_passes() {
    for (udp, outer_v6) in [(false, false), (true, false), (false, true), (true, true)] {
        let pair = Pair {
            udp,
            is_ipv6: outer_v6,
            ..Pair::default()
        };
        let [mut west, mut east] = pair.gateways();
        for inner_v6 in [false, true] {
            let header = if inner_v6 { 48 } else { 28 };
            let long = frame(WEST, inner_v6, &vec![7; 1500 - header]);
            assert_eq!(west.process(INSIDE, &long), dropped("too big"));
            let answer = west.take_emitted().pop().unwrap();
            assert_eq!(answer.0, INSIDE);
            let found = headers(&answer.1);
            let message = Icmp::new_checked(found.segment(&answer.1)).unwrap();
            let kind = if inner_v6 {
                icmp6::PACKET_TOO_BIG
            } else {
                icmp4::UNREACHABLE
            };
            assert_eq!(message.kind(), kind);
            let told = message.argument() as usize;
            let most = sent(
                west.process(INSIDE, &frame(WEST, inner_v6, &vec![7; told - header])),
                OUTSIDE,
            );
            assert!((1511..=1514).contains(&most.len()), "{}", most.len());
            sent(east.process(OUTSIDE, &most), INSIDE);
            let more = frame(WEST, inner_v6, &vec![7; told + 1 - header]);
            assert_eq!(west.process(INSIDE, &more), dropped("too big"));
        }
        west.take_emitted();
        let may = with_header(frame(WEST, false, &[7; 1472]), |header| header[6] = 0);
        assert_eq!(west.process(INSIDE, &may), dropped("too big"));
        assert!(west.take_emitted().is_empty(), "its sender did not ask");
    }
}

#[test]
fn a_router_between_lowers_the_path_mtu_for_ten_minutes() {
    let [mut west, _] = Pair::default().gateways();
    let outer = protected(&mut west, b"x");
    let found = headers(&outer);
    let mut error = nf_balancing::frames::Frame::too_big(&outer, &found, 1000)
        .unwrap()
        .bytes()
        .to_vec();
    error[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9]);
    let long = frame(WEST, false, &[7; 1000]);
    sent(west.process(INSIDE, &long), OUTSIDE);
    assert_eq!(west.process(OUTSIDE, &error), dropped("path MTU noted"));
    assert_eq!(west.process(INSIDE, &long), dropped("too big"));
    let mut west = west.adopting(Pair::default().config(WEST)).unwrap();
    assert_eq!(west.process(INSIDE, &long), dropped("too big"));
    west.advance(600 * SECOND);
    sent(west.process(INSIDE, &long), OUTSIDE);
    // An error about a packet that this gateway did not send.
    let at = 14 + 20 + 8 + 20;
    error[at] ^= 1;
    let length = error.len();
    Icmp::new_checked(&mut error[34..length])
        .unwrap()
        .fill_checksum([192, 0, 2, 2].into(), [192, 0, 2, 1].into());
    assert_eq!(
        west.process(OUTSIDE, &error),
        dropped("not for the gateway")
    );
}

#[test]
fn dont_fragment_is_copied_set_or_cleared() {
    for (value, expected) in [
        ("copy", [true, false]),
        ("set", [true, true]),
        ("clear", [false, false]),
    ] {
        let pair = Pair {
            tunnel: json!({"dont_fragment": value}),
            ..Pair::default()
        };
        let [mut west, mut east] = pair.gateways();
        for (inner, expected) in [0x40, 0].into_iter().zip(expected) {
            let frame = with_header(frame(WEST, false, b"x"), |header| header[6] = inner);
            let outer = sent(west.process(INSIDE, &frame), OUTSIDE);
            assert_eq!(outer[20] & 0x40 != 0, expected, "{value} {inner}");
            sent(east.process(OUTSIDE, &outer), INSIDE);
        }
    }
}

#[test]
fn congestion_on_the_way_reaches_the_receiver() {
    let [mut west, mut east] = Pair::default().gateways();
    for (inner, expected) in [(0, None), (1, Some(3)), (2, Some(3))] {
        let frame = with_header(frame(WEST, false, b"x"), |header| header[1] = inner);
        let outer = sent(west.process(INSIDE, &frame), OUTSIDE);
        assert_eq!(outer[15], inner);
        let marked = with_header(outer, |header| header[1] |= 3);
        match (east.process(OUTSIDE, &marked), expected) {
            (Output::Sent(_, frame), Some(bits)) => assert_eq!(frame[15], bits),
            (Output::Dropped(reason), None) => assert!(reason.contains("congestion")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_peer_behind_a_nat_is_followed_also_after_a_move() {
    let pair = Pair {
        udp: true,
        ..Pair::default()
    };
    let [mut west, mut east] = pair.gateways();
    let behind_nat = |outer: &[u8], port: u16| {
        let mut outer = outer.to_vec();
        outer[34..36].copy_from_slice(&port.to_be_bytes());
        outer
    };
    let first = protected(&mut west, b"1");
    let back = frame(EAST, false, b"back");
    assert_eq!(
        headers(&sent(east.process(INSIDE, &back), OUTSIDE)).destination_port,
        4500
    );
    let mut forged = behind_nat(&first, 40_000);
    let last = forged.len() - 1;
    forged[last] ^= 1;
    east.process(OUTSIDE, &forged);
    assert_eq!(
        headers(&sent(east.process(INSIDE, &back), OUTSIDE)).destination_port,
        4500
    );
    let second = protected(&mut west, b"2");
    sent(east.process(OUTSIDE, &behind_nat(&second, 50_000)), INSIDE);
    // An older packet by another way does not lead back.
    sent(east.process(OUTSIDE, &behind_nat(&first, 60_000)), INSIDE);
    assert_eq!(
        headers(&sent(east.process(INSIDE, &back), OUTSIDE)).destination_port,
        50_000
    );
    let mut east = east.adopting(pair.config(EAST)).unwrap();
    assert_eq!(
        headers(&sent(east.process(INSIDE, &back), OUTSIDE)).destination_port,
        50_000
    );
}

#[test]
fn a_silent_tunnel_keeps_its_mapping_alive() {
    let pair = Pair {
        udp: true,
        tunnel: json!({"keepalive": "20s"}),
        ..Pair::default()
    };
    let [mut west, mut east] = pair.gateways();
    let alive = |west: &mut Gateway| {
        west.take_emitted();
        west.tick();
        let frames = west.take_emitted().into_iter().map(|each| each.1);
        let mut frames = frames.filter(|frame| frame[12..14] == [8, 0] && frame[23] == 17);
        frames.next()
    };
    protected(&mut west, b"x");
    west.advance(19 * SECOND);
    assert_eq!(alive(&mut west), None);
    west.advance(SECOND);
    let keepalive = alive(&mut west).unwrap();
    assert_eq!(payload(&keepalive), [0xff]);
    assert_eq!(east.process(OUTSIDE, &keepalive), dropped("keepalive"));
    assert_eq!(alive(&mut west), None);
}

#[test]
fn a_used_up_association_gives_way_to_the_next_one() {
    let soft = json!({"soft": {"packets": 3}, "hard": {"packets": 5}});
    let pair = Pair {
        keys: vec![1, 2],
        association: soft,
        ..Pair::default()
    };
    let [mut west, mut east] = pair.gateways();
    let mut spis = Vec::new();
    for _ in 0..10 {
        let outer = protected(&mut west, b"x");
        spis.push(numbers(&outer).0);
        sent(east.process(OUTSIDE, &outer), INSIDE);
    }
    let [first, second] = [1, 2].map(|number| Pair::spi(number, WEST));
    let expected = [[first; 3], [second; 3]].concat();
    assert_eq!(spis[..6], expected);
    assert_eq!(spis[6..8], [first; 2]);
    assert_eq!(spis[8..], [second; 2]);
    assert_eq!(
        west.process(INSIDE, &frame(WEST, false, b"x")),
        dropped("no usable association")
    );
}

#[test]
fn lifetimes_end_by_bytes_and_by_time_and_move() {
    let pair = Pair {
        association: json!({"hard": {"bytes": 100}}),
        ..Pair::default()
    };
    let [mut west, _] = pair.gateways();
    for _ in 0..2 {
        protected(&mut west, &[0; 22]);
    }
    let mut west = west.adopting(pair.config(WEST)).unwrap();
    assert_eq!(
        west.process(INSIDE, &frame(WEST, false, b"x")),
        dropped("no usable association")
    );
    let pair = Pair {
        association: json!({"hard": {"time": "10s"}}),
        ..Pair::default()
    };
    let [mut west, _] = pair.gateways();
    west.advance(9 * SECOND);
    protected(&mut west, b"x");
    west.advance(SECOND);
    assert_eq!(
        west.process(INSIDE, &frame(WEST, false, b"x")),
        dropped("no usable association")
    );
    let shown = west.counters();
    let usable = "association_usable{tunnel=\"t\",direction=\"outbound\",spi=\"0x00001001\"}";
    assert_eq!(shown[usable], 0);
}

#[test]
fn a_rekey_loses_nothing_and_old_packets_still_arrive() {
    let pair = Pair::default();
    let [mut west, mut east] = pair.gateways();
    let old = [b"a", b"b"].map(|text| protected(&mut west, text));
    let both = Pair {
        keys: vec![2, 1],
        ..Pair::default()
    };
    east.function().configure(both.config(EAST)).unwrap();
    west.function().configure(both.config(WEST)).unwrap();
    let new = protected(&mut west, b"c");
    assert_eq!(numbers(&new).0, Pair::spi(2, WEST));
    sent(east.process(OUTSIDE, &old[0]), INSIDE);
    sent(east.process(OUTSIDE, &new), INSIDE);
    assert_eq!(east.process(OUTSIDE, &old[0]), dropped("esp: replayed"));
    sent(east.process(OUTSIDE, &old[1]), INSIDE);
    let only = Pair {
        keys: vec![2],
        ..Pair::default()
    };
    east.function().configure(only.config(EAST)).unwrap();
    assert_eq!(east.process(OUTSIDE, &old[1]), dropped("esp: unknown SPI"));
    // The first key comes back, and continues.
    west.function().configure(pair.config(WEST)).unwrap();
    east.function().configure(pair.config(EAST)).unwrap();
    let again = protected(&mut west, b"d");
    assert_eq!(numbers(&again).1, 3);
    assert_eq!(east.process(OUTSIDE, &old[1]), dropped("esp: replayed"));
    sent(east.process(OUTSIDE, &again), INSIDE);
}

#[test]
fn extended_numbers_pass_the_end_of_32_bits_and_short_ones_end() {
    const NEAR: u64 = u32::MAX as u64 - 2;
    for esn in [true, false] {
        let pair = Pair {
            esn,
            ..Pair::default()
        };
        let [west, east] = pair.gateways();
        put(&west, "outbound keys", 6, NEAR);
        put(&east, "inbound keys", 5, NEAR);
        let mut west = west.adopting(pair.config(WEST)).unwrap();
        let mut east = east.adopting(pair.config(EAST)).unwrap();
        for text in [b"a", b"b"] {
            let outer = protected(&mut west, text);
            sent(east.process(OUTSIDE, &outer), INSIDE);
        }
        if esn {
            let late = protected(&mut west, b"0");
            for _ in 0..40 {
                let outer = protected(&mut west, b"c");
                sent(east.process(OUTSIDE, &outer), INSIDE);
            }
            sent(east.process(OUTSIDE, &late), INSIDE);
            assert_eq!(east.process(OUTSIDE, &late), dropped("esp: replayed"));
        } else {
            let output = west.process(INSIDE, &frame(WEST, false, b"x"));
            assert_eq!(output, dropped("no usable association"));
        }
    }
}

#[test]
fn a_distrusted_window_refuses_until_the_rekey() {
    let [mut west, mut east] = Pair::default().gateways();
    let answer = east
        .function()
        .control("distrust", &json!({}))
        .unwrap()
        .unwrap();
    assert_eq!(answer, json!({"associations": 1}));
    let outer = protected(&mut west, b"x");
    assert_eq!(
        east.process(OUTSIDE, &outer),
        dropped("esp: window distrusted")
    );
    let mut east = east.adopting(Pair::default().config(EAST)).unwrap();
    assert_eq!(
        east.process(OUTSIDE, &outer),
        dropped("esp: window distrusted")
    );
    let both = Pair {
        keys: vec![2, 1],
        ..Pair::default()
    };
    for gateway in [(&west, WEST), (&east, EAST)] {
        gateway
            .0
            .function()
            .configure(both.config(gateway.1))
            .unwrap();
    }
    sent(east.process(OUTSIDE, &protected(&mut west, b"y")), INSIDE);
}

#[test]
fn answers_show_counts_and_no_key() {
    let [mut west, mut east] = Pair {
        udp: true,
        ..Pair::default()
    }
    .gateways();
    for _ in 0..3 {
        let outer = protected(&mut west, b"x");
        sent(east.process(OUTSIDE, &outer), INSIDE);
    }
    let shown = east
        .function()
        .control("show", &json!({}))
        .unwrap()
        .unwrap();
    let tunnel = &shown["tunnels"][0];
    assert_eq!(
        (&tunnel["peer"], &tunnel["port"]),
        (&json!("192.0.2.1"), &json!(4500))
    );
    let inbound = &tunnel["associations"][1];
    for (key, value) in [
        ("direction", json!("inbound")),
        ("packets", json!(3)),
        ("bytes", json!(87)),
        ("sequence", json!(3)),
        ("state", json!("active")),
        ("bits", json!(128)),
    ] {
        assert_eq!(inbound[key], value, "{key}");
    }
    let config = Pair::default().config(WEST);
    let key = "0100".repeat(3);
    for text in [
        shown.to_string(),
        west.counters().to_string(),
        format!("{config:?}"),
    ] {
        assert!(!text.contains(&key), "{text}");
    }
    // Moves start the next instance with the configuration of the old one, so that has them.
    assert!(serde_json::to_string(&config).unwrap().contains(&key));
}

#[test]
fn the_state_has_no_key() {
    let [mut west, _] = Pair::default().gateways();
    protected(&mut west, b"x");
    let key = [1, 0, 1, 0, 1, 0, 1, 0].map(|byte: u8| byte);
    let word = u64::from_le_bytes(key);
    for region in west.arena().regions() {
        use nf_arena::Memory;
        let mut words = region.words().iter();
        assert!(words.all(|each| each.load(std::sync::atomic::Ordering::Relaxed) != word));
    }
}

#[test]
fn wrong_configurations_are_refused_with_their_place() {
    let base = || Pair::default().json(WEST);
    let cases = [
        (
            "/tunnels/0/outbound/0/secret",
            json!("abcd"),
            "tunnels[0].outbound[0].secret: 2 bytes, expected 20 (AES-128) or 36",
        ),
        (
            "/tunnels/0/outbound/0/secret",
            json!("********"),
            "tunnels[0].outbound[0].secret: a character is not a hexadecimal digit",
        ),
        (
            "/tunnels/0/outbound/0/spi",
            json!(255),
            "tunnels[0].outbound[0].spi: 255, expected 256 or more",
        ),
        (
            "/tunnels/0/inbound/0/window",
            json!(8192),
            "tunnels[0].inbound[0].window: 8192, expected 32 to 4096",
        ),
        (
            "/tunnels/0/local",
            json!("192.0.2.9"),
            "tunnels[0].local: 192.0.2.9 is not an address of interfaces[1]",
        ),
        (
            "/tunnels/0/remote",
            json!("198.51.100.1"),
            "tunnels[0].remote: 198.51.100.1 is not on the link of interfaces[1]",
        ),
        (
            "/tunnels/0/remote",
            json!("2001:db8::2"),
            "tunnels[0].remote: 2001:db8::2, expected the IP version of `local`",
        ),
        (
            "/tunnels/0/selectors",
            json!([]),
            "tunnels[0].selectors: empty",
        ),
        ("/keys", json!(0), "keys: 0, expected 1 to 65536"),
    ];
    for (place, value, expected) in cases {
        let mut config = base();
        *config.pointer_mut(place).unwrap() = value;
        let config = serde_json::from_value(config).unwrap();
        let refusal = Harness::<Ipsec>::new(config).map(drop).unwrap_err();
        assert!(refusal.detail.starts_with(expected), "{}", refusal.detail);
    }
    let mut twice = base();
    twice["tunnels"][0]["inbound"][0]["secret"] =
        twice["tunnels"][0]["outbound"][0]["secret"].clone();
    let refusal = Harness::<Ipsec>::new(serde_json::from_value(twice).unwrap())
        .map(drop)
        .unwrap_err();
    assert!(
        refusal
            .detail
            .contains("is also the key of tunnels[0].outbound[0].secret"),
        "{}",
        refusal.detail
    );
}

#[test]
fn a_key_may_come_from_a_file_and_too_many_keys_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0x".to_owned() + &"0100".repeat(10) + "\n").unwrap();
    let mut config = Pair::default().json(WEST);
    let association = &mut config["tunnels"][0]["outbound"][0];
    association.as_object_mut().unwrap().remove("secret");
    association["secret_file"] = json!(file.path());
    let mut west = Harness::<Ipsec>::new(serde_json::from_value(config.clone()).unwrap()).unwrap();
    let [_, mut east] = Pair::default().gateways();
    sent(east.process(OUTSIDE, &protected(&mut west, b"x")), INSIDE);
    std::fs::write(file.path(), "secret words").unwrap();
    let refusal = west
        .function()
        .configure(serde_json::from_value(config).unwrap())
        .unwrap_err();
    assert!(
        refusal.detail.contains("secret_file: a character"),
        "{}",
        refusal.detail
    );
    assert!(!refusal.detail.contains("words"));
    for number in 2..=16 {
        let pair = Pair {
            keys: vec![number],
            ..Pair::default()
        };
        west.function().configure(pair.config(WEST)).unwrap();
    }
    let pair = Pair {
        keys: vec![17],
        ..Pair::default()
    };
    let refusal = west.function().configure(pair.config(WEST)).unwrap_err();
    assert!(
        refusal.detail.starts_with("keys: 16, but"),
        "{}",
        refusal.detail
    );
}
