//! Tiara (NSDI'22): a smart NIC's memory holds the connections of a load balancer, and software offloads them to it.
//!
//! - [`ConnectionTable`]: the offloaded connection table (OCT, 3.3.1). The NIC's data path reads it; engines alone write it.
//! - [`Engine`]: an offloading engine (3.3.2), which owns a part of the table, and [`Offloader`], its counterpart in a software load balancer (SMux).
//! - [`Aging`], and at the NIC [`Sweep`] and [`SignalBudget`]: idle connections (3.3.3).
//! - [`Usage`]: what a full place gives up first, which the paper leaves open.
//!
//! With packets: [`Tswitch`] and [`TnicFunction`] are network functions, and [`Tnic`] is the driver of a software load balancer; they agree on
//! `metadata` (a header) and `session` (lines and memory).
//!
//! ```
//! use std::sync::Arc;
//!
//! use nf_arena::Heap;
//! use nf_tables::Ipv4Flow;
//! use nf_tiara::{ConnectionTable, Decision, Engine, Hashing, Offloader, Operation, Outcome, QueuePair, Shape};
//!
//! let shape = Shape::new(1 << 10, 2, Hashing::Chained)?;
//! let memory = Heap::new(ConnectionTable::<Ipv4Flow, Heap>::words(shape))?;
//! let table = Arc::new(ConnectionTable::<Ipv4Flow, _>::open(memory, shape)?);
//! let queues = Arc::new(Heap::new(QueuePair::words::<Ipv4Flow>(64))?);
//! let mut engine = Engine::new(table.clone(), shape, 0, 1)?;
//! engine.attach(QueuePair::engine_end(queues.clone(), 64)?).map_err(|_| "too many queues")?;
//! let mut smux = Offloader::new(shape, vec![QueuePair::smux_end(queues, 64)?]);
//!
//! let flow = Ipv4Flow {
//!     source: [192, 0, 2, 1].into(),
//!     destination: [198, 51, 100, 1].into(),
//!     source_port: 40_000,
//!     destination_port: 443,
//!     protocol: 6,
//! };
//! let decision = Decision { rs_index: 7, rs_port: 8443 };
//! smux.submit(Operation::insert(flow, decision), "first").map_err(|_| "no credit")?;
//! engine.poll();
//! smux.poll(&mut |completed| assert_eq!((completed.tag, completed.outcome), (Some("first"), Outcome::Inserted)))?;
//! assert_eq!(table.lookup(&flow).map(|found| found.decision), Some(decision));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aging;
mod driver;
mod engine;
mod eviction;
mod flow;
mod hash;
mod metadata;
mod peers;
mod session;
mod share;
mod table;
mod tnic;
mod tswitch;

pub use aging::{Aging, SignalBudget, Sweep};
pub use driver::Tnic;
pub use engine::{
    Completed, Corrupt, Counts, Device, Engine, EngineEnd, NoCredit, Offloader, Operation, Outcome,
    QueuePair, SmuxEnd, Unable,
};
pub use eviction::Usage;
pub use flow::AnyFlow;
pub use table::{ConnectionTable, Decision, Found, Hashing, Shape, Slot, TableError};
pub use tnic::{engines::Manner, nic::Nic, room::Room, TnicFunction};
pub use tswitch::Tswitch;
