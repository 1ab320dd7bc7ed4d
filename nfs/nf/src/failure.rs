//! Failures of the command, as shown to the user.

use nf_ports::PortError;
use nf_runtime::Refusal;

/// A message that names the thing and what to do.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.detail)
    }
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        Self(error.to_string())
    }
}
