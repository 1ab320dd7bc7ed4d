//! State of network functions as words in shared memory.
//!
//! An [`Arena`] is a memfd with a header, a table of regions, and the regions. It is handed to another process as a file
//! descriptor, or copied block by block while its owner goes on writing. What is in it are offsets and plain words,
//! no pointers, so it means the same wherever it is mapped. `nfs/README.md`, "State".
//!
//! Thread safety: a [`Region`] is read and written by any number of threads; what order its words need is up to the
//! structure that lives in it.

#![allow(unsafe_code)]

mod arena;
mod builder;
mod clock;
mod copy;
mod mapping;
mod memory;

pub use arena::{Arena, Region, RegionEntry};
pub use builder::ArenaBuilder;
pub use clock::Clock;
pub use memory::{Heap, Memory};

/// Words in a block, the unit that is marked dirty and copied.
pub const BLOCK_WORDS: usize = 64;

/// What can be wrong with an arena.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArenaError {
    /// A system call failed.
    System {
        what: &'static str,
        cause: std::io::Error,
    },
    /// The descriptor is not an arena, or one of a newer format.
    NotAnArena { reason: String },
    /// The arena holds the state of something else, or of another version or size of it.
    Schema { region: String, reason: String },
    /// A region was asked for that cannot be.
    Refused { region: String, reason: String },
}

impl std::fmt::Display for ArenaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System { what, cause } => write!(f, "{what}: {cause}"),
            Self::NotAnArena { reason } => {
                write!(f, "not the state of a network function: {reason}")
            }
            Self::Schema { region, reason } => {
                write!(f, "the state does not fit, region {region:?}: {reason}")
            }
            Self::Refused { region, reason } => write!(f, "region {region:?}: {reason}"),
        }
    }
}

impl std::error::Error for ArenaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// Turns the error of a system call into one that names what was tried.
pub(crate) fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> ArenaError {
    move |errno| ArenaError::System {
        what,
        cause: errno.into(),
    }
}
