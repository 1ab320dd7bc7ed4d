//! Security associations: lifetimes, rekeys, numbers, windows.

use crate::common::{frame, numbers, put, sent, Pair, EAST, INSIDE, OUTSIDE, WEST};
use crate::{dropped, protected, SECOND};
use nf_runtime::NetworkFunction;
use serde_json::json;

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
