//! Ticks of each worker, or of one.

use std::sync::Arc;

use nf_ports::memory;
use nf_runtime::{
    state::StateBuilder, Batch, Context, Instance, NetworkFunction, Options, Refusal,
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
    (Instance::start(options, ()).unwrap(), wires)
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
