//! State of network functions as words in shared memory.
//!
//! An [`Arena`] is a memfd with a header, a table of regions, and the regions. It is handed to another process as a file
//! descriptor, or copied block by block while its owner keeps writing. It contains offsets and plain words but no pointers, so its
//! meaning does not depend on where it is mapped. See `nfs/README.md`, "State".
//!
//! Thread safety: any number of threads may read and write a [`Region`]; the data structure in it chooses the memory order of
//! its words.

#![allow(unsafe_code)]

mod arena;
mod builder;
mod clock;
mod copy;
mod mapping;
mod marks;
mod memory;
mod prefetch;

pub use arena::{Arena, Region, RegionEntry};
pub use builder::ArenaBuilder;
pub use clock::Clock;
pub use memory::{Heap, Memory};
pub use prefetch::{prefetch, prefetch_level, FIRST_LEVEL, SECOND_LEVEL};

/// The size of a block, the unit of dirty marks and copies, in words.
pub const BLOCK_WORDS: usize = 64;

/// A failure concerning an arena.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArenaError {
    /// A system call failed.
    System {
        what: &'static str,
        cause: std::io::Error,
    },
    /// The descriptor is not an arena, or has a newer format.
    NotAnArena { reason: String },
    /// The arena holds the state of something else, or of another version or size.
    Schema { region: String, reason: String },
    /// An impossible region was declared.
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
                write!(f, "incompatible state, region {region:?}: {reason}")
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

/// Wraps the error of a system call with a description of the attempt.
pub(crate) fn system(what: &'static str) -> impl Fn(rustix::io::Errno) -> ArenaError {
    move |errno| ArenaError::System {
        what,
        cause: errno.into(),
    }
}
