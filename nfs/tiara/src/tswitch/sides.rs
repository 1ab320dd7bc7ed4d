//! The two sides of the switch: its interfaces, and ports.

/// Toward the Internet.
pub const OUTSIDE: usize = 0;
/// Toward T-NICs, load balancers and real servers.
pub const INSIDE: usize = 1;
