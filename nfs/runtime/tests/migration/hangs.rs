//! One of the two instances hangs: it exists but does nothing. The agent can roll back or go forward without it.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use nf_arena::{ArenaBuilder, Region};
use nf_runtime::{gate::Order, migration::Ring, Refusal};
use serde_json::{json, Value};

use crate::world::{
    authentic, check_all, collect, hand_over, Driver, How, Rig, Traffic, SECRET, SOON,
};

const FLOWS: u16 = 10;

/// A proxy between two instances; while it is paused, each seems to hang to the other.
#[derive(Clone, Default)]
struct Between(Arc<AtomicBool>);

impl Between {
    /// Accepts one connection at `at` and connects to `to`.
    fn listen(&self, at: &Path, to: &str) {
        let (listener, to) = (UnixListener::bind(at).unwrap(), to.to_owned());
        let this = self.clone();
        thread::spawn(move || {
            let (old, _) = listener.accept().unwrap();
            let new = UnixStream::connect(to.strip_prefix("unix:").unwrap()).unwrap();
            let (from, into) = (new.try_clone().unwrap(), old.try_clone().unwrap());
            let back = this.clone();
            thread::spawn(move || back.pass(from, into));
            this.pass(old, new);
        });
    }

    fn pass(&self, mut from: UnixStream, mut to: UnixStream) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            while self.0.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
    }

    fn pause(&self, pause: bool) {
        self.0.store(pause, Ordering::SeqCst);
    }
}

struct World {
    /// The ring from which the old instance relays.
    ring: Ring<Region>,
    old: Rig,
    new: Rig,
    between: Between,
    _directory: tempfile::TempDir,
}

impl World {
    /// Creates two instances; all state but the last blocks is copied.
    fn copied() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (Rig::new(1, false), Rig::new(1, true));
        let request = json!({"epoch": 1, "secret": SECRET, "ring_bytes": 1 << 16});
        let (prepared, mut descriptors) = old.ask_with("prepare", request, vec![]).unwrap();
        let rings = prepared["rings"].clone();
        let mut arena = ArenaBuilder::adopt(descriptors.remove(1), "nf-relay", 2).unwrap();
        let words = rings["words"].as_u64().unwrap() as usize;
        let ring = arena
            .region("queue 0", Ring::<Region>::LAYOUT, words)
            .unwrap();
        let ring = Ring::open(ring);
        let listen = format!("unix:{}", directory.path().join("new").display());
        let request =
            json!({"epoch": 1, "secret": SECRET, "mode": "copy", "listen": listen, "rings": rings});
        let address = new.ask("hold", request).unwrap()["address"].clone();
        let (between, at) = (Between::default(), directory.path().join("between"));
        between.listen(&at, address.as_str().unwrap());
        let request = json!({"epoch": 1, "to": format!("unix:{}", at.display())});
        old.ask("precopy", request).unwrap();
        Self {
            ring,
            old,
            new,
            between,
            _directory: directory,
        }
    }

    fn committed() -> Self {
        let world = Self::copied();
        hand_over(&world.old, &world.new, 1);
        world
    }

    fn thaw(&self) {
        self.old.ask("thaw", json!({"epoch": 1})).unwrap();
    }

    /// Freezes the old instance, which then fails to hand over, because the new one hangs.
    fn fail_to_give(&self) -> Refusal {
        self.between.pause(true);
        let request = json!({"epoch": 1, "timeout_ms": 50});
        let refusal = self.old.ask("give", request).unwrap_err();
        assert_eq!(refusal.code, "peer", "{refusal}");
        refusal
    }

    fn phase(rig: &Rig) -> Value {
        rig.instance.status()["migration"]["phase"].clone()
    }

    /// Sends until the relay waits for room toward the new instance, which hangs; returns the number of frames sent.
    fn fill_the_way(&self) -> u32 {
        let mut sent = 0;
        while self.is_relayed_soon() {
            send(&self.old, sent..sent + 10);
            sent += 10;
            assert!(sent < 10_000, "the relay never waits for room");
        }
        sent
    }

    fn is_relayed_soon(&self) -> bool {
        let gate = self.old.instance.gate();
        gate.order(SOON, |_| vec![Order::Sweep]).unwrap();
        let end = Instant::now() + Duration::from_millis(500);
        while !self.ring.is_empty() && Instant::now() < end {
            thread::yield_now();
        }
        self.ring.is_empty()
    }

    fn drain(&self, number: u32, timeout_ms: u64) -> Result<Value, nf_runtime::Refusal> {
        self.old.wires[0].send(&authentic(1, number));
        let request = json!({"epoch": 1, "first": number, "paths": 1, "timeout_ms": timeout_ms});
        self.old.ask("drain", request)
    }
}

/// Sends numbered packets of flow 0.
fn send(rig: &Rig, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut frame = [0; 1000];
        frame[2..6].copy_from_slice(&number.to_le_bytes());
        rig.wires[0].send(&frame);
    }
}

#[test]
fn a_precopy_to_a_hanging_new_instance_times_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("silent");
    let _listener = UnixListener::bind(&path).unwrap();
    let old = Rig::new(1, false);
    old.ask("prepare", json!({"epoch": 1, "secret": SECRET}))
        .unwrap();
    let to = format!("unix:{}", path.display());
    let request = json!({"epoch": 1, "to": to, "timeout_ms": 30});
    let refusal = old.ask("precopy", request).unwrap_err();
    assert_eq!(refusal.code, "peer");
    assert!(
        refusal.detail.contains("no progress within 30ms"),
        "{refusal}"
    );
    old.ask("thaw", json!({"epoch": 1})).unwrap();
}

#[test]
fn a_thaw_does_not_wait_for_a_hanging_new_instance() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("silent");
    let listener = UnixListener::bind(&path).unwrap();
    let old = Rig::new(1, false);
    old.ask("prepare", json!({"epoch": 1, "secret": SECRET}))
        .unwrap();
    thread::scope(|scope| {
        let to = format!("unix:{}", path.display());
        let request = json!({"epoch": 1, "to": to, "timeout_ms": 600_000});
        let precopy = scope.spawn(|| old.ask("precopy", request));
        let _connected = listener.accept().unwrap();
        // A thaw of another epoch ends nothing.
        let other = json!({"epoch": 2, "timeout_ms": 100});
        assert_eq!(old.ask("thaw", other).unwrap_err().code, "busy");
        assert!(!precopy.is_finished());
        old.ask("thaw", json!({"epoch": 1})).unwrap();
        assert_eq!(precopy.join().unwrap().unwrap_err().code, "peer");
    });
    old.ask("prepare", json!({"epoch": 3, "secret": SECRET}))
        .unwrap();
}

#[test]
fn a_new_instance_that_hangs_in_the_hand_over_is_abandoned() {
    let world = World::copied();
    let traffic = Traffic::new(FLOWS);
    let sent = thread::scope(|scope| {
        let _stop = traffic.stop_at_end();
        let sender = scope.spawn(|| traffic.run(&[&world.old], 200));
        world.fail_to_give();
        assert_eq!(World::phase(&world.old), "frozen");
        world.thaw();
        traffic.stop();
        sender.join().unwrap()
    });
    let expected = sent as usize * FLOWS as usize;
    check_all(&collect(&[&world.old], expected), FLOWS, sent);
}

/// A frozen old instance gets more frames than its ring holds: it resumes with all of them.
#[test]
fn a_full_ring_loses_nothing_after_a_thaw() {
    let world = World::copied();
    world.fail_to_give();
    send(&world.old, 0..200);
    world.thaw();
    check_all(&collect(&[&world.old], 200), 1, 200);
}

#[test]
fn relayed_frames_wait_for_a_new_instance_that_hangs_for_a_while() {
    let world = World::committed();
    world.between.pause(true);
    let sent = world.fill_the_way();
    let refusal = world.drain(1, 200).unwrap_err();
    assert_eq!(refusal.code, "timeout", "{refusal}");
    assert!(
        refusal.detail.contains("did not take all relayed frames"),
        "{refusal}"
    );
    world.between.pause(false);
    assert_eq!(world.drain(2, 20_000).unwrap()["lost"], 0);
    world.new.ask("handover", json!({"epoch": 1})).unwrap();
    let seen = collect(&[&world.old, &world.new], sent as usize);
    check_all(&seen, 1, sent);
}

/// The rings are emptied all the same: otherwise the markers, which are behind the frames that fill them, would never be seen.
#[test]
fn a_broken_relay_is_reported_once_and_still_passes_markers() {
    let mut world = World::committed();
    // This closes its connection.
    drop(std::mem::replace(&mut world.new, Rig::new(1, true)));
    // Several times as much as the ring holds.
    for round in 0..40 {
        send(&world.old, 20 * round..20 * (round + 1));
    }
    let refusal = world.drain(7, 10_000).unwrap_err();
    assert_eq!(refusal.code, "peer", "{refusal}");
    assert!(refusal.detail.contains("frames were not sent"), "{refusal}");
    // The agent no longer knows the numbers of earlier markers.
    assert_eq!(world.drain(8, 10_000).unwrap()["relayed"], json!([800]));
}

/// The new instance was offered the right to send and does not answer: the agent decides, by whether that instance lives.
#[test]
fn an_offer_without_an_answer_is_completed_or_undone() {
    for lives in [true, false] {
        let mut world = World::copied();
        let refusal = world
            .old
            .ask("give", json!({"epoch": 1, "timeout_ms": 50}))
            .unwrap_err();
        assert_eq!(refusal.code, "peer", "{refusal}");
        assert_eq!(World::phase(&world.old), "offered");
        send(&world.old, 0..5);
        if lives {
            world.new.ask("commit", json!({"epoch": 1})).unwrap();
            world.old.ask("commit", json!({"epoch": 1})).unwrap();
            assert_eq!(world.drain(1, 20_000).unwrap()["lost"], 0);
            world.new.ask("handover", json!({"epoch": 1})).unwrap();
        } else {
            drop(std::mem::replace(&mut world.new, Rig::new(1, true)));
            world.thaw();
        }
        check_all(&collect(&[&world.old, &world.new], 5), 1, 5);
    }
}

/// A copy knows nothing of an offer if the old instance died before it sent that; the agent, which knows that it never sends again, does.
#[test]
fn an_agent_may_hand_over_for_a_dead_old_instance() {
    let world = World::copied();
    let early = json!({"epoch": 1, "given": true, "timeout_ms": 30});
    assert_eq!(world.new.ask("commit", early).unwrap_err().code, "peer");
    world
        .old
        .ask("give", json!({"epoch": 1, "timeout_ms": 50}))
        .unwrap_err();
    world
        .new
        .ask("commit", json!({"epoch": 1, "given": true}))
        .unwrap();
}

#[test]
fn nothing_is_given_to_an_instance_that_does_not_wait() {
    let (old, new) = (Rig::new(1, false), Rig::new(1, true));
    let mut driver = Driver::new(&old, &new, How::Memfd, 1);
    for mut step in driver.before_give(1 << 16) {
        step(&mut driver);
    }
    let short = json!({"epoch": 1, "timeout_ms": 20});
    assert_eq!(
        new.ask("commit", short.clone()).unwrap_err().code,
        "timeout"
    );
    let refusal = old.ask("give", short.clone()).unwrap_err();
    assert_eq!(refusal.code, "peer", "{refusal}");
    assert_eq!(World::phase(&old), "prepared", "packets continue");
    old.ask("thaw", json!({"epoch": 1})).unwrap();
    let refusal = new.ask("commit", short).unwrap_err();
    assert_eq!(refusal.code, "cancelled", "{refusal}");
}

#[test]
fn a_new_instance_does_not_wait_for_a_hanging_old_one() {
    let world = World::committed();
    send(&world.old, 0..5);
    // Frames that left the old instance are processed.
    let seen = collect(&[&world.new], 5);
    world.between.pause(true);
    let new = &world.new;
    let refusal = new
        .ask("handover", json!({"epoch": 1, "timeout_ms": 30}))
        .unwrap_err();
    assert_eq!(refusal.code, "timeout");
    assert_eq!(
        new.ask("orphaned", json!({"epoch": 2})).unwrap_err().code,
        "epoch"
    );
    let refusal = new
        .ask("handover", json!({"epoch": 1, "timeout_ms": 100}))
        .unwrap_err();
    assert_eq!(
        refusal.code, "timeout",
        "a verb of another epoch changes nothing"
    );
    new.ask("orphaned", json!({"epoch": 1})).unwrap();
    assert_eq!(
        new.ask("handover", json!({"epoch": 1})).unwrap()["orphaned"],
        true
    );
    check_all(&seen, 1, 5);
}

#[test]
fn a_new_instance_is_aborted_while_the_old_one_hangs() {
    let world = World::copied();
    world.between.pause(true);
    let address = world._directory.path().join("new");
    world.new.ask("abort", json!({"epoch": 1})).unwrap();
    let end = Instant::now() + SOON;
    while UnixStream::connect(&address).is_ok() {
        assert!(Instant::now() < end, "the new instance still listens");
        thread::sleep(Duration::from_millis(1));
    }
    // The connection is closed as well.
    world.between.pause(false);
    let refusal = world.old.ask("give", json!({"epoch": 1})).unwrap_err();
    assert_eq!(refusal.code, "peer");
    world.thaw();
}
