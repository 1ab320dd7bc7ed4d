//! The log: events go to stderr, in Open vSwitch's format, filtered per module and rate-limited per place in the code.
//!
//! `2026-01-31T12:00:00.000Z|00042|northbound|INFO|text`

mod level;
mod limit;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::metadata::Metadata;
use tracing::span;
use tracing::subscriber::Interest;

pub use level::Level;
use limit::{Limiter, Verdict};

/// The modules whose level can be set, by the names that users know.
pub const MODULES: [&str; 6] = [
    "northbound",
    "southbound",
    "openflow",
    "core",
    "api",
    "config",
];

/// The level of each module; shared by the subscriber and the REST API.
#[derive(Clone, Debug)]
pub struct Levels(Arc<Table>);

#[derive(Debug)]
struct Table {
    default: AtomicU8,
    /// By module; [`INHERIT`] follows the default.
    modules: [AtomicU8; MODULES.len()],
}

const INHERIT: u8 = u8::MAX;

impl Levels {
    pub fn new(default: Level) -> Self {
        Self(Arc::new(Table {
            default: AtomicU8::new(default as u8),
            modules: [const { AtomicU8::new(INHERIT) }; MODULES.len()],
        }))
    }

    /// Returns `default` and every module, each with its current level.
    pub fn shown(&self) -> BTreeMap<&'static str, &'static str> {
        let modules = MODULES
            .iter()
            .enumerate()
            .map(|(index, name)| (*name, self.level(Some(index)).name()));
        modules
            .chain([("default", self.level(None).name())])
            .collect()
    }

    /// Sets `default` or one module, all or nothing.
    ///
    /// # Errors
    /// The unknown name or level.
    pub fn set<'a>(
        &self,
        changes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), String> {
        let mut checked = Vec::new();
        for (name, level) in changes {
            let slot = match MODULES.iter().position(|module| *module == name) {
                Some(index) => self.0.modules.get(index),
                None if name == "default" => Some(&self.0.default),
                None => None,
            };
            let slot = slot.ok_or_else(|| {
                format!(
                    "\"{name}\" is not a module; expected default, {}",
                    MODULES.join(", ")
                )
            })?;
            checked.push((slot, Level::parse(level)?));
        }
        for (slot, level) in checked {
            slot.store(level as u8, Ordering::Relaxed);
        }
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    }

    fn level(&self, module: Option<usize>) -> Level {
        let own = module
            .and_then(|index| self.0.modules.get(index))
            .map(|slot| slot.load(Ordering::Relaxed));
        let byte = own
            .filter(|byte| *byte != INHERIT)
            .unwrap_or_else(|| self.0.default.load(Ordering::Relaxed));
        Level::from_byte(byte).unwrap_or(Level::Info)
    }

    fn highest(&self) -> Level {
        let modules = (0..MODULES.len()).map(|index| self.level(Some(index)));
        modules.fold(self.level(None), Level::max)
    }

    /// Spans are not used here; everything else is an event, or a check by `tracing::enabled!`.
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span()
            && Level::of(metadata.level()) <= self.level(module_index(metadata.target()))
    }
}

/// Returns the module of an event's target: the daemon names it, libraries have their crate's path.
fn module_index(target: &str) -> Option<usize> {
    let name = match target.split("::").next() {
        Some("oneswitch_core") => "core",
        Some("openflow13") => "openflow",
        Some(name) => name,
        None => return None,
    };
    MODULES.iter().position(|module| *module == name)
}

/// Receives the program's log events. Spans are not used here and cost nothing.
struct Subscriber<W> {
    levels: Levels,
    coloured: bool,
    count: AtomicU64,
    inner: Mutex<Inner<W>>,
}

struct Inner<W> {
    limiter: Limiter,
    out: W,
}

/// Sends the log to stderr from now on.
pub fn install(levels: &Levels) {
    let out = std::io::stderr();
    let coloured = out.is_terminal();
    let subscriber = Subscriber::new(levels.clone(), out, coloured);
    // Fails only if a subscriber exists already.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

impl<W: Write + Send + 'static> Subscriber<W> {
    fn new(levels: Levels, out: W, coloured: bool) -> Self {
        Self {
            levels,
            coloured,
            count: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                limiter: Limiter::default(),
                out,
            }),
        }
    }

    fn line(&self, target: &str, level: Level, text: &str) -> String {
        let module = module_index(target)
            .and_then(|index| MODULES.get(index).copied())
            .unwrap_or(target);
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (on, off) = match level {
            _ if !self.coloured => ("", ""),
            Level::Error => ("\x1b[31m", "\x1b[0m"),
            Level::Warn => ("\x1b[33m", "\x1b[0m"),
            _ => ("\x1b[2m", "\x1b[0m"),
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let stamp = timestamp(now.as_secs(), now.subsec_millis());
        let level = level.name().to_uppercase();
        // Text of a peer must not forge lines.
        let text = text.replace(|c: char| c.is_control(), " ");
        format!("{stamp}|{number:05}|{module}|{on}{level}{off}|{text}\n")
    }
}

impl<W: Write + Send + 'static> tracing::Subscriber for Subscriber<W> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.levels.wants(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.levels.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.levels.highest() {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let level = Level::of(metadata.level());
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = match inner
            .limiter
            .check(metadata.callsite(), level, Instant::now())
        {
            Verdict::Drop => return,
            Verdict::Pass { dropped } => dropped,
        };
        let mut lines = String::new();
        if let Some(dropped) = dropped {
            lines.push_str(&self.line(metadata.target(), level, &dropped.to_string()));
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        lines.push_str(&self.line(metadata.target(), level, &text.0));
        // If stderr is closed, the error cannot be reported.
        let _ = inner.out.write_all(lines.as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// An event's message, then its other fields as `name=value`.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        let separator = if self.0.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{separator}{value:?}"),
            name => write!(self.0, "{separator}{name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }
}

/// Formats seconds since 1970 as `2026-01-31T12:00:00.000Z` (Howard Hinnant's civil_from_days).
fn timestamp(seconds: u64, millis: u32) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that `action` logs, each from its module on.
    fn logged(levels: &Levels, action: impl FnOnce()) -> Vec<String> {
        let sink = Sink::default();
        tracing::subscriber::with_default(
            Subscriber::new(levels.clone(), sink.clone(), false),
            action,
        );
        let bytes = sink.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines()
            .map(|line| line.splitn(3, '|').nth(2).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn lines_name_module_level_and_text() {
        let lines = logged(&Levels::new(Level::Info), || {
            tracing::info!(target: "northbound", "controller {} is here", 7);
            tracing::warn!(target: "oneswitch_core::moves", port = 5, "slow");
            tracing::debug!(target: "core", "not shown");
            tracing::error!(target: "elsewhere", name = "x", "two\nlines");
        });
        assert_eq!(
            lines,
            [
                "northbound|INFO|controller 7 is here",
                "core|WARN|slow port=5",
                "elsewhere|ERROR|two lines name=\"x\""
            ]
        );
    }

    #[test]
    fn levels_change_while_running() {
        let levels = Levels::new(Level::Warn);
        let speak = || {
            let asked = tracing::enabled!(target: "core", tracing::Level::INFO);
            assert_eq!(asked, levels.shown()["core"] == "info");
            for _ in 0..2 {
                tracing::info!(target: "api", "i");
                tracing::info!(target: "core", "i");
            }
        };
        assert!(logged(&levels, speak).is_empty());
        levels.set([("core", "info")]).unwrap();
        assert_eq!(logged(&levels, speak), ["core|INFO|i", "core|INFO|i"]);
        levels.set([("default", "info"), ("core", "off")]).unwrap();
        assert_eq!(logged(&levels, speak), ["api|INFO|i", "api|INFO|i"]);
        assert_eq!(levels.shown()["core"], "off");
        assert_eq!(levels.shown()["southbound"], "info");
        assert_eq!(levels.shown().len(), MODULES.len() + 1);
    }

    #[test]
    fn a_refused_change_changes_nothing() {
        let levels = Levels::new(Level::Info);
        let error = levels
            .set([("core", "debug"), ("kore", "debug")])
            .unwrap_err();
        assert!(
            error.contains("\"kore\"") && error.contains("northbound"),
            "{error}"
        );
        let error = levels
            .set([("core", "debug"), ("api", "loud")])
            .unwrap_err();
        assert!(
            error.contains("\"loud\"") && error.contains("trace"),
            "{error}"
        );
        assert_eq!(levels.shown()["core"], "info");
    }

    #[test]
    fn repeated_lines_are_counted_not_written() {
        let lines = logged(&Levels::new(Level::Info), || {
            for _ in 0..1_000 {
                tracing::info!(target: "api", "again");
            }
            tracing::info!(target: "api", "another place");
        });
        assert!(lines.len() < 200, "{}", lines.len());
        assert_eq!(lines.last().unwrap(), "api|INFO|another place");
    }

    #[test]
    fn timestamps_are_utc() {
        assert_eq!(timestamp(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(timestamp(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(timestamp(1_893_456_000, 999), "2030-01-01T00:00:00.999Z");
    }
}
