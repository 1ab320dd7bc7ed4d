//! The verbs: out of order, repeated, and malformed.

use std::{
    os::fd::BorrowedFd,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use nf_ports::{Frame, Packet, Queue};
use nf_runtime::gate::Order;
use proptest::prelude::*;
use serde_json::{json, Value};

use crate::world::{authentic, Driver, How, Rig, Traffic, SECRET, SOON};

const ALL_VERBS: [&str; 14] = [
    "prepare", "precopy", "mark", "give", "commit", "relayed", "release", "drain", "thaw", "hold",
    "marked", "handover", "abort", "orphaned",
];

#[test]
fn verbs_are_idempotent_by_epoch() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Memfd, 7);
    driver.give(1 << 16);
    let epoch = json!({"epoch": 7});
    let (again, descriptors) = old.ask_with("prepare", epoch.clone(), vec![]).unwrap();
    assert_eq!((&again, descriptors.len()), (&driver.prepared, 2));
    let given = old.ask("give", epoch.clone()).unwrap();
    assert_eq!(old.ask("give", epoch.clone()).unwrap(), given);
    let code = |rig: &Rig, verb, request: Value| rig.ask(verb, request).unwrap_err().code;
    for verb in ALL_VERBS {
        for rig in [&old, &new] {
            assert_eq!(code(rig, verb, json!({"epoch": 6})), "epoch", "{verb}");
        }
    }
    assert_eq!(code(&old, "prepare", json!({"epoch": 8})), "epoch");
    assert_eq!(code(&old, "hold", epoch.clone()), "out-of-turn");
    driver.complete(&Traffic::new(0));
    let handed = new.ask("handover", epoch.clone()).unwrap();
    assert_eq!(handed["relayed"], 0);
    assert_eq!(code(&old, "thaw", epoch.clone()), "out-of-turn");
    assert_eq!(code(&new, "abort", epoch), "out-of-turn");
    assert_eq!(code(&old, "prepare", json!({"epoch": 9})), "epoch");
    assert_eq!(
        code(&new, "prepare", json!({"epoch": 9, "secret": "short"})),
        "malformed"
    );
    let request = json!({"epoch": 9, "secret": SECRET});
    assert_eq!(new.ask("prepare", request).unwrap()["epoch"], 9);
}

/// After a restart, the agent learns from the phase what an instance has done.
#[test]
fn the_phase_tells_what_an_instance_has_done() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let phase = |rig: &Rig| rig.instance.status()["migration"]["phase"].clone();
    let mut driver = Driver::new(&old, &new, How::Copy, 7);
    let mut seen = vec![(phase(&old), phase(&new))];
    for mut step in driver.before_give(1 << 16) {
        step(&mut driver);
        seen.push((phase(&old), phase(&new)));
    }
    old.ask("give", json!({"epoch": 7, "timeout_ms": 50}))
        .unwrap_err();
    seen.push((phase(&old), phase(&new)));
    new.ask("commit", json!({"epoch": 7})).unwrap();
    seen.push((phase(&old), phase(&new)));
    old.ask("commit", json!({"epoch": 7})).unwrap();
    seen.push((phase(&old), phase(&new)));
    driver.finish();
    seen.push((phase(&old), phase(&new)));
    let expected = [
        (Value::Null, Value::Null),
        (json!("prepared"), Value::Null),
        (json!("prepared"), json!("holding")),
        (json!("offered"), json!("holding")),
        (json!("offered"), json!("relayed-to")),
        (json!("given"), json!("relayed-to")),
        (json!("gone"), json!("running")),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_precopy_ends_when_the_rest_is_small() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let request = json!({"epoch": 1, "secret": SECRET});
    let prepared = old.ask("prepare", request).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}", directory.path().join("state").display());
    let request = json!({"epoch": 1, "secret": SECRET, "mode": "copy", "listen": listen, "rings": prepared["rings"]});
    let to = new.ask("hold", request).unwrap()["address"].clone();
    // Without packets, nothing is left after the first round, which sends everything.
    let request = json!({"epoch": 1, "to": to, "fit_bytes": 0, "rounds": 5});
    let copied = old.ask("precopy", request).unwrap();
    let bytes = copied["bytes"].as_u64().unwrap();
    let all = old.instance.status()["state_bytes"].as_u64().unwrap();
    assert_eq!((&copied["rounds"], &copied["left"]), (&json!(1), &json!(0)));
    assert!(bytes > all / 2 && bytes <= all, "{bytes} of {all}");
}

#[test]
fn configurations_wait_for_the_end_of_a_move() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    old.instance.configure(200).unwrap();
    old.ask("prepare", json!({"epoch": 1, "secret": SECRET}))
        .unwrap();
    assert_eq!(old.instance.configure(200).unwrap_err().code, "moving");
    assert_eq!(new.instance.configure(200).unwrap_err().code, "moving");
    old.ask("thaw", json!({"epoch": 1})).unwrap();
    old.instance.configure(200).unwrap();
}

#[test]
fn incompatible_state_is_refused_and_names_the_difference() {
    let old = Rig::new(1, false);
    for (how, expected) in [
        (How::Memfd, "region \"counts\""),
        (How::Copy, "another configuration or version"),
    ] {
        let new = Rig::with(1, 5000, |options| options.hold = true);
        let epoch = if how == How::Memfd { 1 } else { 2 };
        let (prepared, descriptors) = old
            .ask_with("prepare", json!({"epoch": epoch, "secret": SECRET}), vec![])
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", directory.path().join("state").display());
        let mode = if how == How::Memfd { "memfd" } else { "copy" };
        let request = json!({"epoch": epoch, "secret": SECRET, "mode": mode, "listen": listen, "rings": prepared["rings"]});
        let held = new.ask_with("hold", request, descriptors);
        let refusal = match how {
            How::Memfd => held.unwrap_err(),
            How::Copy => old
                .ask(
                    "precopy",
                    json!({"epoch": epoch, "to": held.unwrap().0["address"]}),
                )
                .unwrap_err(),
        };
        assert!(refusal.detail.contains(expected), "{refusal}");
        old.ask("thaw", json!({"epoch": epoch})).unwrap();
    }
}

#[test]
fn the_error_names_the_markers_that_arrived() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Memfd, 1);
    driver.give(1 << 16);
    let refusal = old
        .ask("drain", json!({"epoch": 1, "paths": 2, "timeout_ms": 1}))
        .unwrap_err();
    assert_eq!(
        (refusal.code, refusal.detail.contains("only the markers {}")),
        ("timeout", true),
        "{refusal}"
    );
    for path in 0..2 {
        old.wires[0].send(&authentic(1, path));
    }
    old.ask("drain", json!({"epoch": 1, "paths": 2})).unwrap();
}

#[test]
fn repeated_requests_release_nothing_early() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Memfd, 1);
    driver.give(1 << 16);
    let release = |request| new.ask("release", request).unwrap();
    let arrive = |number: u8| {
        new.wires[0].send(&[0, 0, number, 0, 0, 0, 0, 0, 0, 0]);
        // Into the store.
        new.instance
            .gate()
            .order(SOON, |_| vec![Order::Sweep])
            .unwrap();
    };
    let left = || std::iter::from_fn(|| new.wires[0].receive()).count();
    let empty_turns = || {
        (0..2).for_each(|_| {
            new.instance
                .gate()
                .order(SOON, |_| vec![Order::Sweep])
                .unwrap()
        })
    };
    release(json!({"epoch": 1, "fence": 5}));
    arrive(0);
    release(json!({"epoch": 1, "fence": 6, "reached": 5, "relayed": [0]}));
    arrive(1);
    for again in [
        json!({"epoch": 1, "fence": 6, "reached": 5, "relayed": [0]}),
        json!({"epoch": 1, "fence": 5}),
        json!({"epoch": 1, "fence": 7, "reached": 6, "relayed": [0]}),
    ] {
        release(again);
    }
    empty_turns();
    assert_eq!(left(), 0, "a fence that was set again is unknown");
    release(json!({"epoch": 1, "fence": 8, "reached": 7, "relayed": [0]}));
    empty_turns();
    assert_eq!(left(), 2);
    let refusal = new
        .ask(
            "release",
            json!({"epoch": 1, "fence": 9, "reached": 8, "relayed": [1], "timeout_ms": 1}),
        )
        .unwrap_err();
    assert_eq!(refusal.code, "timeout", "{refusal}");
}

/// A queue whose interface may stop sending.
struct Stuck(Box<dyn Queue>, Arc<AtomicBool>);

impl Queue for Stuck {
    fn receive(&mut self, into: &mut [Packet]) -> std::io::Result<usize> {
        self.0.receive(into)
    }

    fn transmit(&mut self, frames: &[Frame<'_>]) -> usize {
        self.0.transmit(frames)
    }

    fn flush(&mut self) -> bool {
        !self.1.load(Ordering::SeqCst)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

#[test]
fn a_failed_freeze_can_be_thawed() {
    let stuck = Arc::new(AtomicBool::new(true));
    let old = Rig::with(1, 200, |options| {
        let queue = options.ports[0].queues.remove(0);
        let queue = Stuck(queue, Arc::clone(&stuck));
        options.ports[0].queues.push(Box::new(queue));
    });
    let (epoch, new) = (json!({"epoch": 1}), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Memfd, 1);
    for mut step in driver.before_give(1 << 16) {
        step(&mut driver);
    }
    let refusal = thread::scope(|scope| {
        let waits = scope.spawn(|| new.ask("commit", json!({"epoch": 1, "timeout_ms": 500})));
        let refusal = old.ask("give", epoch.clone()).unwrap_err();
        assert_eq!(waits.join().unwrap().unwrap_err().code, "timeout");
        refusal
    });
    assert!(refusal.detail.contains("do not leave"), "{refusal}");
    stuck.store(false, Ordering::SeqCst);
    let sweep = || {
        let gate = old.instance.gate();
        gate.order(SOON, |_| vec![Order::Sweep]).unwrap();
    };
    old.wires[0].send(&[0; 10]);
    sweep();
    old.ask("thaw", epoch).unwrap();
    old.wires[0].send(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    (0..2).for_each(|_| sweep());
    let left = std::iter::from_fn(|| old.wires[0].receive()).count();
    assert_eq!(left, 2);
}

#[test]
fn a_release_does_not_wait_for_frames_that_a_dead_instance_kept() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Copy, 1);
    driver.give(1 << 16);
    new.ask("release", json!({"epoch": 1, "fence": 5})).unwrap();
    new.ask("orphaned", json!({"epoch": 1})).unwrap();
    let request = json!({"epoch": 1, "fence": 6, "reached": 5, "relayed": [3], "timeout_ms": 1000});
    new.ask("release", request).unwrap();
}

#[test]
fn a_missing_peer_is_an_error() {
    let old = Rig::new(1, false);
    old.ask("prepare", json!({"epoch": 1, "secret": SECRET}))
        .unwrap();
    for (to, code) in [
        ("unix:/nonexistent", "peer"),
        ("tcp:127.0.0.1:1", "peer"),
        ("smoke", "malformed"),
    ] {
        assert_eq!(
            old.ask("precopy", json!({"epoch": 1, "to": to}))
                .unwrap_err()
                .code,
            code,
            "{to}"
        );
    }
    old.ask("thaw", json!({"epoch": 1})).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// Any verbs in any order get an answer or a refusal and never hang, and a thaw makes a running instance resume.
    #[test]
    fn any_order_of_verbs_is_answered(
        asked in prop::collection::vec((any::<bool>(), 0_usize..13, 1_u64..4, prop_oneof![
            Just(json!({})), Just(json!({"secret": SECRET})), Just(json!({"mode": "memfd"})), Just(json!({"mode": "copy", "secret": SECRET, "listen": "tcp:127.0.0.1:0", "rings": {"queues": 1, "words": 9000}})),
            Just(json!({"paths": 0})), Just(json!({"paths": -1})), Just(json!({"paths": u64::MAX, "first": u64::MAX})), Just(json!({"fence": 1})),
            Just(json!({"fence": 2, "reached": 1, "relayed": [0]})), Just(json!({"fence": 3, "reached": 2, "relayed": 7})), Just(json!({"to": 5})), Just(json!({"rings": []})),
        ]), 1..20)
    ) {
        let (old, new) = (Rig::new(1, false), Rig::new(1, true));
        for (of_old, verb, epoch, mut request) in asked {
            request["epoch"] = json!(epoch);
            request["timeout_ms"] = json!(5);
            let rig = if of_old { &old } else { &new };
            if let Err(refusal) = rig.ask(ALL_VERBS[verb], request) {
                prop_assert!(!refusal.detail.is_empty());
            }
        }
        for rig in [old, new] {
            prop_assert!(rig.instance.gate().order(Duration::from_secs(5), |_| vec![]).is_ok());
        }
    }
}
