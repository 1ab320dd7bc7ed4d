//! The numbers of two spliced TCP connections.
//!
//! A splice receives segments of one connection and sends them on in another, so it translates sequence numbers,
//! acknowledgements, SACK blocks, windows and timestamps. All functions are pure: they read no clock and send nothing.
//! State is plain data ([`bytemuck::Pod`]), which an arena can hold.
//!
//! - [`Map`]: one direction's sequence numbers, with the regions that the splice itself acknowledges and sends.
//! - [`window`]: windows as absolute right edges.
//! - [`options`]: TCP options of SYNs, and of segments that pass.
//! - [`TimestampMap`]: one side's timestamps, over a change of that side.
//! - [`cookie`]: SYN cookies.
//! - [`segment`]: comparison modulo 2^32, acceptability, and the rules against forged segments.

mod clock;
pub mod cookie;
mod map;
pub mod options;
pub mod segment;
pub mod window;

pub use clock::TimestampMap;
pub use map::{Map, Part, Parts, Refused, Region};
