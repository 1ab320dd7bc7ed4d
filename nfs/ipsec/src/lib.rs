//! An IPsec gateway: ESP in tunnel mode (RFC 4303) with AES-GCM (RFC 4106), with manual or negotiated keys; docs/ipsec.md describes it.
//!
//! `config` -> `checks` -> `setup` (tunnels and associations in force) -> `decide` (a packet), `protect` (outbound), `open` (inbound).
//! `negotiated` sets the tunnels of a key exchange, whose packets `ike` passes on.
//! `runs` has what consecutive packets of a batch share. `cipher` has the keys, which never enter the state. `sequence` and `window` are the state of a key: the numbers that it has used, and those that
//! it has seen.

mod checks;
mod cipher;
mod config;
mod decide;
mod dumps;
mod esp;
mod feedback;
mod function;
mod headers;
mod ike;
mod keepalive;
mod keys;
mod living;
mod negotiated;
mod open;
mod outer;
mod pass;
mod plain;
mod protect;
mod reason;
mod report;
mod runs;
mod secret;
mod selecting;
mod sequence;
mod setup;
mod station;
mod waiting;
mod window;

pub use cipher::{Cipher, Data, Numbers};
pub use config::{Association, Config, DontFragment, Encapsulation, Limits, Selector, Tunnel};
pub use esp::{Fault, Sealed};
pub use function::Ipsec;
pub use secret::Secret;
