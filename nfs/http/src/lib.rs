//! HTTP/1.1 heads and message framing (RFC 9110, RFC 9112) for a load balancer between two parsers that it does not know: pure functions over bytes.
//!
//! The parser refuses whatever another parser could read differently, instead of repairing it: lines that end in a bare LF or CR,
//! folded lines, whitespace before a colon, several lengths, codings other than `chunked`. Nothing allocates.
//!
//! A receiver calls [`find_end`] whenever bytes arrive; on a complete head [`parse_request`] or [`parse_response`], whose
//! `body` says how the message goes on; [`Chunks`] finds the end of a chunked one; [`rewrite`] writes a head with other lines.

mod chunks;
mod cookies;
mod end;
mod fault;
mod fields;
mod framing;
mod limits;
mod request;
mod response;
mod rewrite;
mod target;

pub use chunks::{Chunks, Malformed, Progress, MAX_EXTENSION_BYTES, MAX_TRAILER_BYTES};
pub use cookies::cookie;
pub use end::{check_partial, find_end, MAX_EMPTY_LINES};
pub use fault::{BadGateway, Fault, Rejection};
pub use fields::{Head, Header, Headers};
pub use framing::{Body, Version};
pub use limits::Limits;
pub use request::{parse_request, Request};
pub use response::{parse_response, Response, ResponseBody};
pub use rewrite::{rewrite, Edit, Lines, Unwritable};
pub use target::{Authority, Form, Target};
