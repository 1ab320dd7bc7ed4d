//! A bump in the wire, for tests over real interfaces. It changes nothing, with or without frames of several segments; or, with three workers and addresses
//! of its own, it writes the number of the worker into the last byte of each frame's destination address.
//!
//! ```console
//! $ bump large|plain|ADDRESS,... CONTROL PORT0 BACKEND0 PORT1 BACKEND1     BACKEND: packet, xdp or auto; runs until `stop`
//! ```

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{net::IpAddr, path::Path};

use nf_ports::{open, Choice, Wanted};
use nf_runtime::{
    control::{serve, Verbs},
    state::StateBuilder,
    Batch, Context, Instance, NetworkFunction, Options, Prepared, Refusal,
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

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        for packet in batch.packets_mut() {
            if context.workers() > 1 {
                packet.bytes_mut()[5] = context.worker() as u8;
            }
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

fn run<const LARGE: bool>(control: &Path, ports: &[String], own: &[IpAddr]) {
    let queues = if own.is_empty() { 1 } else { 3 };
    let opened = ports.chunks(2).enumerate().map(|(index, port)| {
        let choice = match port[1].as_str() {
            "packet" => Choice::Packet,
            "xdp" => Choice::Xdp,
            _ => Choice::Auto,
        };
        let wanted = Wanted {
            choice,
            queues,
            large: LARGE,
            own,
            ..Wanted::default()
        };
        open(&port[0], index, wanted).unwrap()
    });
    let ports: Vec<_> = opened.collect();
    let prepared = Prepared::new((), ports.len(), None).unwrap();
    let options = Options {
        ports,
        ..Options::default()
    };
    let instance = Instance::<Bump<LARGE>>::start(options, prepared).unwrap();
    let server = serve(control, Verbs::of(&instance)).unwrap();
    instance.wait().unwrap();
    drop(server);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, control, ports @ ..] = &arguments[..] else {
        panic!("usage: bump large|plain|ADDRESS,... CONTROL PORT0 BACKEND0 PORT1 BACKEND1");
    };
    match kind.as_str() {
        "large" => run::<true>(Path::new(control), ports, &[]),
        "plain" => run::<false>(Path::new(control), ports, &[]),
        own => {
            let own: Vec<IpAddr> = own.split(',').map(|each| each.parse().unwrap()).collect();
            run::<false>(Path::new(control), ports, &own);
        }
    }
}
