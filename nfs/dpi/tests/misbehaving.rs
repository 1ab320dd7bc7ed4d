//! Programs that crash, hang and write garbage (`programs/misbehaving.rs`): the owner continues unharmed, and names the fault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod common;

use std::{path::Path, time::Duration};

use common::{packets::packet, Waiting};
use nf_dpi::{Inspector, Refused, Settings};

fn settings() -> Settings {
    let settings = Settings::new(Path::new(env!("CARGO_BIN_EXE_misbehaving")).into());
    Settings {
        ring_bytes: 1 << 17,
        ..settings
    }
}

/// Submits a packet that the program does not survive; returns how it ended. The next one has nothing to replay.
fn end(waiting: &Waiting, flow: u64, order: &str) -> String {
    let before = waiting.inspector.generation();
    waiting
        .inspector
        .submit(packet(flow, 1, order.as_bytes()))
        .unwrap();
    waiting.until(|inspector| {
        // Looking at answers, and for room, finds what is wrong.
        inspector.poll(|_| ());
        while order.starts_with("read") && inspector.submit(packet(1, 1, &[b'x'; 60_000])).is_ok() {
        }
        inspector.generation() > before && inspector.replayed(inspector.generation())
    });
    waiting.inspector.status().last_end.unwrap()
}

#[test]
fn garbage_is_named_and_ends_the_program() {
    let waiting = Waiting::live(settings());
    let cases = [
        ("flow", "an answer to (3, 1), expected Some((2, 1))"),
        ("sequence", "an answer to (2, 2), expected Some((2, 1))"),
        ("protocol", "an answer of protocol 2.1"),
        ("category", "an answer of category 2"),
        ("confidence", "an answer of confidence"),
        ("state", "an answer of state 2"),
        ("host", "an answer with flags"),
        ("flags", "an answer with flags 0xb04"),
        ("all", "an answer of state 255"),
        ("too much", "answers, expected 0 to"),
        ("back", "answers, expected 0 to"),
        ("read too much", "it has read up to word"),
    ];
    for (order, words) in cases {
        let ended = end(&waiting, 2, order);
        assert!(
            ended.starts_with("it wrote garbage: ") && ended.contains(words),
            "{order}: {ended}"
        );
        // Other packets at which it might have ended are no reason for quarantine.
        waiting.inspector.forget(2);
    }
    let answer = waiting.ask(packet(2, 9, b"anything"));
    assert_eq!(
        (answer.sequence, answer.host.as_bytes()),
        (9, &b"example.com"[..])
    );
}

#[test]
fn a_program_that_hangs_is_killed_and_its_flow_isolated_in_the_end() {
    let patience = Duration::from_millis(300);
    let waiting = Waiting::live(Settings {
        patience,
        ..settings()
    });
    for (count, order) in ["hang", "silence", "hang"].iter().enumerate() {
        assert!(
            waiting.inspector.submit(packet(5, 0, b"fine")).is_ok(),
            "{count}"
        );
        let ended = end(&waiting, 7, order);
        assert!(ended.contains("it made no progress"), "{ended}");
    }
    assert_eq!(
        waiting.inspector.submit(packet(7, 2, b"fine")),
        Err(Refused::Quarantined)
    );
    assert_eq!(waiting.inspector.status().quarantined, 1);
    assert_eq!(waiting.ask(packet(5, 3, b"fine")).sequence, 3);
}

#[test]
fn a_flow_that_ends_the_program_three_times_is_isolated() {
    let waiting = Waiting::live(settings());
    let ended = ["abort", "exit", "abort"].map(|order| end(&waiting, 7, order));
    assert!(
        ended[0].contains("SIGABRT") && ended[0].ends_with("at packet 1 of flow 7"),
        "{ended:?}"
    );
    assert!(ended[2].ends_with("in quarantine now"), "{ended:?}");
    assert_eq!(
        waiting.inspector.submit(packet(7, 2, b"fine")),
        Err(Refused::Quarantined)
    );
    assert_eq!(waiting.ask(packet(8, 3, b"fine")).sequence, 3);
    // Its number is another flow's when it is over.
    waiting.inspector.forget(7);
    assert_eq!(waiting.ask(packet(7, 4, b"fine")).sequence, 4);
}

#[test]
fn a_program_that_cannot_be_used_is_an_error_with_its_words() {
    let error = |program: &str| {
        Inspector::start(Settings::new(program.into()), || ())
            .err()
            .unwrap()
    };
    assert!(error("/nonexistent/nf-dpi").contains("cannot start /nonexistent/nf-dpi: No such file"));
    let ended = error("/bin/false");
    assert!(ended.contains("it ended (exit status: 1)"), "{ended}");
    // A text in place of an answer, such as a missing library's name.
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, "#!/bin/sh\necho no such library >&2\nexit 127\n").unwrap();
    let mut rights = std::fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o755);
    std::fs::set_permissions(&script, rights).unwrap();
    let ended = error(script.to_str().unwrap());
    assert!(ended.contains("it said: no such library"), "{ended}");
}
