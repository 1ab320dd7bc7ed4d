//! The inspector of packets.

use std::sync::Arc;

use crate::{checks::Checks, connections::Connections, register::Register, signatures::Signatures};

/// The inspector of packets: the signatures, and the state.
#[derive(Clone, Copy)]
pub struct Inspector<'a> {
    pub signatures: &'a Signatures,
    pub checks: Checks,
    pub register: &'a Arc<Register>,
    pub connections: &'a Connections,
}
