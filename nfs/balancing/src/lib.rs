//! The parts that load balancers share.
//!
//! Configuration: `config` has the shared parts, `check` validates them, and `network` is what workers read: the links, the function's own
//! addresses, and the `ways` to its destinations.
//!
//! Packets: `link` answers for the function's addresses and finds stations, with the neighbours that `tables` keeps in the arena (`claims`
//! decides what to believe). `frames` and `proxy_protocol` build what a function originates. `health` checks backends, whose records `checks` locks.
//! `tunnelling` puts packets into tunnels. `service` finds the VIP of a packet; `spread` chooses among its open backends, by a table of `maglev` or in turn.
//!
//! State: `cells` has arrays, gauges and counters in the arena, and `load` measures util+ with them.
//!
//! # A function that owns addresses
//!
//! It declares the tables with its state, builds a [`Network`](network::Network) for each configuration, and makes a [`Link`](link::Link) for
//! each batch and each tick. The link answers ARP, neighbour discovery and echo requests; the function sends frames of its own to any address.
//!
//! ```
//! use std::net::IpAddr;
//!
//! use nf_balancing::{check, config, frames::Frame, link::{Handled, Link}, network::Network, tables::Neighbours};
//! use nf_packet::{dissect, protocol, tcp_flags, Outcome};
//! use nf_runtime::{state::StateBuilder, testing::Harness, Batch, Context, NetworkFunction, Refusal};
//!
//! /// Refuses every connection to its VIPs.
//! struct Closed {
//!     network: Network,
//!     neighbours: Neighbours,
//! }
//!
//! #[derive(Clone, serde::Deserialize, serde::Serialize)]
//! struct Config {
//!     interfaces: Vec<config::Interface>,
//!     vips: Vec<IpAddr>,
//! }
//!
//! impl NetworkFunction for Closed {
//!     const KIND: &'static str = "closed";
//!     const SUMMARY: &'static str = "refuses every connection";
//!     const SCHEMA: u32 = 1;
//!     type Config = Config;
//!
//!     fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
//!         check::interfaces(&config.interfaces, &[])?;
//!         check::Addresses::new(&config.interfaces, config.vips.iter().map(|vip| (*vip, "a VIP")))?;
//!         let mut network = Network::new(&config.interfaces, &[]);
//!         for vip in config.vips {
//!             network.add_vip(vip);
//!         }
//!         Ok(Self { network, neighbours: Neighbours::declare(state, 1024)? })
//!     }
//!
//!     fn resumed(&self, context: &Context<'_>) {
//!         self.network.resolve(&self.neighbours, context.now());
//!     }
//!
//!     fn process(&self, batch: &mut Batch, context: &Context<'_>) {
//!         let (packets, out) = batch.parts();
//!         let mut link = Link { network: &self.network, neighbours: &self.neighbours, context, out };
//!         for packet in packets {
//!             let handled = match dissect(packet.bytes()) {
//!                 Ok(Outcome::Arp { offset }) => link.arp(packet, offset),
//!                 Ok(Outcome::Ip(headers)) if matches!(headers.protocol, protocol::ICMP | protocol::ICMPV6) => {
//!                     link.icmp(packet, &headers)
//!                 }
//!                 Ok(Outcome::Ip(headers)) if headers.protocol == protocol::TCP => {
//!                     let client = headers.source(packet.bytes());
//!                     // Asks for the client's MAC address if it is unknown: the client sends its SYN again.
//!                     if let Ok((interface, mac)) = link.reach(client) {
//!                         let own = headers.destination(packet.bytes());
//!                         let ends = ((own, headers.destination_port), (client, headers.source_port));
//!                         let macs = (link.mac(interface), mac);
//!                         if let Some(frame) = Frame::tcp(macs, ends.0, ends.1, (0, 0), tcp_flags::RST, &[]) {
//!                             link.out.emit(interface, frame.bytes());
//!                         }
//!                     }
//!                     Handled::Unsupported
//!                 }
//!                 _ => Handled::ForOthers,
//!             };
//!             match handled {
//!                 Handled::Done | Handled::EchoAnswered => {}
//!                 Handled::ForOthers if link.pass_on(packet) => {}
//!                 _ => packet.drop_for("not for us"),
//!             }
//!         }
//!     }
//!
//!     fn tick(&self, context: &Context<'_>, out: &mut Batch) {
//!         let (_, out) = out.parts();
//!         // A function does this once a second only, and `link.announce()` after a start, a move or a new configuration.
//!         Link { network: &self.network, neighbours: &self.neighbours, context, out }.refresh();
//!     }
//! #   fn configure(&self, _: Config) -> Result<(), Refusal> { Ok(()) }
//! }
//! # let config = serde_json::from_str(r#"{"interfaces": [{"addresses": ["10.0.0.2/24"], "gateways": ["10.0.0.1"]}], "vips": ["192.0.2.1"]}"#);
//! # let mut closed = Harness::<Closed>::new(config.unwrap()).unwrap();
//! # closed.tick();
//! # assert_eq!(closed.take_emitted().len(), 1, "asks for the gateway");
//! ```

pub mod cells;
pub mod check;
pub mod checks;
mod claims;
pub mod client_hello;
pub mod config;
pub mod frames;
pub mod health;
pub mod link;
pub mod load;
pub mod maglev;
pub mod network;
pub mod proxy_protocol;
pub mod service;
pub mod spread;
pub mod tables;
pub mod tunnelling;
pub mod tuple;
pub mod ways;
