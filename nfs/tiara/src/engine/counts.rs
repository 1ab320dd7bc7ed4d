//! Counts of an engine's work.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub inserted: u64,
    /// Insertions without room.
    pub full: u64,
    /// Deleted entries.
    pub deleted: u64,
    pub not_found: u64,
    pub refused: u64,
    /// Entries evicted for others.
    pub evicted: u64,
    /// Entries moved to make room for others.
    pub moved: u64,
}
