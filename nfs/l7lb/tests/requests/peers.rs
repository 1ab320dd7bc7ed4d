//! A client and backends as segments, built and read by etherparse.

use std::num::NonZeroU16;

use etherparse::{PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice};
use nf_l7lb::{Config, L7lb};
use nf_runtime::{
    testing::{Harness, Output},
    Frame, Network, NetworkFunction, Offloads, PartialChecksum, Segments,
};
use serde_json::json;

pub const CLIENT: [u8; 4] = [10, 0, 0, 1];
pub const VIP: [u8; 4] = [10, 0, 0, 100];
pub const OWN: [u8; 4] = [10, 1, 0, 2];
pub const A: [u8; 4] = [10, 1, 0, 11];
pub const B: [u8; 4] = [10, 1, 0, 12];
const MILLISECOND: u64 = 1_000_000;
/// The offset of the TCP header in a frame.
const TCP_AT: usize = 34;

/// A segment as a peer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub to: [u8; 4],
    pub ports: (u16, u16),
    pub syn: bool,
    pub ack: Option<u32>,
    pub fin: bool,
    pub rst: bool,
    pub seq: u32,
    pub window: u16,
    pub stamps: Option<(u32, u32)>,
    /// Options of a SYN.
    pub permits_sack: bool,
    pub scale: Option<u8>,
    /// The SACK blocks.
    pub blocks: Vec<(u32, u32)>,
    pub payload: Vec<u8>,
}

impl Seen {
    /// Returns the same segment at the time of another one.
    pub fn with_stamps_of(self, other: &Self) -> Self {
        Self {
            stamps: other.stamps,
            ..self
        }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).unwrap()
    }
}

fn read(frame: &[u8]) -> Option<Seen> {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = &packet.net else {
        return None;
    };
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
        return None;
    };
    let (from, to) = (ip.header().source(), ip.header().destination());
    let sum = tcp.calc_checksum_ipv4(from, to).unwrap();
    assert_eq!(tcp.checksum(), sum, "the checksum of a sent segment");
    let stamps = tcp.options_iterator().find_map(|option| match option {
        Ok(TcpOptionElement::Timestamp(value, echo)) => Some((value, echo)),
        _ => None,
    });
    let blocks = tcp.options_iterator().find_map(|option| match option {
        Ok(TcpOptionElement::SelectiveAcknowledgement(first, rest)) => Some(
            [first]
                .into_iter()
                .chain(rest.into_iter().flatten())
                .collect(),
        ),
        _ => None,
    });
    let scale = tcp.options_iterator().find_map(|option| match option {
        Ok(TcpOptionElement::WindowScale(scale)) => Some(scale),
        _ => None,
    });
    let permits = Ok(TcpOptionElement::SelectiveAcknowledgementPermitted);
    Some(Seen {
        permits_sack: tcp.options_iterator().any(|option| option == permits),
        scale,
        blocks: blocks.unwrap_or_default(),
        to,
        ports: (tcp.source_port(), tcp.destination_port()),
        syn: tcp.syn(),
        ack: tcp.ack().then(|| tcp.acknowledgment_number()),
        fin: tcp.fin(),
        rst: tcp.rst(),
        seq: tcp.sequence_number(),
        window: tcp.window_size(),
        stamps,
        payload: tcp.payload().to_vec(),
    })
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    address: [u8; 4],
    port: u16,
    pub to: ([u8; 4], u16),
    interface: usize,
    pub seq: u32,
    pub ack: u32,
    pub stamp: u32,
    pub echo: u32,
    pub window: u16,
    /// The options in use.
    pub offer: Offer,
}

/// The options that an end uses.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub stamps: bool,
    pub sack: bool,
    pub scale: Option<u8>,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            stamps: true,
            sack: true,
            scale: Some(7),
        }
    }
}

/// A load balancer between two links.
pub struct Bed {
    pub lb: Harness<L7lb>,
    /// Everything that it has sent and no test has read.
    pub sent: Vec<Seen>,
}

pub fn config(extra: serde_json::Value) -> Config {
    let pool = |name: &str, address: &str| json!({"name": name, "backends": [{"name": "one", "address": address, "port": 80}]});
    let mut listener = json!({
        "name": "web", "address": "10.0.0.100", "port": 80, "forwarded_for": true,
        "routes": [
            {"name": "ping", "path": "/ping", "answer": {"status": 200, "body": "pong\n"}},
            {"name": "b", "path": "/b", "pool": "b"},
            {"name": "a", "path": "/", "pool": "a"},
        ],
    });
    if let Some(more) = extra.as_object() {
        listener.as_object_mut().unwrap().extend(more.clone());
    }
    let neighbours: Vec<_> = [("10.0.0.1", 1, 0), ("10.1.0.11", 11, 1), ("10.1.0.12", 12, 1)]
        .map(|(address, mac, interface)| {
            json!({"address": address, "mac": format!("02:00:00:00:01:{mac:02x}"), "interface": interface})
        })
        .into();
    serde_json::from_value(json!({
        "interfaces": [{"addresses": ["10.0.0.2/24"]}, {"addresses": ["10.1.0.2/24"]}],
        "neighbours": neighbours,
        "listeners": [listener],
        "pools": [pool("a", "10.1.0.11"), pool("b", "10.1.0.12")],
        "limits": {"connections": 64, "chunks": 128, "neighbours": 16, "backends": 8},
    }))
    .unwrap()
}

impl Bed {
    pub fn new() -> Self {
        Self::with(json!({}))
    }

    /// Creates a load balancer whose listener has further settings.
    pub fn with(extra: serde_json::Value) -> Self {
        Self::of(config(extra))
    }

    pub fn of(config: Config) -> Self {
        let lb = Harness::new(config).unwrap();
        Self {
            lb,
            sent: Vec::new(),
        }
    }

    /// Moves the state to another instance.
    pub fn moved(self) -> Self {
        self.moved_to(json!({}))
    }

    /// Moves the state to another instance, whose listener has further settings.
    pub fn moved_to(self, extra: serde_json::Value) -> Self {
        self.moved_with(config(extra))
    }

    /// Moves the state to another instance with this configuration.
    pub fn moved_with(self, config: Config) -> Self {
        let lb = self.lb.adopting(config).unwrap();
        Self { lb, ..self }
    }

    /// Puts another configuration in force.
    pub fn configure(&mut self, config: Config) {
        self.lb.function().configure(config).unwrap();
    }

    pub fn pass(&mut self, interface: usize, frame: &[u8]) {
        if let Output::Sent(_, bytes) = self.lb.process(interface, frame) {
            self.sent.extend(read(&bytes));
        }
        self.collect();
    }

    /// Passes a packet with offloads, and notes all that leaves as it appears on the wire.
    pub fn pass_large(&mut self, interface: usize, frame: Frame<'_>) {
        let leaving = self.lb.process_leaving(&[(interface, frame)]);
        self.sent
            .extend(leaving.iter().filter_map(|(_, frame)| read(frame)));
    }

    fn collect(&mut self) {
        let emitted = self.lb.take_emitted();
        self.sent
            .extend(emitted.iter().filter_map(|(_, frame)| read(frame)));
    }

    /// Lets time pass, with a tick every 10 ms.
    pub fn wait(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.lb.advance(10 * MILLISECOND);
            self.lb.tick();
            self.collect();
        }
    }

    /// Lets the function tick, without any time passing.
    pub fn tick(&mut self) {
        self.lb.tick();
        self.collect();
    }

    /// Takes the segments sent to an address.
    pub fn take(&mut self, to: [u8; 4]) -> Vec<Seen> {
        let (taken, rest) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|seen| seen.to == to);
        self.sent = rest;
        taken
    }

    /// Takes the only segment sent to an address.
    pub fn one(&mut self, to: [u8; 4]) -> Seen {
        let mut all = self.take(to);
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.lb.counters()[name].as_f64().unwrap() as u64
    }

    /// Opens a connection from a client's port.
    pub fn client(&mut self, port: u16) -> Peer {
        self.client_with(port, Offer::default()).0
    }

    /// Opens a connection of a client with these options; returns the SYN-ACK, too.
    pub fn client_with(&mut self, port: u16, offer: Offer) -> (Peer, Seen) {
        let (mut client, answer) = self.handshake(port, offer);
        client.send(self, Flags::Ack, b"");
        (client, answer)
    }

    /// Opens a connection without the last segment of the handshake.
    pub fn handshake(&mut self, port: u16, offer: Offer) -> (Peer, Seen) {
        let mut client = Peer {
            address: CLIENT,
            port,
            to: (VIP, 80),
            interface: 0,
            seq: 0xffff_ff00,
            ack: 0,
            stamp: 1000,
            echo: 0,
            window: 4096,
            offer,
        };
        client.send(self, Flags::Syn, b"");
        let answer = self.one(CLIENT);
        assert!(answer.syn);
        client.seq = client.seq.wrapping_add(1);
        assert_eq!(answer.ack, Some(client.seq));
        client.ack = answer.seq.wrapping_add(1);
        match answer.stamps {
            Some((value, _)) => client.echo = value,
            None => client.offer.stamps = false,
        }
        (client, answer)
    }

    /// Accepts a connection at a backend.
    pub fn backend(&mut self, address: [u8; 4]) -> Peer {
        self.backend_with(address, Offer::default())
    }

    /// Accepts a connection at a backend with these options.
    pub fn backend_with(&mut self, address: [u8; 4], offer: Offer) -> Peer {
        let syn = self.one(address);
        assert!(syn.syn && syn.ack.is_none(), "{syn:?}");
        let mut backend = Peer::answering(&syn);
        backend.offer = Offer {
            stamps: offer.stamps && syn.stamps.is_some(),
            sack: offer.sack && syn.permits_sack,
            scale: offer.scale.filter(|_| syn.scale.is_some()),
        };
        backend.send(self, Flags::SynAck, b"");
        backend.seq += 1;
        backend
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    Syn,
    SynAck,
    Ack,
    Fin,
    Rst,
    /// A reset that acknowledges.
    Refuse,
}

impl Peer {
    /// Creates the backend's end of a connection that begins with this SYN.
    pub fn answering(syn: &Seen) -> Self {
        Self {
            address: syn.to,
            port: syn.ports.1,
            to: (OWN, syn.ports.0),
            interface: 1,
            seq: 0x7000_0000,
            ack: syn.seq.wrapping_add(1),
            stamp: 77,
            echo: syn.stamps.map_or(0, |stamps| stamps.0),
            window: 4096,
            offer: Offer::default(),
        }
    }

    /// Sends a segment at the present number, and does not advance.
    pub fn send(&mut self, bed: &mut Bed, flags: Flags, payload: &[u8]) {
        let frame = self.segment(flags, payload);
        bed.pass(self.interface, &frame);
    }

    /// Sends bytes as a host does that leaves checksums, and the split into segments of `size` bytes, to its network card; then advances.
    pub fn say_large(&mut self, bed: &mut Bed, payload: &[u8], size: Option<u16>) {
        let mut frame = self.segment(Flags::Ack, payload);
        let length = frame.len() - TCP_AT;
        let words = frame[TCP_AT - 8..TCP_AT].chunks(2);
        let addresses = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum = addresses.sum::<u32>() + 6 + length as u32;
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
        frame[TCP_AT + 16..TCP_AT + 18].copy_from_slice(&sum.to_be_bytes());
        let checksum = PartialChecksum {
            start: TCP_AT as u16,
            field: PartialChecksum::TCP,
        };
        let segments = size.and_then(NonZeroU16::new).map(|size| Segments {
            network: Network::Ipv4,
            size,
            is_ecn: false,
        });
        let offloads = segments.map_or(Offloads::Checksum(checksum), |segments| {
            Offloads::Segments(checksum, segments)
        });
        let frame = Frame {
            bytes: &frame,
            offloads,
        };
        bed.pass_large(self.interface, frame);
        self.seq = self.seq.wrapping_add(payload.len() as u32);
    }

    fn segment(&mut self, flags: Flags, payload: &[u8]) -> Vec<u8> {
        let side = u8::from(self.interface == 1);
        let station = if self.interface == 1 {
            self.address[3]
        } else {
            1
        };
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 1, station], [2, 0, 0, 0, 0, side])
            .ipv4(self.address, self.to.0, 64)
            .tcp(self.port, self.to.1, self.seq, self.window);
        let builder = match flags {
            Flags::Syn => builder.syn(),
            Flags::SynAck => builder.syn().ack(self.ack),
            Flags::Ack => builder.ack(self.ack),
            Flags::Fin => builder.ack(self.ack).fin(),
            Flags::Rst => builder.rst(),
            Flags::Refuse => builder.rst().ack(self.ack),
        };
        self.stamp += 1;
        let stamps = TcpOptionElement::Timestamp(self.stamp, self.echo);
        let is_syn = matches!(flags, Flags::Syn | Flags::SynAck);
        let options = if is_syn {
            let Offer {
                stamps: has_stamps,
                sack,
                scale,
            } = self.offer;
            let permitted = TcpOptionElement::SelectiveAcknowledgementPermitted;
            let mut options = vec![TcpOptionElement::MaximumSegmentSize(1460)];
            options.extend(sack.then_some(permitted));
            options.extend(has_stamps.then_some(stamps));
            options.extend(scale.map(TcpOptionElement::WindowScale));
            options
        } else if self.offer.stamps {
            vec![TcpOptionElement::Noop, TcpOptionElement::Noop, stamps]
        } else {
            Vec::new()
        };
        let mut frame = Vec::new();
        builder
            .options(&options)
            .unwrap()
            .write(&mut frame, payload)
            .unwrap();
        frame
    }

    /// Sends bytes and advances.
    pub fn say(&mut self, bed: &mut Bed, text: impl AsRef<[u8]>) {
        self.send(bed, Flags::Ack, text.as_ref());
        self.seq = self.seq.wrapping_add(text.as_ref().len() as u32);
    }

    /// Receives a FIN that follows directly.
    pub fn hear_fin(&mut self, seen: &Seen) -> bool {
        self.hear(seen);
        seen.fin
    }

    /// Receives a segment that follows directly, and acknowledges it with the next one sent.
    pub fn hear(&mut self, seen: &Seen) -> String {
        self.hear_bytes(seen);
        seen.text().to_owned()
    }

    /// Receives a segment like [`hear`](Self::hear); its bytes need not be text.
    pub fn hear_bytes(&mut self, seen: &Seen) {
        assert_eq!(seen.seq, self.ack, "{seen:?}");
        let length = seen.payload.len() as u32 + u32::from(seen.fin);
        self.ack = self.ack.wrapping_add(length);
        if let Some((value, _)) = seen.stamps {
            self.echo = value;
        }
    }
}
