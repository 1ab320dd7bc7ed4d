//! Reads the arguments of verbs, and refuses wrong ones.

use std::time::Duration;

use serde_json::Value;

use crate::Refusal;

/// The default limit of a verb's wait.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum limit, which the clock can still express.
const LONGEST: Duration = Duration::from_secs(3600);

pub(super) fn out_of_turn(verb: &str, phase: &str) -> Refusal {
    Refusal::new(
        "out-of-turn",
        format!("{verb:?} while this instance is {phase}"),
    )
}

pub(super) fn missing(name: &str, what: &str) -> Refusal {
    Refusal::new("malformed", format!("{name:?} is missing: {what}"))
}

/// Reads an optional whole number.
pub(super) fn number(arguments: &Value, name: &str) -> Result<Option<u64>, Refusal> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(Refusal::new(
                "malformed",
                format!("{name:?} is {value}, expected a whole number of at least 0"),
            )),
        },
    }
}

/// Reads an optional text.
pub(super) fn text<'a>(arguments: &'a Value, name: &str) -> Result<Option<&'a str>, Refusal> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(Refusal::new(
            "malformed",
            format!("{name:?} is {value}, expected a text"),
        )),
    }
}

/// Reads the optional limit of a verb's wait.
pub(super) fn milliseconds(arguments: &Value) -> Result<Option<Duration>, Refusal> {
    Ok(number(arguments, "timeout_ms")?.map(|wait| Duration::from_millis(wait).min(LONGEST)))
}

pub(super) fn timeout(arguments: &Value) -> Result<Duration, Refusal> {
    Ok(milliseconds(arguments)?.unwrap_or(TIMEOUT))
}
