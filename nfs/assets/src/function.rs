//! The network function.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
};

use nf_runtime::{state::StateBuilder, Batch, Context, CounterSink, NetworkFunction, Refusal};
use serde_json::Value;

use crate::{
    checks::Checks,
    config::Config,
    connections::Connections,
    history::History,
    inspector::Inspector,
    register::{Capacity, Register},
    report,
    signatures::Signatures,
    view::Captured,
};

/// The reason for which a tap drops what it has looked at.
const COPY: &str = "copy inspected";

/// Passive asset detection.
pub struct Assets {
    signatures: Signatures,
    register: Arc<Register>,
    connections: Connections,
    history: History,
    settings: Mutex<Settings>,
    /// Lines that the log file did not take.
    unlogged: AtomicU64,
}

/// The settings that a new configuration changes, under the lock that guards the state against answers.
struct Settings {
    config: Config,
    checks: Checks,
    log: Option<Log>,
    lines: Vec<u8>,
}

/// The log file.
struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    fn open(path: &Path) -> Result<Self, Refusal> {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let file = opened.map_err(|error| {
            let reason = format!(
                "cannot open {path:?}: {error}; expected a file in a directory that exists and this process may write to"
            );
            Refusal::configuration("log", reason)
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }
}

impl NetworkFunction for Assets {
    const KIND: &'static str = "assets";
    const SUMMARY: &'static str =
        "detects hosts, their operating systems and services (passive, like PRADS)";
    const LARGE_FRAMES: bool = true;
    // The first packet of a host decides, whatever flow it belongs to.
    const ONE_WORKER: bool = true;
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        config.checked()?;
        let signatures = Signatures::load(&config.signatures)?;
        // Records name signatures by number: an instance with other files cannot take them over.
        let layout = format!("digest {:032x}", signatures.digest());
        state.region("signature files", &layout, 1)?;
        let capacity = Capacity {
            hosts: config.hosts,
            findings: config.findings,
        };
        let log = config.log.as_deref().map(Log::open).transpose()?;
        Ok(Self {
            signatures,
            register: Register::declare(capacity, state)?,
            connections: Connections::declare(config.connections, state)?,
            history: History::declare(config.history_bytes, state)?,
            settings: Mutex::new(Settings {
                checks: Checks::of(&config.checks),
                config,
                log,
                lines: Vec::new(),
            }),
            unlogged: AtomicU64::new(0),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let mut settings = self.settings();
        let settings = &mut *settings;
        let inspector = Inspector {
            signatures: &self.signatures,
            checks: settings.checks,
            register: &self.register,
            connections: &self.connections,
        };
        let time = context.unix_seconds();
        for packet in batch.packets_mut() {
            let bytes = packet.bytes();
            let frame = Captured::new(bytes, bytes.len(), time);
            inspector.inspect(&frame, context.now(), &mut settings.lines);
            if settings.config.tap {
                packet.drop_for(COPY);
            } else {
                context.send_across(packet);
            }
        }
        if !settings.lines.is_empty() {
            self.write(settings);
        }
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        config.checked()?;
        let mut settings = self.settings();
        settings.config.allows(&config)?;
        if Signatures::load(&config.signatures)?.digest() != self.signatures.digest() {
            let reason = format!(
                "the files in {} differ from those that this instance started with; start a new one",
                config.signatures.display()
            );
            return Err(Refusal::configuration("signatures", reason));
        }
        let has_log = settings.log.as_ref().map(|log| &log.path) == config.log.as_ref();
        if !has_log {
            settings.log = config.log.as_deref().map(Log::open).transpose()?;
        }
        settings.checks = Checks::of(&config.checks);
        settings.config = config;
        Ok(())
    }

    fn wants_tick(&self) -> bool {
        false
    }

    fn counters(&self, context: &Context<'_>, out: &mut CounterSink) {
        let [hosts, findings, forgotten, forgotten_findings] = self.register.counts();
        out.gauge("hosts", &[], hosts as f64);
        out.gauge("findings", &[], findings as f64);
        out.gauge(
            "connections",
            &[],
            self.connections.len(context.now()) as f64,
        );
        out.counter("lines", &[], self.history.count());
        out.counter("hosts_forgotten", &[], forgotten);
        out.counter("findings_forgotten", &[], forgotten_findings);
        out.counter(
            "lines_not_logged",
            &[],
            self.unlogged.load(Ordering::Relaxed),
        );
    }

    fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        match verb {
            "hosts" => Some(report::parsed(arguments).map(|wanted| {
                let vendors = &self.signatures.vendors;
                report::hosts(&self.register, vendors, &wanted, || self.settings())
            })),
            "history" => Some(report::parsed(arguments).map(|wanted| {
                let _guard = self.settings();
                report::lines(&self.history, &wanted)
            })),
            _ => None,
        }
    }
}

impl Assets {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts lines into the history and the log file.
    fn write(&self, settings: &mut Settings) {
        let whole = settings
            .lines
            .strip_suffix(b"\n")
            .unwrap_or(&settings.lines);
        let mut count = 0;
        for line in whole.split(|byte| *byte == b'\n') {
            self.history.add(line);
            count += 1;
        }
        if let Some(log) = &mut settings.log {
            if log.file.write_all(&settings.lines).is_err() {
                self.unlogged.fetch_add(count, Ordering::Relaxed);
            }
        }
        settings.lines.clear();
    }
}
