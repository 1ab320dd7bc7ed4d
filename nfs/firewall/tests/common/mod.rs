//! Packets and an inspector for tests.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)] // each test uses some

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        atomic::{AtomicU64, Ordering},
        Mutex,
    },
};

use etherparse::PacketBuilder;
use nf_firewall::{
    Answer, Catalogue, Config, Firewall, Inspecting, Inspection, Known, Refused, Request,
};
use nf_runtime::testing::{Harness, Output};
use serde_json::Value;

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
pub const FIN: u8 = 1;
pub const RST: u8 = 4;

pub type End = (u8, u16);

/// A TCP segment between hosts 10.0.0.x.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    pub from: End,
    pub to: End,
    pub flags: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub payload: &'a [u8],
    pub ttl: u8,
}

impl Segment<'_> {
    pub fn frame(&self) -> Vec<u8> {
        let builder =
            PacketBuilder::ethernet2([2, 9, 0, 0, 0, self.from.0], [2, 9, 0, 0, 0, self.to.0])
                .ipv4([10, 0, 0, self.from.0], [10, 0, 0, self.to.0], self.ttl)
                .tcp(self.from.1, self.to.1, self.sequence, 1000);
        let mut builder = if self.flags & ACK != 0 {
            builder.ack(self.acknowledgement)
        } else {
            builder
        };
        if self.flags & SYN != 0 {
            builder = builder.syn();
        }
        if self.flags & FIN != 0 {
            builder = builder.fin();
        }
        if self.flags & RST != 0 {
            builder = builder.rst();
        }
        let mut frame = Vec::new();
        builder.write(&mut frame, self.payload).unwrap();
        frame
    }
}

pub fn tcp(
    from: End,
    to: End,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    payload: &[u8],
) -> Vec<u8> {
    Segment {
        from,
        to,
        flags,
        sequence,
        acknowledgement,
        payload,
        ttl: 64,
    }
    .frame()
}

pub fn udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 9, 0, 0, 0, from.0], [2, 9, 0, 0, 0, to.0])
        .ipv4([10, 0, 0, from.0], [10, 0, 0, to.0], 64)
        .udp(from.1, to.1);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// The handshake of a connection whose both sides count from 100 and 500.
pub fn handshake(client: End, server: End) -> [(usize, Vec<u8>); 3] {
    [
        (0, tcp(client, server, SYN, 100, 0, b"")),
        (1, tcp(server, client, SYN | ACK, 500, 101, b"")),
        (0, tcp(client, server, ACK, 101, 501, b"")),
    ]
}

pub fn icmp_echo(from: u8, to: u8, is_reply: bool, id: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 9, 0, 0, 0, from], [2, 9, 0, 0, 0, to]).ipv4(
        [10, 0, 0, from],
        [10, 0, 0, to],
        64,
    );
    let builder = if is_reply {
        builder.icmpv4_echo_reply(id, 1)
    } else {
        builder.icmpv4_echo_request(id, 1)
    };
    let mut frame = Vec::new();
    builder.write(&mut frame, b"ping").unwrap();
    frame
}

/// "Port unreachable" from a host, about a frame.
pub fn unreachable(from: u8, to: u8, about: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 9, 0, 0, 0, from], [2, 9, 0, 0, 0, to])
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .icmpv4_raw(3, 3, [0; 4]);
    let mut frame = Vec::new();
    builder.write(&mut frame, &about[14..]).unwrap();
    frame
}

pub fn config(json: Value) -> Config {
    serde_json::from_value(json).unwrap()
}

pub fn firewall(json: Value) -> Harness<Firewall<Scripted>> {
    Harness::new(config(json)).unwrap()
}

/// The fate of frames, with the frames that are sent beside.
pub fn run(
    nf: &mut Harness<Firewall<Scripted>>,
    port: usize,
    frame: &[u8],
) -> (Output, Vec<(usize, Vec<u8>)>) {
    let output = nf.process(port, frame);
    (output, nf.take_emitted())
}

pub fn passes(nf: &mut Harness<Firewall<Scripted>>, port: usize, frame: &[u8]) -> bool {
    nf.process(port, frame) == Output::Sent(1 - port, frame.to_vec())
}

pub fn dropped(output: &Output) -> &'static str {
    match output {
        Output::Dropped(reason) => reason,
        Output::Sent(..) => panic!("sent"),
    }
}

/// An inspector that knows a flow by the first byte of the stream of payloads: `H` is HTTP, `T` TLS, `Y` YouTube in TLS. Any other is unknown after three
/// payloads. `?` as first byte says nothing, and the next byte counts. As nDPI does, it remembers something across flows: how many it has known.
#[derive(Default)]
pub struct Scripted {
    inner: Mutex<Script>,
    generation: AtomicU64,
}

#[derive(Default)]
struct Script {
    flows: HashMap<u64, u32>,
    answers: VecDeque<Answer>,
    is_replaying: bool,
    is_silent: bool,
}

thread_local! {
    /// Whether inspectors of this thread answer.
    pub static SILENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Whether inspectors of this thread take no requests now.
    pub static FULL: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// The number of restarts of this thread's inspectors.
    pub static RESTARTS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// The packets that inspectors of this thread have got.
    pub static PACKETS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Scripted {
    fn look(&self) {
        let restarts = RESTARTS.get() + 1;
        if self.generation.swap(restarts, Ordering::Relaxed) != restarts {
            *self.inner.lock().unwrap() = Script {
                is_replaying: true,
                ..Script::default()
            };
        }
    }

    fn take(&self, request: Request<'_>) {
        let mut script = self.inner.lock().unwrap();
        let (flow, sequence, known) = match request {
            Request::GiveUp { flow, sequence } => (flow, sequence, Some(0)),
            Request::Packet {
                flow,
                sequence,
                bytes,
                ..
            } => {
                PACKETS.set(PACKETS.get() + 1);
                let header = usize::from(bytes[0] & 15) * 4;
                let payload = match bytes[9] {
                    6 => &bytes[header + usize::from(bytes[header + 12] >> 4) * 4..],
                    17 => &bytes[header + 8..],
                    _ => &[],
                };
                let count = script.flows.entry(flow).or_default();
                *count += u32::from(!payload.is_empty());
                let known = match payload.first() {
                    Some(b'H') => Some(1),
                    Some(b'T') => Some(2),
                    Some(b'Y') => Some(3),
                    Some(b'?') | None => None,
                    Some(_) => (*count >= 3).then_some(0),
                };
                (flow, sequence, known)
            }
        };
        if known.is_some() {
            script.flows.remove(&flow);
        }
        let application = known.unwrap_or_default();
        script.answers.push_back(Answer {
            flow,
            sequence,
            is_final: known.is_some(),
            known: Known {
                master: if application == 3 { 2 } else { 0 },
                application,
                category: u16::from(application != 0),
                host: if application == 1 {
                    "www.example.com".to_owned()
                } else {
                    String::new()
                },
                ja3: None,
            },
        });
    }
}

impl Inspection for Scripted {
    fn start(_: &Inspecting, _: impl Fn() + Send + 'static) -> Result<Self, String> {
        Ok(Self::default())
    }

    fn catalogue(&self) -> Catalogue {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Catalogue {
            protocols: names(&["Unknown", "HTTP", "TLS", "YouTube"]),
            categories: names(&["Unspecified", "Web"]),
        }
    }

    fn generation(&self) -> u64 {
        self.look();
        self.generation.load(Ordering::Relaxed)
    }

    fn submit(&self, request: Request<'_>) -> Result<(), Refused> {
        self.look();
        if FULL.get() || self.inner.lock().unwrap().is_replaying {
            return Err(Refused::Later);
        }
        self.take(request);
        Ok(())
    }

    fn replay(&self, generation: u64, request: Request<'_>) -> Result<(), Refused> {
        if generation != self.generation() {
            return Err(Refused::Later);
        }
        self.take(request);
        Ok(())
    }

    fn replayed(&self, generation: u64) -> bool {
        let is_it = generation == self.generation();
        if is_it {
            self.inner.lock().unwrap().is_replaying = false;
        }
        is_it
    }

    fn forget(&self, flow: u64) {
        self.inner.lock().unwrap().flows.remove(&flow);
    }

    fn poll(&self, each: &mut dyn FnMut(Answer)) -> usize {
        self.look();
        if SILENT.get() {
            return 0;
        }
        let mut script = self.inner.lock().unwrap();
        let answers: Vec<Answer> = script.answers.drain(..).collect();
        drop(script);
        let count = answers.len();
        answers.into_iter().for_each(each);
        count
    }
}
