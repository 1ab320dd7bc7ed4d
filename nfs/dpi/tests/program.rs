//! The program, with nDPI in it. Without nDPI's headers nothing is tested, and the tests say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod common;

use common::{
    packets::{dns_query, noise, packet},
    play::kill,
    program, Waiting,
};
use nf_dpi::{rings::MAX_OUTSTANDING, Confidence, Refused, Request, Settings, State};

#[test]
fn a_question_is_recognised_by_its_bytes() {
    let Some(program) = program() else { return };
    let waiting = Waiting::live(Settings::new(program));
    let answer = waiting.ask(packet(7, 3, &dns_query("www.example.com")));
    assert_eq!((answer.flow, answer.sequence), (7, 3));
    assert_eq!(answer.state, State::MoreNeeded); // the answer's addresses are still to come
    assert_eq!(answer.host.as_bytes(), b"www.example.com");
    let catalogue = waiting.inspector.catalogue();
    assert_eq!(catalogue.protocol(answer.protocol), "DNS");
    assert_eq!(catalogue.category(answer.category), "Network");
    assert_eq!(answer.confidence, Confidence::Content);
    let answer = waiting.ask(Request::GiveUp {
        flow: 7,
        sequence: 4,
    });
    assert_eq!((answer.sequence, answer.state), (4, State::Final));
    assert_eq!(catalogue.protocol(answer.protocol), "DNS");
}

#[test]
fn an_unknown_flow_is_final_after_as_many_packets_as_ndpireader_takes() {
    let Some(program) = program() else { return };
    let waiting = Waiting::live(Settings::new(program));
    for sequence in 0..24 {
        let answer = waiting.ask(packet(1, sequence, &noise(b"xyz")));
        assert_eq!(answer.state, State::MoreNeeded, "{sequence}");
    }
    let answer = waiting.ask(packet(1, 24, &noise(b"xyz")));
    assert_eq!(
        (answer.state, answer.confidence),
        (State::Final, Confidence::Unknown)
    );
}

#[test]
fn a_killed_program_is_started_again_and_first_wants_what_was() {
    let Some(program) = program() else { return };
    let waiting = Waiting::start(Settings::new(program));
    let inspector = &waiting.inspector;
    let first = inspector.generation();
    let question = packet(1, 0, b"");
    assert_eq!(inspector.submit(question), Err(Refused::Replay));
    assert!(inspector.replayed(first));
    assert_eq!(inspector.submit(question), Ok(()));
    kill(inspector);
    waiting.until(|inspector| inspector.generation() > first);
    assert_eq!(inspector.submit(question), Err(Refused::Replay));
    assert_eq!(inspector.replay(first, question), Err(Refused::Restarted));
    assert!(!inspector.replayed(first));
    let second = inspector.generation();
    let question = dns_query("www.example.com");
    inspector.replay(second, packet(1, 0, &question)).unwrap();
    assert!(inspector.replayed(second));
    let answer = waiting.ask_after(Request::GiveUp {
        flow: 2,
        sequence: 9,
    });
    assert_eq!((answer.flow, answer.sequence), (2, 9)); // that of the replay came before it
    let status = inspector.status();
    assert_eq!((status.ended_at_packets, status.quarantined), (0, 0));
    assert!(status.last_end.unwrap().contains("signal: 9"));
}

#[test]
fn the_program_has_a_filter_of_system_calls_and_no_privileges() {
    let Some(program) = program() else { return };
    let waiting = Waiting::live(Settings::new(program));
    let pid = waiting.inspector.status().pid.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
    };
    assert_eq!(field("Seccomp:").trim(), "2");
    assert_eq!(field("NoNewPrivs:").trim(), "1");
    for set in ["CapInh:", "CapPrm:", "CapEff:"] {
        assert_eq!(field(set).trim(), "0000000000000000", "{set}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    for name in ["Max core file size", "Max processes", "Max file size"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line.split_whitespace().nth_back(1), Some("0"), "{line}");
    }
}

#[test]
fn packets_on_their_way_get_the_final_answer_again_and_later_ones_begin_a_flow() {
    let Some(program) = program() else { return };
    let waiting = Waiting::live(Settings::new(program));
    let question = dns_query("www.example.com");
    waiting.ask(packet(7, 0, &question));
    let decided = waiting.ask(Request::GiveUp {
        flow: 7,
        sequence: 1,
    });
    for sequence in 2..MAX_OUTSTANDING as u64 {
        waiting
            .push(
                |_| (),
                |inspector| inspector.submit(Request::GiveUp { flow: 8, sequence }),
            )
            .unwrap();
    }
    let again = waiting.ask_after(packet(7, 1, &question));
    assert_eq!(again, decided);
    for sequence in 0..2 {
        waiting.ask(Request::GiveUp { flow: 8, sequence });
    }
    assert_eq!(
        waiting.ask(packet(7, 2, &question)).state,
        State::MoreNeeded
    );
}
