//! Faults in a file of signatures.

/// The fault of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(String);

impl Fault {
    /// Describes the fault of a line, numbered from 1 on.
    #[must_use]
    pub fn at(number: u32, line: &[u8], reason: impl std::fmt::Display) -> Self {
        let line = String::from_utf8_lossy(line);
        Self(format!("line {number}: {line:?}: {reason}"))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a line without the white space around it.
#[must_use]
pub fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}
