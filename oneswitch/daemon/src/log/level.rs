//! Log levels.

/// A log level; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    const NAMES: [(Self, &str); 6] = [
        (Self::Off, "off"),
        (Self::Error, "error"),
        (Self::Warn, "warn"),
        (Self::Info, "info"),
        (Self::Debug, "debug"),
        (Self::Trace, "trace"),
    ];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// Parses a level.
    ///
    /// # Errors
    /// The expected levels.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(_, name)| *name == text);
        found.map(|(level, _)| level).ok_or_else(|| {
            format!(
                "\"{text}\" is not a log level; expected off, error, warn, info, debug or trace"
            )
        })
    }

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::NAMES.get(usize::from(byte)).map(|(level, _)| *level)
    }

    pub fn of(level: &tracing::Level) -> Self {
        match *level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::TRACE => Self::Trace,
        }
    }
}
