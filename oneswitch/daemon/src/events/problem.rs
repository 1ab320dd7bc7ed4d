//! RFC 9457 problems, the answers to refused requests.

use hyper::header::HeaderName;
use hyper::StatusCode;
use oneswitch_core::PortError;
use serde::Serialize;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    /// The stable code of the contract.
    pub code: &'static str,
    /// The text for people.
    pub detail: String,
    /// A further header for programs.
    pub header: Option<(HeaderName, &'static str)>,
}

/// A problem as sent.
#[derive(Serialize)]
struct Document<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            header: None,
        }
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// The change is made but cannot be saved.
    pub fn not_saved(detail: &str) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "state-not-saved",
            format!("the change is in force, but {detail}"),
        )
    }

    /// The daemon ends during the request.
    pub fn ending() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ending",
            "oneswitchd is ending",
        )
    }

    pub fn to_json(&self) -> Vec<u8> {
        let document = Document {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Refused"),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
        };
        // Strings and a number always have a JSON form.
        serde_json::to_vec(&document).unwrap_or_default()
    }
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        let status = match error {
            PortError::PortUnknown(_) | PortError::SwitchUnknown(_) => StatusCode::NOT_FOUND,
            PortError::NumberOutOfRange(_) | PortError::NameTooLong(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, error.code(), error.to_string())
    }
}
