//! Errors of opening and using ports.

use std::io;

/// Errors of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum PortError {
    /// The kernel refused a call; `hint` says what to do, if known.
    System {
        interface: String,
        what: &'static str,
        cause: io::Error,
        hint: &'static str,
    },
    /// The interface does not meet this back end's requirements; `reason` says what to do.
    Unfit { interface: String, reason: String },
    /// A capture file that cannot be read or written.
    File { path: String, reason: String },
}

impl std::fmt::Display for PortError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System {
                interface,
                what,
                cause,
                hint,
            } => {
                write!(f, "port {interface}: {what}: {cause}")?;
                if hint.is_empty() {
                    Ok(())
                } else {
                    write!(f, " ({hint})")
                }
            }
            Self::Unfit { interface, reason } => write!(f, "port {interface}: {reason}"),
            Self::File { path, reason } => write!(f, "{path}: {reason}"),
        }
    }
}

impl std::error::Error for PortError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { cause, .. } => Some(cause),
            Self::Unfit { .. } | Self::File { .. } => None,
        }
    }
}

/// Wraps the error of a system call with the interface and the attempt.
pub(crate) fn system<'a>(
    interface: &'a str,
    what: &'static str,
) -> impl Fn(io::Error) -> PortError + 'a {
    move |cause| {
        let hint = match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "it needs root, or CAP_NET_RAW and CAP_NET_ADMIN",
            Some(libc::ENODEV) => "the interface does not exist in this network namespace",
            _ => "",
        };
        PortError::System {
            interface: interface.to_owned(),
            what,
            cause,
            hint,
        }
    }
}
