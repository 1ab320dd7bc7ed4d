//! Core dumps, which would have keys: none are made.

use nf_runtime::Refusal;
use rustix::process::{set_dumpable_behavior, DumpableBehavior};

/// Forbids core dumps of this process, and other processes of its user to read its memory.
///
/// # Errors
/// If the system refuses.
pub fn forbid() -> Result<(), Refusal> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        Refusal::new(
            "system",
            format!("cannot forbid core dumps, which would have keys: {error}"),
        )
    })
}
