//! Which application a flow belongs to, by nDPI.
//!
//! nDPI is C code that parses what strangers send, so it runs in a program of its own, `nf-dpi`, which can do nothing but compute: it has no network and opens no
//! files, and a filter allows it a dozen system calls. The [`Inspector`] starts it, gives it packets through a ring in shared memory, and takes its answers from
//! another. It checks all that it reads there, and starts the program again when that dies, hangs, or writes what cannot be.
//!
//! # Using it
//! ```no_run
//! use nf_dpi::{Inspector, Packet, Request, Settings, State};
//!
//! let inspector = Inspector::start(Settings::new(nf_dpi::find_program()?), || { /* wake a worker, which polls */ })?;
//! // A program that was just started knows nothing: it first gets the stored prefixes of all flows, in the order in which their packets arrived.
//! let generation = inspector.generation();
//! // ... inspector.replay(generation, request) for each ...
//! inspector.replayed(generation);
//! // Then packets as they come. One answer follows for each, in the same order.
//! let packet = Packet { flow: 7, sequence: 0, time_ms: 0, bytes: &[0x45] };
//! inspector.submit(Request::Packet(packet))?;
//! inspector.poll(|answer| if answer.state == State::Final { println!("{}", inspector.catalogue().protocol(answer.protocol)) });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! When the program has ended, [`Inspector::generation`] grows, requests without an answer get none, and [`Inspector::submit`] refuses ([`Refused::Replay`]) until
//! everything was replayed. nDPI's verdicts depend on earlier flows (it remembers addresses), so the prefixes of decided flows belong to the replay, too.
//!
//! A packet at which the program has ended three times has its flow put in quarantine: [`Refused::Quarantined`], to be decided by rule.

#![forbid(unsafe_code)]

mod answer;
mod catalogue;
mod connection;
mod inspector;
mod life;
mod program;
mod quarantine;
pub mod rings;
mod settings;
mod shared;
mod supervisor;

pub use answer::{Answer, Confidence, Host, Protocol, State, HOST_BYTES};
pub use catalogue::Catalogue;
pub use connection::{Child, Ready};
pub use inspector::{Inspector, Refused, Status};
pub use program::{find_program, NoProgram};
pub use rings::{Packet, Request};
pub use settings::{Packets, Settings};
