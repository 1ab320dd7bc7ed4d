//! Instances that stop and resume processing under traffic.

use std::{
    collections::VecDeque,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex,
    },
    thread,
};

use nf_runtime::{
    gate::{FrameSink, FrameSource, MemoryStore, Mode, Order, Taken},
    Frame, Packet,
};

use crate::support::{Config, Rig, SOON};

/// The relay between two instances.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<VecDeque<Option<Vec<u8>>>>>);

impl FrameSink for Pipe {
    fn room(&self, _longest: usize) -> usize {
        1000
    }

    fn put(&mut self, port: usize, frame: Frame<'_>) {
        assert_eq!(port, 0);
        let bytes = frame.bytes.to_vec();
        self.0.lock().unwrap().push_back(Some(bytes));
    }
}

impl FrameSource for Pipe {
    fn take(&mut self, packet: &mut Packet) -> Taken {
        match self.0.lock().unwrap().pop_front() {
            None => Taken::Nothing,
            Some(None) => Taken::End,
            Some(Some(frame)) => {
                assert!(packet.fill(0, &frame));
                Taken::Frame
            }
        }
    }
}

fn store() -> Box<MemoryStore> {
    Box::new(MemoryStore::new(1 << 30))
}

/// A whole move, step by step as in migration, while packets go to the old instance and then to the new one; both are real instances with threads.
#[test]
fn a_move_under_traffic_keeps_every_packet_in_order() {
    for _ in 0..10 {
        let old = Rig::new(2, Config::default());
        let new = Rig::with(2, Config::default(), |options| options.hold = true);
        let flipped = AtomicBool::new(false);
        let pipes = [Pipe::default(), Pipe::default()];
        let sent = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let (mut number, mut after) = (0_u32, 0);
                while after < 3000 {
                    // The queues of both workers get the same numbers.
                    let rig = if flipped.load(Ordering::SeqCst) {
                        &new
                    } else {
                        &old
                    };
                    after += u32::from(flipped.load(Ordering::SeqCst));
                    let frame = [&b"a"[..], &number.to_le_bytes()].concat();
                    rig.wires[0].iter().for_each(|wire| wire.send(&frame));
                    number += 1;
                    if number % 64 == 0 {
                        thread::yield_now();
                    }
                }
                number
            });
            let relay = |index: usize| vec![Order::Relay(Box::new(pipes[index].clone()))];
            old.instance.gate().order(SOON, relay).unwrap();
            let processed =
                || old.instance.counters().json()["packets_processed{worker=\"0\"}"].clone();
            let before = processed();
            let inject = |index: usize| vec![Order::Inject(Box::new(pipes[index].clone()))];
            let loaded = new.instance.loaded().unwrap();
            let _ = new.instance.install(loaded);
            new.instance.gate().order(SOON, inject).unwrap();
            flipped.store(true, Ordering::SeqCst);
            let sent = sender.join().unwrap();
            // The old instance has received everything it will: its queues are empty.
            old.instance
                .gate()
                .order(SOON, |_| vec![Order::Sweep])
                .unwrap();
            pipes
                .iter()
                .for_each(|pipe| pipe.0.lock().unwrap().push_back(None));
            new.instance.gate().wait_injected(SOON).unwrap();
            new.instance
                .gate()
                .order(SOON, |_| vec![Order::Run])
                .unwrap();
            assert_eq!(processed(), before);
            sent
        });
        for worker in 0..2 {
            let mut numbers = Vec::new();
            while let Some(frame) = old.wires[1][worker].receive() {
                numbers.push(u32::from_le_bytes(frame[1..].try_into().unwrap()));
            }
            while numbers.len() < sent as usize {
                let frame = new.out(1, worker);
                numbers.push(u32::from_le_bytes(frame[1..].try_into().unwrap()));
            }
            assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
            assert!(new.wires[1][worker].receive().is_none());
        }
    }
}

#[test]
fn an_abandoned_move_resumes_without_loss() {
    let rig = Rig::new(1, Config::default());
    let pipe = Pipe::default();
    rig.instance
        .gate()
        .order(SOON, |_| vec![Order::Relay(Box::new(pipe.clone()))])
        .unwrap();
    assert_eq!(rig.instance.gate().mode(), Mode::Relay);
    let refusal = rig.instance.configure(Config::default()).unwrap_err();
    assert_eq!(
        (refusal.code, rig.instance.status()["mode"].as_str()),
        ("moving", Some("relay"))
    );
    rig.wires[0][0].send(b"1");
    rig.instance
        .gate()
        .order(SOON, |_| vec![Order::Sweep])
        .unwrap();
    rig.instance
        .gate()
        .order(SOON, |_| {
            vec![
                Order::Hold(store()),
                Order::Inject(Box::new(pipe.clone())),
                Order::Run,
            ]
        })
        .unwrap();
    rig.wires[0][0].send(b"2");
    assert_eq!(rig.out(1, 0), b"1");
    pipe.0.lock().unwrap().push_back(None);
    assert_eq!(rig.out(1, 0), b"2");
    rig.instance.gate().wait_injected(SOON).unwrap();
    rig.instance.configure(Config::default()).unwrap();
}

#[test]
fn the_error_names_a_worker_that_does_not_answer() {
    let rig = Rig::new(1, Config::default());
    // A sweep into a sink without room never ends.
    struct Full;
    impl FrameSink for Full {
        fn room(&self, _: usize) -> usize {
            0
        }
        fn put(&mut self, _: usize, _: Frame<'_>) {}
    }
    let orders = |_| vec![Order::Relay(Box::new(Full)), Order::Sweep];
    let timeout = std::time::Duration::from_millis(20);
    let refusal = rig.instance.gate().order(timeout, orders).unwrap_err();
    assert_eq!(refusal.detail, "worker 0 did not answer within 20ms");
    rig.instance
        .gate()
        .order(SOON, |_| vec![Order::Run])
        .unwrap();
    rig.wires[0][0].send(b"again");
    assert_eq!(rig.out(1, 0), b"again");
}
