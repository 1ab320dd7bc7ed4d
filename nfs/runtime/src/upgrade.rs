//! State that an older version of a network function left.

use std::os::fd::OwnedFd;

use nf_arena::ArenaBuilder;

use crate::{state::StateBuilder, Refusal};

/// The arena of an instance with another schema.
pub struct OldState {
    file: OwnedFd,
    kind: &'static str,
}

impl OldState {
    #[must_use]
    pub fn new(file: OwnedFd, kind: &'static str) -> Self {
        Self { file, kind }
    }

    /// To declare again what the function declared under this schema, and to read it.
    ///
    /// # Errors
    /// The state is none, or cannot be mapped.
    pub fn declare(&self, schema: u32) -> Result<StateBuilder, Refusal> {
        let file = self.file.try_clone().map_err(|error| {
            Refusal::new(
                "system",
                format!("cannot take the old state's descriptor: {error}"),
            )
        })?;
        Ok(StateBuilder::new(ArenaBuilder::adopt(
            file, self.kind, schema,
        )?))
    }
}
