//! The settings of an inspector.

use std::{path::PathBuf, time::Duration};

/// The settings of an [`Inspector`](crate::Inspector).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program `nf-dpi`; [`find_program`](crate::find_program) finds it.
    pub program: PathBuf,
    pub packets: Packets,
    /// How much address space the program may take, in bytes. When it is used up, the program ends and is started again.
    pub memory: u64,
    /// How long the program may take for one packet, while there are some. After once to twice this time it is taken for hung, and killed.
    pub patience: Duration,
    /// The size of the ring of packets in bytes: a power of two, at least 128 KiB.
    pub ring_bytes: usize,
}

impl Settings {
    #[must_use]
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            packets: Packets::default(),
            memory: 1 << 30,
            patience: Duration::from_secs(5),
            ring_bytes: 4 << 20,
        }
    }
}

/// How many packets of a flow nDPI gets before it must decide. The defaults are ndpiReader's; flows of other protocols have no limit there, nor here: who
/// submits them ends them by [`Request::GiveUp`](crate::Request::GiveUp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    pub tcp: u32,
    pub udp: u32,
}

impl Default for Packets {
    fn default() -> Self {
        Self { tcp: 80, udp: 24 }
    }
}
