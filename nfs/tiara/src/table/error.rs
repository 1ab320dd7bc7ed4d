//! The errors of tables.

/// The reason for which a table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The shape is impossible.
    Shape { depth: u32, width: u32 },
    /// The memory is too small.
    TooSmall { words: usize, needed: usize },
    /// There is no such engine, or the table cannot be split among this number of engines.
    Engines {
        engine: u32,
        engines: u32,
        most: u32,
    },
}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shape { depth, width } => write!(
                f,
                "a table of {depth} x {width} is impossible: the depth must be a power of two, the width 1 to 8, and their product at most 2^31"
            ),
            Self::TooSmall { words, needed } => write!(
                f,
                "the table needs {needed} words of memory and has {words}: give it more, or reduce its depth"
            ),
            Self::Engines {
                engine,
                engines,
                most,
            } => write!(
                f,
                "engine {engine} of {engines} is impossible: a table of this depth has 1 to {most} engines, numbered from 0"
            ),
        }
    }
}

impl std::error::Error for TableError {}
