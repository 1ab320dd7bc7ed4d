//! The rings, without a program: requests and answers arrive unchanged, and arbitrary words of the other side are refused or harmless.

#![allow(clippy::unwrap_used)] // tests

use std::sync::{atomic::Ordering::Relaxed, Arc};

use nf_arena::{Heap, Memory};
use nf_dpi::{
    rings::{Rings, ANSWER_WORDS, MAX_OUTSTANDING},
    Answer, Confidence, Host, Packet, Protocol, Request, State,
};

const REQUEST_WORDS: usize = 64;

struct Shared {
    control: Arc<Heap>,
    requests: Arc<Heap>,
    answers: Arc<Heap>,
}

impl Shared {
    fn new() -> Self {
        let memory = |words| Arc::new(Heap::new(words).unwrap());
        Self {
            control: memory(32),
            requests: memory(REQUEST_WORDS),
            answers: memory(MAX_OUTSTANDING * ANSWER_WORDS),
        }
    }

    fn rings(&self) -> Rings<Arc<Heap>> {
        Rings::over(
            self.control.clone(),
            self.requests.clone(),
            self.answers.clone(),
        )
    }
}

fn answer(sequence: u64) -> Answer {
    Answer {
        flow: u64::MAX,
        sequence,
        state: State::Final,
        protocol: Protocol {
            master: 0xfffe,
            application: 0xfffd,
        },
        category: 0xfffc,
        confidence: Confidence::Content,
        host: Host::new(&[b'h'; 80]),
        ja3: Some([0xff; 16]),
        ja3_server: (sequence % 2 == 0).then_some([1; 16]),
    }
}

#[test]
fn requests_of_all_lengths_come_out_as_they_went_in_across_the_end_of_the_ring() {
    let rings = Shared::new().rings();
    let ((mut writer, _), (mut reader, _)) = (rings.owner(), rings.program());
    let bytes: Vec<u8> = (0..=255).collect();
    for length in (0..=255).chain((0..=255).rev()) {
        let packet = Packet {
            flow: 1,
            sequence: u64::MAX,
            time_ms: 3,
            bytes: &bytes[..length],
        };
        let three = [
            Request::Packet(packet),
            Request::GiveUp {
                flow: 4,
                sequence: 5,
            },
            Request::Forget { flow: 6 },
        ];
        for request in &three {
            assert_eq!(writer.write(request), Ok(true));
        }
        for request in three {
            assert_eq!(reader.take(), Ok(Some(request)));
        }
        assert_eq!(reader.take(), Ok(None));
    }
}

#[test]
fn a_full_ring_takes_nothing_and_then_again() {
    let rings = Shared::new().rings();
    let ((mut writer, _), (mut reader, _)) = (rings.owner(), rings.program());
    let request = Request::Forget { flow: 1 };
    assert_eq!(
        (0..17).filter(|_| writer.write(&request).unwrap()).count(),
        REQUEST_WORDS / 4
    );
    assert!(reader.take().unwrap().is_some());
    assert_eq!(writer.write(&request), Ok(true));
    assert_eq!(writer.write(&request), Ok(false));
}

#[test]
fn a_sleeper_is_woken_once_and_does_not_sleep_over_a_request() {
    let rings = Shared::new().rings();
    let ((mut writer, _), (mut reader, _)) = (rings.owner(), rings.program());
    assert!(reader.may_sleep());
    writer.write(&Request::Forget { flow: 1 }).unwrap();
    assert_eq!([writer.must_wake(), writer.must_wake()], [true, false]);
    assert!(!reader.may_sleep());
    reader.take().unwrap();
    assert!(reader.may_sleep());
}

#[test]
fn answers_come_out_as_they_went_in_more_often_than_there_are_places() {
    let rings = Shared::new().rings();
    let ((_, mut reader), (_, mut writer)) = (rings.owner(), rings.program());
    for sequence in 0..MAX_OUTSTANDING as u64 + 5 {
        writer.write(&answer(sequence));
        assert_eq!(reader.ready(1), Ok(1));
        assert_eq!(reader.take(), Ok(answer(sequence)));
    }
    assert_eq!(reader.ready(1), Ok(0));
}

/// As the target `dpi_rings` of nfs/fuzz, with a few random histories.
#[test]
fn whatever_is_written_the_owner_stays_within_its_bounds() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let shared = Shared::new();
        let (mut writer, mut reader) = shared.rings().owner();
        let mut outstanding = 0;
        for _ in 0..200 {
            let (place, value) = (random.next() as usize, random.small());
            match random.next() % 5 {
                0 => shared.control.words()[place % 4 * 8].store(value, Relaxed),
                1 => shared.requests.words()[place % REQUEST_WORDS].store(value, Relaxed),
                2 => shared.answers.words()[place % 64].store(value, Relaxed),
                3 => match writer.write(&Request::Forget { flow: value }) {
                    Ok(written) => outstanding += usize::from(written),
                    Err(_) => break,
                },
                _ => {
                    let Ok(ready) = reader.ready(outstanding) else {
                        break;
                    };
                    assert!(ready <= outstanding);
                    let taken = (0..ready).map_while(|_| reader.take().ok()).count();
                    outstanding -= taken;
                    if taken < ready {
                        break;
                    }
                }
            }
        }
    }
}

/// Numbers that are the same each time (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Mostly small, sometimes any.
    fn small(&mut self) -> u64 {
        let value = self.next();
        if value % 4 == 0 {
            value
        } else {
            value >> 59
        }
    }
}
