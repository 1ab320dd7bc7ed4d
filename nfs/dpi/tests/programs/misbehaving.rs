//! A program in the place of `nf-dpi`, for tests: packets tell it what to do wrong. nDPI is C code, and may do any of this.

#![allow(clippy::unwrap_used)]

use std::{process, thread, time::Duration};

use nf_dpi::{
    rings::{AnswerWriter, RequestReader, ANSWER_WORDS, MAX_OUTSTANDING},
    Answer, Catalogue, Child, Confidence, Host, Protocol, Request, State,
};

fn main() {
    let child = Child::receive().unwrap();
    let (mut requests, mut answers): (RequestReader<_>, AnswerWriter<_>) = child.rings.program();
    let names = || vec!["Unknown".to_owned(), "DNS".to_owned()];
    let catalogue = Catalogue::new("misbehaving".into(), names(), names());
    Child::ready(&catalogue).unwrap();
    loop {
        while let Some(request) = requests.take().unwrap() {
            let (right, order) = match request {
                Request::Packet(packet) => {
                    (answer(packet.flow, packet.sequence), packet.bytes.to_vec())
                }
                Request::GiveUp { flow, sequence } => (answer(flow, sequence), Vec::new()),
                Request::Forget { .. } => continue,
            };
            let mut words = right.to_words();
            match std::str::from_utf8(&order).unwrap() {
                "abort" => process::abort(),
                "exit" => process::exit(0),
                "hang" => thread::sleep(Duration::from_secs(3600)),
                "silence" => continue,
                "flow" => words[0] += 1,
                "sequence" => words[1] += 1,
                "protocol" => words[2] |= 2,
                "category" => words[2] |= 2 << 32,
                "confidence" => words[2] |= 9 << 48,
                "state" => words[2] |= 2 << 56,
                "host" => words[3] |= 81 << 8,
                "flags" => words[3] |= 4,
                "all" => words = [u64::MAX; ANSWER_WORDS],
                "too much" => return lie(&child, || answers.claim(u64::MAX)),
                "back" => return lie(&child, || answers.claim(MAX_OUTSTANDING as u64 * 3)),
                "read too much" => return lie(&child, || requests.claim(u64::MAX / 2)),
                _ => {}
            }
            answers.write_words(&words);
            rustix::io::write(&child.answers, &1_u64.to_ne_bytes()).unwrap();
        }
        if requests.may_sleep() {
            let mut bells = [rustix::event::PollFd::new(
                &child.requests,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut bells, None).unwrap();
            rustix::io::read(&child.requests, &mut [0; 8]).unwrap();
        }
    }
}

/// Writes a position that cannot be, and waits for the end.
fn lie(child: &Child, claim: impl FnOnce()) {
    claim();
    rustix::io::write(&child.answers, &1_u64.to_ne_bytes()).unwrap();
    thread::sleep(Duration::from_secs(3600));
}

fn answer(flow: u64, sequence: u64) -> Answer {
    Answer {
        flow,
        sequence,
        state: State::MoreNeeded,
        protocol: Protocol {
            master: 0,
            application: 1,
        },
        category: 0,
        confidence: Confidence::Content,
        host: Host::new(b"example.com"),
        ja3: None,
        ja3_server: None,
    }
}
