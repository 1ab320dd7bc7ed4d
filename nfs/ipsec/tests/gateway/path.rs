//! The path between gateways: its MTU, "don't fragment", congestion.

use crate::common::{frame, headers, sent, with_header, Pair, INSIDE, OUTSIDE, WEST};
use crate::{dropped, protected, SECOND};
use nf_packet::{checksum, icmp4, icmp6, Icmp};
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

/// The checksum covers the encrypted part, so it comes last. Over IPv4, it is zero (RFC 3948, 2.1).
#[test]
fn datagrams_over_ipv6_have_the_checksum_of_what_they_carry() {
    for is_ipv6 in [false, true] {
        let pair = Pair {
            udp: true,
            is_ipv6,
            ..Pair::default()
        };
        let [mut west, _] = pair.gateways();
        for length in [1, 2, 1000] {
            let outer = protected(&mut west, &vec![7; length]);
            let found = headers(&outer);
            let datagram = found.segment(&outer);
            let ends = (found.source(&outer), found.destination(&outer));
            let pseudo = checksum::pseudo_header(ends.0, ends.1, 17, datagram.len() as u32);
            match is_ipv6 {
                true => assert_eq!(checksum::fold(checksum::sum(datagram) + pseudo), 0xffff),
                false => assert_eq!(datagram[6..8], [0, 0]),
            }
        }
    }
}

#[test]
fn the_end_of_the_time_to_live_is_told_to_the_sender() {
    for is_ipv6 in [false, true] {
        let [mut west, _] = Pair::default().gateways();
        let whole = frame(WEST, is_ipv6, b"a probe of traceroute");
        let last = match is_ipv6 {
            false => with_header(whole, |header| header[8] = 1),
            true => [&whole[..21], &[1], &whole[22..]].concat(),
        };
        assert_eq!(west.process(INSIDE, &last), dropped("time to live"));
        let (port, answer) = west.take_emitted().pop().unwrap();
        assert_eq!(port, INSIDE);
        assert_eq!((&answer[..6], &answer[6..12]), (&last[6..12], &last[..6]));
        let (found, asked) = (headers(&answer), headers(&last));
        let own = if is_ipv6 { "fd01::1" } else { "10.1.0.1" };
        assert_eq!(found.source(&answer).to_string(), own);
        assert_eq!(found.destination(&answer), asked.source(&last));
        let message = Icmp::new_checked(found.segment(&answer)).unwrap();
        let kind = if is_ipv6 {
            icmp6::TIME_EXCEEDED
        } else {
            icmp4::TIME_EXCEEDED
        };
        assert_eq!((message.kind(), message.code()), (kind, 0));
        assert!(last.ends_with(message.body()));
        // No error about an error (RFC 1122, 3.2.2).
        let error = [&last[..14], found.packet(&answer)].concat();
        let error = match is_ipv6 {
            false => with_header(error, |header| {
                header[8] = 1;
                header[12..20].copy_from_slice(&[10, 1, 0, 5, 10, 2, 0, 5]);
            }),
            true => {
                let mut error = error;
                error[21] = 1;
                error[22..54].copy_from_slice(&last[22..54]);
                error
            }
        };
        assert_eq!(west.process(INSIDE, &error), dropped("time to live"));
        assert!(west.take_emitted().is_empty());
    }
}
