//! The file of the core's journal, from which a restarted daemon restores the virtual tables.
//!
//! Write-ahead: appended before any resulting output is written to a peer, so that everything a controller was told survives this process,
//! however it ends. It is not synced, because surviving the machine would cost a disk write per barrier, and the switches of a machine that
//! has lost power have lost their rules anyway.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oneswitch_core::{Core, Restored};
use tracing::{error, info, warn};

use crate::aside::drop_aside;
use crate::stream::make_parent;

/// A journal is rewritten when it is more than twice as long as its content, plus this.
const SLACK: u64 = 1 << 20;
/// Time between two attempts to write after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Returns the wall-clock time since 1970.
pub fn wall_clock() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Restores the core from a journal; `None` if the file does not exist yet.
///
/// # Errors
/// The reason why it cannot be read, or the position of its damage.
pub fn restore(path: &Path, core: &mut Core, now: Instant) -> Result<Option<Restored>, String> {
    let shown = path.display();
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{shown}: the journal cannot be read: {error}")),
    };
    match core.restore(&bytes, now, wall_clock()) {
        Ok(restored) => match core.splits_state() {
            None => Ok(Some(restored)),
            Some(executors) => Err(format!(
                "{shown}: the journal has rules with NORMAL, ct or learn, which need one executor for all ports, but now there are {executors}; \
                 set executor in server.toml to one of them, or move the journal away to start with empty tables"
            )),
        },
        Err(error) => Err(format!(
            "{shown}: the journal is {error}; move it away to start with empty tables"
        )),
    }
}

/// Logs what was restored.
pub fn announce(path: &Path, restored: &Restored) {
    let shown = path.display();
    if restored.cut_off > 0 {
        warn!(target: "config", "{shown}: its last record is truncated; {} bytes are ignored", restored.cut_off);
    }
    info!(
        target: "config",
        "{shown}: restored {} flows, {} groups and {} meters from {} records",
        restored.flows, restored.groups, restored.meters, restored.records
    );
}

/// The journal written by this process.
pub struct Journal {
    path: PathBuf,
    /// `None`: writing failed; a new one will be written.
    file: Option<File>,
    length: u64,
    retry: Instant,
}

impl Journal {
    /// Starts a new journal with the core's content, replacing the one that it was restored from.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    pub fn begin(path: &Path, core: &mut Core, now: Instant) -> Result<Self, String> {
        let mut journal = Self {
            path: path.to_owned(),
            file: None,
            length: 0,
            retry: now,
        };
        core.keep_journal(now, wall_clock());
        journal
            .rewrite(core)
            .map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
        Ok(journal)
    }

    /// Appends changes. Call it before writing the round's output.
    pub fn append(&mut self, core: &mut Core, now: Instant) {
        let bytes = core.take_journal();
        let result = match &mut self.file {
            Some(_) if bytes.is_empty() => return,
            Some(file) => file.write_all(&bytes),
            None if now < self.retry => return,
            None => self.rewrite(core),
        };
        self.length += bytes.len() as u64;
        let limit = 2 * core.snapshot_size() as u64 + SLACK;
        let result = match result {
            Ok(()) if self.length > limit => self.rewrite(core),
            other => other,
        };
        if let Err(cause) = result {
            // It may end in the middle of a record: only a new one can be trusted.
            self.file = None;
            self.retry = now + RETRY;
            let shown = self.path.display();
            error!(target: "config", "{shown}: cannot be written: {cause}; a restart would lose rules");
        }
    }

    /// Replaces the file with a short one, atomically.
    fn rewrite(&mut self, core: &mut Core) -> io::Result<()> {
        let bytes = core.snapshot();
        make_parent(&self.path)?;
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let temporary = self.path.with_file_name(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)?;
        file.write_all(&bytes)?;
        fs::rename(&temporary, &self.path)?;
        self.length = bytes.len() as u64;
        if let Some(old) = self.file.replace(file) {
            // Closing an unnamed file makes the system free its content: that took 110 ms after 60,000 rules.
            drop_aside("journal", old);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
