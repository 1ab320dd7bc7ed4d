//! TLS of listeners: an endpoint stands between the client and the rest of the function.
//!
//! Toward the client it is a whole TCP endpoint, as it must have every byte to open and to protect records. Toward the rest (the *engine*) it plays the
//! client: opened bytes arrive there in segments whose numbers count plaintext, and segments that the engine sends to the client come back here. Routing,
//! heads, backends and health therefore work as they do without TLS.
//!
//! `endpoint` is the record; `sender` and `receiver` are the halves of TCP, one pair toward the client and one toward the engine. `tables` keeps the records.
//! `drive` -> `handshake`, `client` (segments of clients), `engine` (the exchange with the engine), `output` -> `records` -> `ending`.

mod client;
mod config;
mod drive;
mod ending;
mod endpoint;
mod engine;
mod handshake;
mod listener;
mod output;
mod plaintext;
mod receiver;
mod records;
mod scratch;
mod sender;
mod tables;
#[cfg(test)]
mod tests;
mod threads;

pub use config::Tls;
pub use listener::{check, prepare, Handshakers};
pub use scratch::Scratch;
pub use tables::Tables;
pub use threads::Threads;
