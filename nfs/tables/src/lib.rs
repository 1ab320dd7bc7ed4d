//! Connection tables of load balancers: they map a flow to its backend.
//!
//! [`Cuckoo`] is the concurrent table of "Offloading Load Balancers onto SmartNICs" (APSys'21, section 3.2), in words that other processes can adopt.
//!
//! ```
//! use nf_arena::Heap;
//! use nf_tables::{Class, Cuckoo, Entry, Insertion, Ipv4Flow, Lifetimes};
//!
//! let memory = Heap::new(Cuckoo::<Ipv4Flow, Heap>::words(100_000)?)?;
//! let table = Cuckoo::open(memory, 100_000)?;
//! let lifetimes = Lifetimes::default();
//! let flow = Ipv4Flow {
//!     source: [192, 0, 2, 1].into(),
//!     destination: [198, 51, 100, 1].into(),
//!     source_port: 40_000,
//!     destination_port: 443,
//!     protocol: 6,
//! };
//! let now = lifetimes.at(5_000_000_000);
//! let entry = Entry { value: 7, class: Class::Opening };
//! assert_eq!(table.insert(&flow, entry, &now)?, Insertion::Inserted { expired: None });
//! assert_eq!(table.lookup(&flow, &now), Some(entry));
//! assert_eq!(table.lookup(&flow, &lifetimes.at(60_000_000_000)), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cuckoo;
mod entry;
mod key;
mod lifetime;

pub use cuckoo::{Cuckoo, TableError};
pub use entry::{Class, Entry, Full, Insertion};
pub use key::{Ipv4Flow, Ipv6Flow, Key};
pub use lifetime::{Lifetimes, Now, TooLong, TICK_NANOS};
