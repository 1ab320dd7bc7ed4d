//! The verb by which a key exchange sets its tunnels: all of them, each time.

use serde_json::Value;

use nf_runtime::Refusal;

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
