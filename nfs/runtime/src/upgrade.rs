//! State of an older version of a network function.

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

    /// Declares again what the function declared under this schema, for reading it.
    ///
    /// # Errors
    /// If the state is not an arena, or cannot be mapped.
    pub fn declare(&self, schema: u32) -> Result<StateBuilder, Refusal> {
        let file = self.file.try_clone().map_err(|error| {
            Refusal::new(
                "system",
                format!("cannot duplicate the old state's descriptor: {error}"),
            )
        })?;
        Ok(StateBuilder::new(ArenaBuilder::adopt(
            file, self.kind, schema,
        )?))
    }
}
