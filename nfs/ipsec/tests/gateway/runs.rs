//! Runs of packets with one key in a batch: what they share changes no result.

use crate::common::{
    frame, headers, numbers, put, sent, with_header, Gateway, Pair, EAST, INSIDE, OUTSIDE, WEST,
};
use crate::{dropped, protected};
use nf_ipsec::Ipsec;
use nf_runtime::{
    testing::{Harness, Output},
    Batch, Context, NetworkFunction, Verdict,
};
use serde_json::json;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]];

fn protected_all(west: &mut Gateway, count: usize) -> Vec<Vec<u8>> {
    let frame = frame(WEST, false, b"x");
    let outputs = west.process_all(&vec![(INSIDE, &frame[..]); count]);
    outputs
        .into_iter()
        .map(|each| sent(each, OUTSIDE))
        .collect()
}

/// Returns packets, bytes and sequence number of a direction's first association.
fn counts(gateway: &Gateway, direction: &str) -> [u64; 3] {
    let shown = gateway.function().control("show", &json!({}));
    let shown = shown.unwrap().unwrap();
    let associations = shown["tunnels"][0]["associations"].as_array().unwrap();
    let mut found = associations.iter();
    let found = found.find(|each| each["direction"] == direction).unwrap();
    ["packets", "bytes", "sequence"].map(|name| found[name].as_u64().unwrap())
}

#[test]
fn counts_are_exact_and_numbers_consecutive_after_each_batch() {
    let [mut west, mut east] = Pair::default().gateways();
    let length = (frame(WEST, false, b"x").len() - 14) as u64;
    let mut expected = 0;
    for count in [1, 3, 64, 70, 2] {
        let outer = protected_all(&mut west, count);
        let found: Vec<u64> = outer.iter().map(|each| numbers(each).1.into()).collect();
        let count = count as u64;
        assert_eq!(found, (expected + 1..=expected + count).collect::<Vec<_>>());
        expected += count;
        let all = [expected, expected * length, expected];
        assert_eq!(counts(&west, "outbound"), all);
        let frames: Vec<(usize, &[u8])> = outer.iter().map(|each| (OUTSIDE, &each[..])).collect();
        for output in east.process_all(&frames) {
            sent(output, INSIDE);
        }
        assert_eq!(counts(&east, "inbound"), all);
    }
    // Dropped packets leave no gap.
    let expired = with_header(frame(WEST, false, b"x"), |header| header[8] = 1);
    let good = frame(WEST, false, b"x");
    let outputs = west.process_all(&[(INSIDE, &good), (INSIDE, &expired), (INSIDE, &good)]);
    assert_eq!(outputs[1], dropped("time to live"));
    let [first, _, second] = outputs.try_into().unwrap();
    let second = numbers(&sent(second, OUTSIDE)).1;
    assert_eq!(second, numbers(&sent(first, OUTSIDE)).1 + 1);
    assert_eq!(counts(&west, "outbound")[0], expected + 2);
}

#[test]
fn lifetimes_end_within_a_batch_after_exactly_their_packets() {
    let pair = Pair {
        association: json!({"hard": {"packets": 10}}),
        ..Pair::default()
    };
    let frame = frame(WEST, false, b"x");
    let [mut west, _] = pair.gateways();
    let outputs = west.process_all(&[(INSIDE, &frame[..]); 64]);
    let is_sent = |each: &Output| matches!(each, Output::Sent(..));
    assert!(outputs[..10].iter().all(is_sent));
    assert!(outputs[10..]
        .iter()
        .all(|each| *each == dropped("no usable association")));
    let [mut west, _] = Pair::default().gateways();
    let mut config = Pair::default().json(EAST);
    config["tunnels"][0]["inbound"][0]["hard"] = json!({"packets": 10});
    let mut east = Harness::<Ipsec>::new(serde_json::from_value(config).unwrap()).unwrap();
    let outer = protected_all(&mut west, 64);
    let frames: Vec<(usize, &[u8])> = outer.iter().map(|each| (OUTSIDE, &each[..])).collect();
    let outputs = east.process_all(&frames);
    assert!(outputs[..10].iter().all(is_sent));
    assert!(outputs[10..]
        .iter()
        .all(|each| *each == dropped("esp: expired")));
}

#[test]
fn the_next_association_protects_the_rest_of_a_batch() {
    let pair = Pair {
        esn: false,
        keys: vec![1, 2],
        ..Pair::default()
    };
    let [west, _] = pair.gateways();
    put(&west, "outbound keys", 6, u64::from(u32::MAX) - 21);
    let mut west = west.adopting(pair.config(WEST)).unwrap();
    let outer = protected_all(&mut west, 64);
    let spis: Vec<u32> = outer.iter().map(|each| numbers(each).0).collect();
    assert_eq!(numbers(&outer[20]).1, u32::MAX);
    let [first, second] = [1, 2].map(|number| Pair::spi(number, WEST));
    assert_eq!(spis, [vec![first; 21], vec![second; 43]].concat());
}

/// Packets both ways in one batch, with replays and forgeries among them.
#[test]
fn packets_both_ways_mix_in_a_batch() {
    for workers in [1, 2] {
        let [mut west, mut east] = Pair::default().gateways();
        let back = frame(EAST, false, b"back");
        let incoming = [(); 20].map(|()| sent(east.process(INSIDE, &back), OUTSIDE));
        let (mut batch, there) = (Batch::new(), frame(WEST, false, b"there"));
        for outer in &incoming {
            batch.push(INSIDE, &there).unwrap();
            batch.push(OUTSIDE, outer).unwrap();
            batch.push(OUTSIDE, outer).unwrap();
        }
        let mut forged = incoming[0].clone();
        forged[50] ^= 1;
        batch.push(OUTSIDE, &forged).unwrap();
        let context = Context::new(west.now(), 0, workers, &MACS);
        west.function().process(&mut batch, &context);
        let verdicts: Vec<Verdict> = batch.packets().iter().map(|each| each.verdict()).collect();
        for chunk in verdicts[..60].chunks(3) {
            let replayed = Verdict::Drop("esp: replayed");
            assert_eq!(
                chunk,
                [Verdict::Send(OUTSIDE), Verdict::Send(INSIDE), replayed]
            );
        }
        // The window notes a batch's packets when all of them are decrypted.
        assert_eq!(verdicts[60], Verdict::Drop("esp: forged"));
        assert_eq!(counts(&west, "outbound")[0], 20);
        assert_eq!(counts(&west, "inbound")[0], 20);
        assert_eq!(numbers(&protected(&mut west, b"x")).1, 21);
    }
}

#[test]
fn a_batch_follows_a_peer_that_moves_in_it() {
    let pair = Pair {
        udp: true,
        ..Pair::default()
    };
    let [mut west, mut east] = pair.gateways();
    let mut moved = sent(east.process(INSIDE, &frame(EAST, false, b"x")), OUTSIDE);
    moved[34..36].copy_from_slice(&61_000_u16.to_be_bytes());
    let there = frame(WEST, false, b"x");
    let outputs = west.process_all(&[(INSIDE, &there), (OUTSIDE, &moved), (INSIDE, &there)]);
    let [before, _, after] = outputs.try_into().unwrap();
    let port = |output| headers(&sent(output, OUTSIDE)).destination_port;
    assert_eq!([port(before), port(after)], [4500, 61_000]);
}
