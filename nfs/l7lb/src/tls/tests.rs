//! Both halves of TCP over a network that loses, repeats and reorders segments.

use nf_arena::{Arena, ArenaBuilder};
use nf_runtime::state::{ChunkPool, StateBuilder};
use proptest::prelude::*;

use super::{
    receiver::Receiver,
    sender::{Sender, ROOM},
};
use crate::segments::{Segment, ACK};
use nf_packet::tcp_flags;
use nf_splice::segment::Verdict;

const MILLISECOND: u64 = 1_000_000;
const MSS: u32 = 100;

/// A source of choices: SplitMix64.
struct Choices(u64);

impl Choices {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % most
    }
}

/// One end, whose reader takes some bytes from time to time.
struct End {
    sender: Sender,
    receiver: Receiver,
    to_say: Vec<u8>,
    said: usize,
    heard: Vec<u8>,
    read: usize,
}

impl End {
    fn new(own: u32, other: u32, to_say: Vec<u8>) -> Self {
        Self {
            sender: Sender::new(1, own, MSS, 1000),
            receiver: Receiver::new(1, other, 1000, MSS),
            to_say,
            said: 0,
            heard: Vec::new(),
            read: 0,
        }
    }

    fn room(&self) -> usize {
        3000 - (self.heard.len() - self.read)
    }

    fn say(&mut self, chunks: &ChunkPool) {
        let rest = &self.to_say[self.said..];
        let part = &rest[..rest.len().min(self.sender.room())];
        if !part.is_empty() {
            assert!(self.sender.push(chunks, part));
            self.said += part.len();
        }
        if self.said == self.to_say.len() {
            self.sender.finish();
        }
    }

    fn hear(&mut self, chunks: &ChunkPool, segment: &Segment, payload: &[u8], now: u64) {
        if self.receiver.judge(segment) != Verdict::Accept {
            return self.receiver.repeat();
        }
        let has_fin = segment.has(tcp_flags::FIN);
        let is_bare = payload.is_empty() && !has_fin;
        self.sender
            .acknowledged(chunks, segment.ack, segment.window.into(), is_bare, now);
        if !is_bare {
            let numbers = (segment.seq, payload, has_fin);
            self.receiver.accept(chunks, numbers, now, &mut self.heard);
        }
    }

    /// Returns the next segment to send.
    fn take(&mut self, chunks: &ChunkPool, now: u64) -> Option<(Segment, Vec<u8>)> {
        let piece = self.sender.take(MSS as usize, now);
        let room = self.room();
        if piece.is_none() && !self.receiver.is_due(room, now) {
            return None;
        }
        let piece = piece.unwrap_or(self.sender.empty());
        let window = self.receiver.window(room);
        let ack = self.receiver.next();
        self.receiver.tell(window, piece.is_repeated);
        let mut payload = vec![0; piece.len];
        let read = self
            .sender
            .queue()
            .read_at(chunks, piece.skip, &mut payload);
        assert_eq!(read, piece.len);
        let segment = Segment {
            flags: if piece.has_fin {
                ACK | tcp_flags::FIN
            } else {
                ACK
            },
            seq: piece.seq,
            ack,
            window: window as u16,
            at: 0,
            len: piece.len,
            stamps: None,
            syn: None,
        };
        Some((segment, payload))
    }

    fn is_over(&self) -> bool {
        self.sender.is_over() && self.receiver.is_over()
    }
}

fn pool() -> (ChunkPool, Arena) {
    let mut state = StateBuilder::new(ArenaBuilder::fresh("l7lb", 1).unwrap());
    let chunks = state.chunk_pool("chunks", 512, 2048).unwrap();
    let (arena, ..) = state.finish().unwrap();
    (chunks, arena)
}

/// Lets two ends talk until both are over. Percentages of segments that are lost, repeated, and delayed.
fn talk(seed: u64, lengths: [usize; 2], (lost, repeated, delayed): (u64, u64, u64)) {
    let (chunks, _arena) = pool();
    let mut choices = Choices(seed);
    let text = |length: usize, step: usize| (0..length).map(|at| (at * step / 7) as u8).collect();
    let first = u32::MAX - 2000;
    let mut ends = [
        End::new(first, 77, text(lengths[0], 3)),
        End::new(77, first, text(lengths[1], 5)),
    ];
    let mut network: Vec<(u64, usize, Segment, Vec<u8>)> = Vec::new();
    let mut now = 0;
    while !ends.iter().all(End::is_over) {
        now += MILLISECOND;
        assert!(now < 600_000 * MILLISECOND, "they hang: seed {seed}");
        let (arrived, rest) = network.into_iter().partition(|(at, ..)| *at <= now);
        network = rest;
        let arrived: Vec<_> = arrived;
        for (_, to, segment, payload) in arrived {
            ends[to].hear(&chunks, &segment, &payload, now);
        }
        for (index, end) in ends.iter_mut().enumerate() {
            let unread = (end.heard.len() - end.read) as u64;
            end.read += choices.below(unread + 1) as usize;
            end.say(&chunks);
            assert!(end.sender.expired(now), "gave up: seed {seed}");
            end.sender.deadline(now);
            while let Some((segment, payload)) = end.take(&chunks, now) {
                let copies = 1 + u64::from(choices.below(100) < repeated);
                for _ in 0..copies {
                    let more = if choices.below(100) < delayed { 20 } else { 0 };
                    let at = now + (5 + choices.below(1 + more)) * MILLISECOND;
                    if choices.below(100) >= lost {
                        network.push((at, 1 - index, segment, payload.clone()));
                    }
                }
            }
        }
    }
    let [one, other] = ends;
    assert_eq!(one.heard, other.to_say);
    assert_eq!(other.heard, one.to_say);
    // Nothing is left in the queues.
    for mut end in [one, other] {
        end.receiver.clear(&chunks);
        end.sender.queue_mut().clear(&chunks);
    }
    assert_eq!(chunks.free(), chunks.capacity());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_bytes_arrive_in_order(
        seed: u64,
        lengths in [0_usize..20_000, 0..20_000],
        faults in (0_u64..10, 0_u64..20, 0_u64..50),
    ) {
        talk(seed, lengths, faults);
    }
}

#[test]
fn more_than_a_queue_arrives_without_faults() {
    talk(1, [3 * ROOM, ROOM], (0, 0, 0));
}

#[test]
fn a_lost_segment_is_sent_again_after_three_repeated_acknowledgements() {
    let (chunks, _arena) = pool();
    let mut sender = Sender::new(1, 0, MSS, 5000);
    assert!(sender.push(&chunks, &[7; 1000]));
    while sender.take(MSS as usize, MILLISECOND).is_some() {}
    for _ in 0..2 {
        sender.acknowledged(&chunks, 0, 5000, true, MILLISECOND);
        assert_eq!(sender.take(MSS as usize, MILLISECOND), None);
    }
    sender.acknowledged(&chunks, 0, 5000, true, MILLISECOND);
    let again = sender.take(MSS as usize, MILLISECOND).unwrap();
    assert_eq!((again.seq, again.len), (0, MSS as usize));
}

#[test]
fn the_bytes_beyond_holes_are_reported_and_those_first_that_came_last() {
    let (chunks, _arena) = pool();
    let mut receiver = Receiver::new(1, 0, 5000, MSS);
    let mut heard = Vec::new();
    let mut take = |receiver: &mut Receiver, seq: u32| {
        receiver.accept(&chunks, (seq, &[7; 100], false), 1, &mut heard);
        receiver.blocks().edges().to_vec()
    };
    assert_eq!(take(&mut receiver, 200), [(200, 300)]);
    assert_eq!(take(&mut receiver, 600), [(600, 700), (200, 300)]);
    assert_eq!(take(&mut receiver, 300), [(200, 400), (600, 700)]);
    assert_eq!(take(&mut receiver, 0), [(200, 400), (600, 700)]);
    assert_eq!(take(&mut receiver, 100), [(600, 700)]);
    assert_eq!(receiver.next(), 400);
    assert_eq!(take(&mut receiver, 400), [(600, 700)]);
    assert_eq!(take(&mut receiver, 500), []);
    assert_eq!(receiver.next(), 700);
}

#[test]
fn a_peer_that_is_silent_is_given_up() {
    let (chunks, _arena) = pool();
    let mut sender = Sender::new(1, 0, MSS, 5000);
    assert!(sender.push(&chunks, &[7; 10]));
    let mut now = 0;
    let mut sent = 0;
    loop {
        while sender.take(MSS as usize, now).is_some() {
            sent += 1;
        }
        now = sender.deadline(now);
        if !sender.expired(now) {
            break;
        }
    }
    assert_eq!(sent, 13);
}

#[test]
fn a_closed_window_is_probed_for_as_long_as_the_peer_answers() {
    let (chunks, _arena) = pool();
    let mut sender = Sender::new(1, 0, MSS, 0);
    assert!(sender.push(&chunks, &[7; 500]));
    let mut now = 0;
    for _ in 0..50 {
        assert_eq!(sender.take(MSS as usize, now), None);
        now = sender.deadline(now);
        assert!(sender.expired(now));
        let probe = sender.take(MSS as usize, now).unwrap();
        assert_eq!((probe.seq, probe.len), (0, 1));
        sender.acknowledged(&chunks, 0, 0, true, now);
    }
    sender.acknowledged(&chunks, 1, 400, true, now);
    assert_eq!(sender.take(MSS as usize, now).unwrap().len, MSS as usize);
}

#[test]
fn acknowledgements_of_bytes_never_sent_do_not_count() {
    use super::sender::Acknowledged;
    let (chunks, _arena) = pool();
    let mut sender = Sender::new(1, 100, MSS, 5000);
    assert!(sender.push(&chunks, &[7; 500]));
    sender.take(MSS as usize, 1).unwrap();
    let mut judge = |ack| sender.acknowledged(&chunks, ack, 5000, true, 1);
    assert_eq!(judge(201), Acknowledged::Implausible);
    assert_eq!(
        judge(100_u32.wrapping_sub(1 << 20)),
        Acknowledged::Implausible
    );
    assert_eq!(judge(200), Acknowledged::New);
    assert_eq!(judge(150), Acknowledged::Nothing);
}
