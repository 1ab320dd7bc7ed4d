//! Frames of several segments move with an instance: through the ring, the connection, and the store of the new one.

use std::{num::NonZeroU16, os::fd::OwnedFd, sync::Arc, thread};

use nf_ports::memory::{self, Wire};
use nf_runtime::{
    gate::Order, migration::Migration, state::StateBuilder, Batch, Context, Frame, Instance,
    Network, NetworkFunction, Offloads, Options, PartialChecksum, Prepared, Refusal, Segments,
    MAX_LARGE_FRAME,
};
use serde_json::{json, Value};

use crate::{
    watchdog::watch,
    world::{authentic, How, SECRET, SOON},
};

/// A function that sends all frames back.
struct Mirror;

impl NetworkFunction for Mirror {
    const KIND: &'static str = "mirror";
    const SUMMARY: &'static str = "for tests";
    const LARGE_FRAMES: bool = true;
    const SCHEMA: u32 = 1;
    type Config = ();

    fn create((): (), state: &mut StateBuilder) -> Result<Self, Refusal> {
        state.region("unused", "u64", 1)?;
        Ok(Self)
    }

    fn process(&self, batch: &mut Batch, _: &Context<'_>) {
        for packet in batch.packets_mut() {
            packet.send(0);
        }
    }

    fn configure(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }
}

struct Rig {
    instance: Arc<Instance<Mirror>>,
    migration: Migration,
    wire: Wire,
}

impl Rig {
    fn new(hold: bool) -> Self {
        watch();
        let (port, wires) = memory::port(0, [2; 6], 1).unwrap();
        let options = Options {
            ports: vec![port],
            hold,
            ..Options::default()
        };
        let instance = Instance::start(options, Prepared::new((), 1, None).unwrap()).unwrap();
        Self {
            migration: Migration::of(&instance),
            instance,
            wire: wires[0].clone(),
        }
    }

    fn ask(&self, verb: &'static str, more: Value) -> Value {
        self.ask_with(verb, more, Vec::new()).0
    }

    fn ask_with(
        &self,
        verb: &'static str,
        more: Value,
        descriptors: Vec<OwnedFd>,
    ) -> (Value, Vec<OwnedFd>) {
        let mut request = json!({"epoch": 1});
        let more = more.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(more);
        self.migration.answer(verb, &request, descriptors).unwrap()
    }

    /// Sends TCP segments in one frame, and waits until the worker has received it.
    fn send(&self, mark: u8, segments: usize) {
        let bytes = frame(mark, segments * SIZE);
        let checksum = PartialChecksum {
            start: TCP as u16,
            field: PartialChecksum::TCP,
        };
        let split = Segments {
            network: Network::Ipv4,
            size: NonZeroU16::new(SIZE as u16).unwrap(),
            is_ecn: false,
        };
        let offloads = Offloads::Segments(checksum, split);
        let frame = Frame {
            bytes: &bytes,
            offloads,
        };
        self.wire.send_with(frame);
        let gate = self.instance.gate();
        gate.order(SOON, |_| vec![Order::Sweep]).unwrap();
    }

    /// Checks that the segments of such a frame are sent next.
    fn expect(&self, mark: u8, segments: usize) {
        let whole = frame(mark, segments * SIZE);
        for part in whole[PAYLOAD..].chunks(SIZE) {
            let segment = self.wire.receive_within(SOON).unwrap();
            assert_eq!(segment[PAYLOAD..], *part, "{mark}");
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.instance.stop_workers();
    }
}

const TCP: usize = 34;
const PAYLOAD: usize = 54;
const SIZE: usize = 1400;
/// The segments of the longest frame.
const MOST: usize = (65_535 - 40) / SIZE;
const _: () = assert!(PAYLOAD + MOST * SIZE <= MAX_LARGE_FRAME);

/// Builds a TCP frame whose payload depends on `mark`.
fn frame(mark: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0; PAYLOAD];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 6;
    frame[TCP + 12] = 5 << 4;
    frame.extend((0..length).map(|each| mark.wrapping_add((each % 251) as u8)));
    frame
}

#[test]
fn frames_of_several_segments_move_with_the_instance() {
    for how in [How::Memfd, How::Copy] {
        let (old, new) = (Rig::new(false), Rig::new(true));
        let directory = tempfile::tempdir().unwrap();
        old.send(1, MOST);
        old.expect(1, MOST);
        // This frame arrives directly, before the state does.
        new.send(4, 2);
        let request = json!({"secret": SECRET, "ring_bytes": 1});
        let (prepared, descriptors) = old.ask_with("prepare", request, vec![]);
        let rings = prepared["rings"].clone();
        if how == How::Memfd {
            let request = json!({"mode": "memfd", "rings": rings});
            new.ask_with("hold", request, descriptors);
        } else {
            let listen = format!("unix:{}", directory.path().join("state").display());
            let request =
                json!({"secret": SECRET, "mode": "copy", "listen": listen, "rings": rings});
            let to = new.ask("hold", request)["address"].clone();
            old.ask("precopy", json!({"to": to}));
        }
        thread::scope(|scope| {
            scope.spawn(|| new.ask("commit", json!({})));
            old.ask("give", json!({}));
        });
        old.send(2, MOST);
        old.send(3, 1);
        new.expect(2, MOST);
        new.expect(3, 1);
        old.wire.send(&authentic(1, 0));
        old.ask("drain", json!({"paths": 1}));
        new.ask("handover", json!({}));
        new.expect(4, 2);
        new.send(5, 3);
        new.expect(5, 3);
        assert!(old.wire.receive().is_none());
    }
}

/// The rollback: the old instance processes the frames of its ring.
#[test]
fn frames_of_several_segments_return_from_the_ring() {
    let (old, new) = (Rig::new(false), Rig::new(true));
    let prepared = old.ask("prepare", json!({"secret": SECRET}));
    let request = json!({"secret": SECRET, "mode": "copy", "listen": "tcp:127.0.0.1:0", "rings": prepared["rings"]});
    let to = new.ask("hold", request)["address"].clone();
    old.ask("precopy", json!({"to": to}));
    new.ask("abort", json!({}));
    let failed = old.migration.answer("give", &json!({"epoch": 1}), vec![]);
    assert_eq!(failed.unwrap_err().code, "peer");
    for number in 0..9 {
        old.send(number, usize::from(number) + 1);
    }
    old.ask("thaw", json!({}));
    for number in 0..9 {
        old.expect(number, usize::from(number) + 1);
    }
}
