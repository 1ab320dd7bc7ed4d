//! The PROXY protocol's header in the stream.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use std::collections::BTreeMap;

use common::*;
use nf_l4lb::L4lb;
use nf_runtime::testing::{Harness, Output};
use proptest::prelude::*;
use serde_json::{json, Value};

fn proxy(snat: bool) -> Value {
    with(
        with(vip("nat", &[11]), "proxy_protocol", true),
        "snat",
        json!(snat),
    )
}

const HEADER: [u8; 28] = [
    0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, 0x11, 0,
    12, // signature, PROXY, TCP over IPv4, length
    198, 51, 100, 7, 192, 0, 2, 1, 0x0f, 0xa0, 0,
    80, // from 198.51.100.7:4000 to 192.0.2.1:80
];

#[test]
fn the_header_is_sent_when_the_handshake_ends() {
    let mut lb = lb(json!([proxy(false)]));
    assert_eq!(
        lb.pass(&Sent::client(4000, SYN).numbers(999, 0)).sequence,
        999
    );
    assert_eq!(
        lb.pass(&answer(11, 4000, SYN | ACK).numbers(5000, 1000))
            .acknowledgement,
        1000
    );
    let first = lb.pass(&Sent::client(4000, ACK).numbers(1000, 5001));
    assert_eq!(
        (first.sequence, &first.payload[..], first.flags),
        (1000, &HEADER[..], ACK)
    );
    // The backend acknowledges part of the header, then all of it: no byte of the client's.
    for acknowledged in [1000, 1007, 1028] {
        let seen = lb.pass(&answer(11, 4000, ACK).numbers(5001, acknowledged));
        assert_eq!(seen.acknowledgement, 1000);
    }
    let data = lb.pass(
        &Sent::client(4000, ACK)
            .numbers(1000, 5001)
            .payload(b"GET /"),
    );
    assert_eq!((data.sequence, &data.payload[..]), (1028, &b"GET /"[..]));
    assert_eq!(
        lb.pass(&answer(11, 4000, ACK).numbers(5001, 1033))
            .acknowledgement,
        1005
    );
    // A keep-alive probe lies before the data sent.
    assert_eq!(
        lb.pass(&Sent::client(4000, ACK).numbers(1004, 5001))
            .sequence,
        1032
    );
    assert_eq!(
        lb.pass(&Sent::client(4000, ACK | FIN).numbers(1005, 5001))
            .sequence,
        1033
    );
}

#[test]
fn a_lost_header_is_sent_again_before_data() {
    let mut lb = lb(json!([proxy(true)]));
    lb.pass(&Sent::client(4000, SYN).numbers(999, 0));
    lb.pass(&Sent::client(4000, ACK).numbers(1000, 5001));
    // The client does not know of the loss; its data follows the header, which is sent again.
    let first = lb.pass(
        &Sent::client(4000, ACK)
            .numbers(1000, 5001)
            .payload(b"GET /"),
    );
    assert_eq!((first.sequence, &first.payload[..]), (1000, &HEADER[..]));
    let (port, frame) = lb.take_emitted().pop().unwrap();
    let data = read(&frame);
    assert_eq!(
        (port, data.sequence, &data.payload[..]),
        (0, 1028, &b"GET /"[..])
    );
    assert_eq!((data.source, data.to), (first.source, mac_of(11)));
    // Later segments are only shifted.
    let later = lb.pass(&Sent::client(4000, ACK).numbers(1005, 5001).payload(b"more"));
    assert_eq!(later.sequence, 1033);
    // The client gives up before anything arrived.
    assert_eq!(
        lb.pass(&Sent::client(4000, RST).numbers(1000, 0)).sequence,
        1000
    );
}

/// Sends segments as one batch; returns what the backend gets, in order.
fn batch(lb: &mut Harness<L4lb>, segments: &[Sent]) -> Vec<Seen> {
    let frames: Vec<Vec<u8>> = segments.iter().map(Sent::frame).collect();
    let frames: Vec<(usize, &[u8])> = frames.iter().map(|frame| (0, &frame[..])).collect();
    let mut seen: Vec<Seen> = lb
        .process_all(&frames)
        .iter()
        .filter_map(|output| match output {
            Output::Sent(_, frame) => Some(read(frame)),
            Output::Dropped(_) => None,
        })
        .collect();
    seen.extend(lb.take_emitted().iter().map(|(_, frame)| read(frame)));
    seen
}

#[test]
fn segments_of_a_batch_leave_in_order() {
    let mut lb = lb(json!([proxy(false)]));
    lb.pass(&Sent::client(4000, SYN).numbers(999, 0));
    let ack = || Sent::client(4000, ACK);
    let mut upload = vec![ack().numbers(1000, 5001)];
    upload.extend((0..10).map(|index| ack().numbers(1000 + index * 3, 5001).payload(b"abc")));
    // Another connection's segments are in the same batch.
    upload.insert(5, Sent::client(4001, SYN));
    let seen = batch(&mut lb, &upload);
    assert_eq!(seen.len(), upload.len() + 1);
    let data: Vec<u32> = seen
        .iter()
        .filter(|seen| seen.payload == b"abc")
        .map(|seen| seen.sequence)
        .collect();
    assert_eq!(
        data,
        (0..10).map(|index| 1028 + index * 3).collect::<Vec<_>>()
    );
    let header = seen.iter().position(|seen| seen.payload == HEADER);
    let first = seen.iter().position(|seen| seen.payload == b"abc");
    assert!(header < first);
    assert!(seen.iter().all(|seen| seen.to == mac_of(11)));
    // In the next batch they leave at once.
    let more = [
        ack().numbers(1030, 5001).payload(b"x"),
        ack().numbers(1031, 5001),
    ];
    assert_eq!(batch(&mut lb, &more).len(), 2);
    assert!(lb.take_emitted().is_empty());
}

#[test]
fn data_in_a_syn_waits_for_the_header() {
    let mut lb = lb(json!([proxy(false)]));
    let seen = lb.pass(&Sent::client(4000, SYN).payload(b"early"));
    assert_eq!((seen.flags, seen.payload.len()), (SYN, 0));
}

#[test]
fn fast_open_is_removed_from_a_syn() {
    let mut lb = lb(json!([proxy(false)]));
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2(GATEWAY_MAC, PORT_MAC)
        .ipv4([198, 51, 100, 7], [192, 0, 2, 1], 64)
        .tcp(4000, 80, 999, 64_000)
        .syn()
        .options_raw(&[34, 6, 1, 2, 3, 4, 2, 4, 5, 180, 1, 1])
        .unwrap()
        .write(&mut frame, b"early")
        .unwrap();
    let Output::Sent(0, sent) = lb.process(0, &frame) else {
        panic!()
    };
    assert!(read(&sent).payload.is_empty());
    assert_eq!(sent[54..66], [1, 1, 1, 1, 1, 1, 2, 4, 5, 180, 1, 1]);
}

/// A TCP sender and a TCP receiver with a load balancer between them, over links that lose and reorder.
struct Stream {
    lb: Harness<L4lb>,
    data: Vec<u8>,
    /// The number of bytes whose acknowledgement the client has.
    acknowledged: usize,
    /// The bytes received by the backend, by offset in its own numbering.
    received: BTreeMap<u32, u8>,
    next: u32,
    window: usize,
}

const START: u32 = u32::MAX - 40; // the numbers wrap within the transfer

impl Stream {
    fn new(data: &[u8], snat: bool) -> Self {
        let mut lb = lb(json!([proxy(snat)]));
        let syn = lb.pass(&Sent::client(4000, SYN).numbers(START.wrapping_sub(1), 0));
        assert_eq!(syn.sequence, START.wrapping_sub(1));
        Self {
            lb,
            data: data.to_vec(),
            acknowledged: 0,
            received: BTreeMap::new(),
            next: START,
            window: 6,
        }
    }

    /// Delivers a segment to the backend; returns its acknowledgement as the client sees it.
    fn deliver(&mut self, seen: &Seen) -> Seen {
        for (offset, byte) in seen.payload.iter().enumerate() {
            let at = seen
                .sequence
                .wrapping_add(offset as u32)
                .wrapping_sub(START);
            if let Some(old) = self.received.insert(at, *byte) {
                assert_eq!(old, *byte, "byte {at} of the stream changed");
            }
        }
        while self.received.contains_key(&self.next.wrapping_sub(START)) {
            self.next = self.next.wrapping_add(1);
        }
        let reply = Sent {
            source: seen.destination,
            destination: seen.source,
            flags: ACK,
            from: mac_of(11),
            ..Sent::client(0, ACK)
        };
        self.lb.pass(&reply.numbers(5001, self.next))
    }

    /// Plays one round: the client sends some unacknowledged segments; `fate` decides the loss of each packet in either direction.
    fn round(&mut self, fate: &mut dyn FnMut() -> u8) {
        let start = self.acknowledged;
        let mut arriving = Vec::new();
        for segment in 0..self.window {
            let from = start + segment * 3;
            let to = (from + 3).min(self.data.len());
            if from > to || (from == to && segment > 0) {
                break;
            }
            let sent = Sent::client(4000, ACK)
                .numbers(START.wrapping_add(from as u32), 5001)
                .payload(&self.data[from..to]);
            arriving.push(self.lb.pass(&sent));
            arriving.extend(self.lb.take_emitted().iter().map(|(_, frame)| read(frame)));
        }
        while !arriving.is_empty() {
            let fate_of_one = fate();
            let seen = arriving.remove(usize::from(fate_of_one >> 2) % arriving.len());
            if fate_of_one & 1 != 0 {
                continue;
            }
            let answer = self.deliver(&seen);
            let known = answer.acknowledgement.wrapping_sub(START) as usize;
            assert!(
                known <= self.data.len(),
                "acknowledges {known} bytes of {}",
                self.data.len()
            );
            if fate_of_one & 2 == 0 {
                self.acknowledged = self.acknowledged.max(known);
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.acknowledged == self.data.len()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_backend_reads_the_header_and_then_the_stream(
        data in proptest::collection::vec(any::<u8>(), 1..120), snat in any::<bool>(),
        losses in proptest::collection::vec(any::<u8>(), 1..400),
    ) {
        let mut stream = Stream::new(&data, snat);
        let mut fates = losses.into_iter();
        // Losses end eventually; then everything must arrive.
        for _ in 0..400 {
            stream.round(&mut || fates.next().unwrap_or(0));
            if stream.is_complete() {
                break;
            }
        }
        prop_assert!(stream.is_complete());
        let got: Vec<u8> = stream.received.values().copied().collect();
        prop_assert_eq!(&got[..28], &HEADER[..]);
        prop_assert_eq!(&got[28..], &data[..]);
    }
}
