//! Plays arbitrary regions and acknowledgements on a map, and translates arbitrary segments and their options with it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nf_packet::{tcp_flags, Tcp};
use nf_splice::{options, segment::is_after, Map, TimestampMap};

fuzz_target!(|bytes: &[u8]| {
    let Some((numbers, rest)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let [source, destination] = words(numbers);
    let (mut map, mut end) = (Map::between(source, destination), source);
    let (count, mut rest) = rest.split_first().map_or((0, rest), |(count, rest)| (count % 16, rest));
    for _ in 0..count {
        let Some((step, left)) = rest.split_first_chunk::<4>() else {
            return;
        };
        rest = left;
        end = play(&mut map, end, *step);
    }
    translate(&map, end, rest);
});

fn words(bytes: &[u8; 8]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = *bytes;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// Adds a region behind `end`, or acknowledges up to near `end`; returns the new end.
fn play(map: &mut Map, end: u32, step: [u8; 4]) -> u32 {
    let [passed, taken, given, acknowledged] = step.map(u32::from);
    let from = end.wrapping_add(passed * 16);
    if map.insert(from, taken, given).is_err() {
        assert_eq!(map.regions().count(), 2);
    }
    let reached = map.forward(from).wrapping_sub(acknowledged * 16);
    let before = [map.back(reached), map.back_start(reached)];
    map.settle(reached);
    assert_eq!([map.back(reached), map.back_start(reached)], before);
    map.regions().last().map_or(from, |last| last.from.wrapping_add(last.taken))
}

fn translate(map: &Map, end: u32, segment: &[u8]) {
    let Ok(tcp) = Tcp::new_checked(segment) else {
        return;
    };
    let length = tcp.payload().len() as u32;
    // Near the regions, where windows allow bytes, and anywhere.
    let near = end.wrapping_add(tcp.sequence() % 8192).wrapping_sub(8192);
    for sequence in [near, tcp.sequence()] {
        let covered = map.parts(sequence, length).fold(0, |covered, part| {
            assert!(part.offset == covered && part.length > 0);
            if let (Some(to), true) = (part.to, sequence == near) {
                assert_eq!(to, map.forward(sequence.wrapping_add(covered)));
            }
            covered + part.length
        });
        assert_eq!(covered, length);
    }
    let near = map.forward(end).wrapping_add(tcp.acknowledgement() % 8192).wrapping_sub(4096);
    assert!(!is_after(map.back(near), map.back(near.wrapping_add(1))));
    assert!(!is_after(map.back(near), map.back_start(near)));
    let mut copy = segment.to_vec();
    let ends = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let Ok(mut tcp) = Tcp::new_checked(&mut copy[..]) else {
        return;
    };
    tcp.fill_checksum(ends.0, ends.1);
    let before = tcp.header().to_vec();
    let mut value = TimestampMap::starting_at(end);
    value.change(near);
    let translation = options::Translation { blocks: map, value: &mut value, echo: &TimestampMap::starting_at(near) };
    let result = translation.apply(&mut tcp);
    assert!(tcp.checksum_holds(ends.0, ends.1));
    if result.is_err() || tcp.flags() & tcp_flags::SYN != 0 {
        assert_eq!(tcp.header(), before);
    }
    assert_eq!(result.is_ok(), options::Syn::parse(&tcp).is_ok());
}
