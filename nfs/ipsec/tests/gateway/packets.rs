//! Packets that pass, and packets that are dropped by reason.

use crate::common::{
    esp, frame, headers, packet, sent, with_header, Pair, EAST, HOSTS, INSIDE, OUTSIDE, WEST,
};
use crate::{dropped, protected};
use nf_ipsec::Ipsec;
use nf_runtime::testing::{Harness, Output};
use proptest::prelude::*;
use serde_json::json;

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
            prop_assert_eq!(&arrived[..6], &crate::common::HOST_MAC);
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
