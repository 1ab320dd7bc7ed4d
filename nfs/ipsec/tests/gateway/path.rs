//! The path between gateways: its MTU, "don't fragment", congestion.

use crate::common::{frame, headers, sent, with_header, Pair, INSIDE, OUTSIDE, WEST};
use crate::{dropped, protected, SECOND};
use nf_packet::{icmp4, icmp6, Icmp};
use nf_runtime::testing::Output;
use serde_json::json;

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
