//! Differences of a bridge from its wanted state, as an operator reads them.

/// The number of differences, and the first ones by name.
#[derive(Debug, Default)]
pub struct Findings {
    pub count: usize,
    pub named: Vec<String>,
}

pub const FOREIGN: &str = "foreign";
pub const MISSING: &str = "missing";
pub const CHANGED: &str = "changed";

/// Returns the kind of a wanted item that lacks, with the item that was found instead.
pub fn lacking<T>(there: &Option<T>) -> &'static str {
    there.as_ref().map_or(MISSING, |_| CHANGED)
}

impl Findings {
    /// Limit of names.
    const NAMED: usize = 8;

    pub fn add(&mut self, kind: &str, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.named.len() < Self::NAMED {
            self.named.push(format!("{kind} {}", name()));
        }
    }

    pub fn append(&mut self, mut other: Self) {
        self.count += other.count;
        self.named.append(&mut other.named);
        self.named.truncate(Self::NAMED);
    }
}
