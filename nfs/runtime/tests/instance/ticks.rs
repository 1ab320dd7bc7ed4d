//! Ticks of each worker, or of one.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
};

use nf_ports::memory;
use nf_runtime::{
    state::StateBuilder, Batch, Context, Instance, NetworkFunction, Options, Prepared, Refusal,
};

use crate::support::SOON;

/// A function whose ticks tell their worker by port 0.
struct Ticking<const EACH: bool>;

impl<const EACH: bool> NetworkFunction for Ticking<EACH> {
    const KIND: &'static str = "ticking";
    const SUMMARY: &'static str = "for tests";
    const EACH_WORKER_TICKS: bool = EACH;
    const SCHEMA: u32 = 1;
    type Config = ();

    fn create((): (), _: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self)
    }

    fn process(&self, _: &mut Batch, _: &Context<'_>) {}

    fn configure(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        out.emit(0, &[context.worker() as u8]);
    }
}

/// Starts a function on two workers; returns the other ends of its port.
fn start<const EACH: bool>() -> (Arc<Instance<Ticking<EACH>>>, Vec<memory::Wire>) {
    let (port, wires) = memory::port(0, [2, 0, 0, 0, 0, 1], 2).unwrap();
    let mut options = Options::default();
    options.ports.push(port);
    let prepared = Prepared::new((), 1, None).unwrap();
    (Instance::start(options, prepared).unwrap(), wires)
}

#[test]
fn each_worker_ticks_if_the_function_says_so() {
    let (instance, wires) = start::<true>();
    for _ in 0..3 {
        for (worker, wire) in wires.iter().enumerate() {
            assert_eq!(wire.receive_within(SOON), Some(vec![worker as u8]));
        }
    }
    instance.stop_workers().unwrap();
}

#[test]
fn otherwise_worker_0_ticks() {
    let (instance, wires) = start::<false>();
    for _ in 0..3 {
        assert_eq!(wires[0].receive_within(SOON), Some(vec![0]));
    }
    instance.stop_workers().unwrap();
    assert_eq!(wires[1].receive(), None);
}

/// A function that wants a tick only when a thread of its own asks for one.
struct Woken(Arc<AtomicBool>);

impl NetworkFunction for Woken {
    const KIND: &'static str = "woken";
    const SUMMARY: &'static str = "for tests";
    const SCHEMA: u32 = 1;
    type Config = ();

    fn create((): (), _: &mut StateBuilder) -> Result<Self, Refusal> {
        Ok(Self(Arc::default()))
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        for packet in batch.packets_mut() {
            packet.drop_for("work for a thread");
            let (waker, wants) = (context.waker(), Arc::clone(&self.0));
            thread::spawn(move || {
                wants.store(true, Ordering::Release);
                waker.wake();
            });
        }
    }

    fn configure(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }

    fn wants_tick(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn tick(&self, _: &Context<'_>, out: &mut Batch) {
        self.0.store(false, Ordering::Release);
        out.emit(0, b"done");
    }
}

#[test]
fn a_thread_wakes_the_worker_that_ticks() {
    let (port, wires) = memory::port(0, [2, 0, 0, 0, 0, 1], 1).unwrap();
    let mut options = Options::default();
    options.ports.push(port);
    let prepared = Prepared::<Woken>::new((), 1, None).unwrap();
    let instance = Instance::start(options, prepared).unwrap();
    for _ in 0..10 {
        wires[0].send(b"packet");
        // An idle worker that nothing wakes sleeps for 10 s.
        assert_eq!(wires[0].receive_within(SOON / 4), Some(b"done".to_vec()));
    }
    instance.stop_workers().unwrap();
}
