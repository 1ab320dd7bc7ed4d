//! A tunnel through a NAT.

use crate::common::{frame, headers, payload, sent, Gateway, Pair, EAST, INSIDE, OUTSIDE};
use crate::{dropped, protected, SECOND};
use serde_json::json;

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
