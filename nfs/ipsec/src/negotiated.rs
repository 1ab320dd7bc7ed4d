//! The tunnels of a key exchange: the verb that sets them, all of them each time, and their way to the next instance.

use std::io::Write;

use nf_runtime::Refusal;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::config::Tunnel;

/// Reads the tunnels of a request.
///
/// # Errors
/// If it has none, or one that cannot be read. The error shows no key.
pub fn tunnels(arguments: &Value) -> Result<Vec<Tunnel>, Refusal> {
    let Some(tunnels) = arguments.get("tunnels") else {
        let reason = "\"tunnels\" is missing; expected all tunnels that the key exchange has";
        return Err(Refusal::new("malformed", reason));
    };
    serde_json::from_value(tunnels.clone())
        .map_err(|error| Refusal::new("malformed", format!("tunnels: {error}")))
}

/// Writes tunnels with their keys for the next instance. None: there are none.
#[must_use]
pub fn to_bytes(tunnels: &[Tunnel]) -> Option<Zeroizing<Vec<u8>>> {
    if tunnels.is_empty() {
        return None;
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, tunnels).ok()?;
    // All of it at once: memory that a growing vector leaves would keep keys.
    let mut bytes = Zeroizing::new(Vec::with_capacity(counter.0));
    serde_json::to_writer(&mut *bytes, tunnels).ok()?;
    Some(bytes)
}

/// Reads what [`to_bytes`] has written.
///
/// # Errors
/// If it is something else. The error shows no key.
pub fn of_bytes(bytes: &[u8]) -> Result<Vec<Tunnel>, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| {
        let detail = format!("the previous instance's tunnels cannot be read: {error}");
        Refusal::new("malformed", detail)
    })
}

/// Counts written bytes.
struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
