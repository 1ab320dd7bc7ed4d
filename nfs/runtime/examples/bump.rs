//! A bump in the wire that changes nothing, with or without frames of several segments: for tests over real interfaces, and to measure what such frames save.
//!
//! ```console
//! $ bump large|plain CONTROL PORT0 BACKEND0 PORT1 BACKEND1     BACKEND: packet, xdp or auto; runs until `stop`
//! ```

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use nf_ports::{open, Choice};
use nf_runtime::{
    control::{serve, Verbs},
    state::StateBuilder,
    Batch, Context, Instance, NetworkFunction, Options, Refusal,
};

struct Bump<const LARGE: bool>;

impl<const LARGE: bool> NetworkFunction for Bump<LARGE> {
    const KIND: &'static str = "bump";
    const SUMMARY: &'static str = "a bump in the wire";
    const LARGE_FRAMES: bool = LARGE;
    const SCHEMA: u32 = 1;
    type Config = ();

    fn create((): (), state: &mut StateBuilder) -> Result<Self, Refusal> {
        state.region("unused", "u64", 1)?;
        Ok(Self)
    }

    fn process(&self, batch: &mut Batch, _: &Context<'_>) {
        for packet in batch.packets_mut() {
            packet.send(1 - packet.port());
        }
    }

    fn configure(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }

    fn wants_tick(&self) -> bool {
        false
    }
}

fn run<const LARGE: bool>(control: &Path, ports: &[String]) {
    let opened = ports.chunks(2).enumerate().map(|(index, port)| {
        let choice = match port[1].as_str() {
            "packet" => Choice::Packet,
            "xdp" => Choice::Xdp,
            _ => Choice::Auto,
        };
        open(&port[0], index, 1, choice, LARGE).unwrap()
    });
    let options = Options {
        ports: opened.collect(),
        ..Options::default()
    };
    let instance = Instance::<Bump<LARGE>>::start(options, ()).unwrap();
    let server = serve(control, Verbs::of(&instance)).unwrap();
    instance.wait().unwrap();
    drop(server);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, control, ports @ ..] = &arguments[..] else {
        panic!("usage: bump large|plain CONTROL PORT0 BACKEND0 PORT1 BACKEND1");
    };
    match kind.as_str() {
        "large" => run::<true>(Path::new(control), ports),
        "plain" => run::<false>(Path::new(control), ports),
        _ => panic!("{kind:?}: expected large or plain"),
    }
}
