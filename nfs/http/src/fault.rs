//! Faults of heads, in words that can be logged and answered.

use std::fmt;

const EXCERPT_BYTES: usize = 40;

/// The beginning of a refused value; without allocation, since an attacker decides how often it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Excerpt {
    bytes: [u8; EXCERPT_BYTES],
    length: u8,
    cut: bool,
}

impl Excerpt {
    fn new(value: &[u8]) -> Self {
        let kept = &value[..value.len().min(EXCERPT_BYTES)];
        let mut bytes = [0; EXCERPT_BYTES];
        bytes[..kept.len()].copy_from_slice(kept);
        Self {
            bytes,
            length: kept.len() as u8,
            cut: kept.len() < value.len(),
        }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = &self.bytes[..usize::from(self.length)];
        let rest = if self.cut { "..." } else { "" };
        write!(out, "\"{}{rest}\"", kept.escape_ascii())
    }
}

/// A part of a head that breaks a rule: the part, the beginning of its value, and what was expected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    thing: &'static str,
    value: Excerpt,
    expected: &'static str,
}

impl Fault {
    pub(crate) fn new(thing: &'static str, value: &[u8], expected: &'static str) -> Self {
        let value = Excerpt::new(value);
        Self {
            thing,
            value,
            expected,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} {}: expected {}",
            self.thing, self.value, self.expected
        )
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A refused request: the status of the answer, after which the connection must be closed, and the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub status: u16,
    pub fault: Fault,
}

impl Rejection {
    pub(crate) fn new(
        status: u16,
        thing: &'static str,
        value: &[u8],
        expected: &'static str,
    ) -> Self {
        let fault = Fault::new(thing, value, expected);
        Self { status, fault }
    }
}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Self {
        Self { status: 400, fault }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.status, self.fault)
    }
}

impl std::error::Error for Rejection {}

/// A response that cannot be passed on: the client gets 502, and the connection to the backend must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadGateway {
    pub fault: Fault,
}

impl From<Fault> for BadGateway {
    fn from(fault: Fault) -> Self {
        Self { fault }
    }
}

impl From<Rejection> for BadGateway {
    fn from(rejection: Rejection) -> Self {
        rejection.fault.into()
    }
}

impl fmt::Display for BadGateway {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "502: {}", self.fault)
    }
}

impl std::error::Error for BadGateway {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_thing_value_and_rule_and_is_bounded() {
        let fault = Fault::new("Content-Length", b"5,\r6", "one number");
        assert_eq!(
            fault.to_string(),
            r#"Content-Length "5,\r6": expected one number"#
        );
        let rejection = Rejection::from(fault);
        assert_eq!(rejection.to_string(), format!("400: {fault}"));
        assert_eq!(
            BadGateway::from(rejection).to_string(),
            format!("502: {fault}")
        );
        assert_eq!(format!("{fault:?}"), fault.to_string());
        let long = Fault::new("target", &[b'a'; 9000], "less").to_string();
        assert_eq!(
            long,
            format!("target \"{}...\": expected less", "a".repeat(40))
        );
    }
}
