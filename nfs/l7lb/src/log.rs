//! The access log: one JSON object per line, written by a thread of its own.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{sync_channel, Receiver, SyncSender},
        Arc,
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use nf_runtime::Refusal;
use serde_json::{json, Value};

use crate::{config, names::Names, texts::Text};

/// The entries that wait for the thread.
const QUEUE: usize = 8192;
/// The time between two looks at the queue.
const TURN: Duration = Duration::from_millis(50);

/// The record of an exchange.
pub struct Entry {
    pub names: Arc<Names>,
    pub time: SystemTime,
    pub client: (IpAddr, u16),
    pub vip: (IpAddr, u16),
    /// Rows of the route and of the backend.
    pub route: Option<u16>,
    pub backend: Option<u16>,
    pub text: Option<Text>,
    pub status: u16,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Nanoseconds from the request's first byte to the answer's head, and to the end of both.
    pub first: Option<u64>,
    pub duration: u64,
    pub end: &'static str,
}

/// An access log in use.
pub struct Log {
    path: PathBuf,
    queue: Option<SyncSender<Entry>>,
    thread: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    turn: AtomicU64,
    dropped: AtomicU64,
}

impl Log {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    /// If the file cannot be opened, or no threads are left.
    pub fn open(settings: &config::Log) -> Result<Self, Refusal> {
        let path = PathBuf::from(&settings.path);
        let file = open(&path).map_err(|error| {
            let reason = format!("cannot open {:?}: {error}; expected a file in a directory that exists and this process may write to", settings.path);
            Refusal::configuration("log.path", reason)
        })?;
        let (queue, entries) = sync_channel(QUEUE);
        let ends = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            path: path.clone(),
            file,
            entries,
            ends: Arc::clone(&ends),
        };
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || writer.run())
            .map_err(|error| {
                let reason = format!("cannot start the thread of the access log: {error}");
                Refusal::new("system", reason)
            })?;
        Ok(Self {
            path,
            queue: Some(queue),
            thread: Some(thread),
            ends,
            turn: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether the next exchange belongs to the sample.
    pub fn samples(&self, share: f64) -> bool {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as f64;
        ((turn + 1.0) * share).floor() > (turn * share).floor()
    }

    /// Hands an entry to the thread, or drops and counts it if too many wait.
    pub fn write(&self, entry: Entry) {
        let queue = self.queue.as_ref();
        if queue.is_none_or(|queue| queue.try_send(entry).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many entries were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    /// Lets the thread write what waits.
    fn drop(&mut self) {
        self.queue = None;
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The thread's side.
struct Writer {
    path: PathBuf,
    file: File,
    entries: Receiver<Entry>,
    ends: Arc<AtomicBool>,
}

impl Writer {
    fn run(mut self) {
        loop {
            // Senders never wake the thread, so that they make no system calls.
            let ends = self.ends.load(Ordering::Relaxed);
            let mut lines = Vec::new();
            for entry in self.entries.try_iter() {
                let _ = writeln!(lines, "{}", entry.json());
            }
            if !lines.is_empty() {
                self.reopen();
                // A full disk must not stop requests; the next lines may have room again.
                let _ = self.file.write_all(&lines);
            }
            if ends {
                return;
            }
            std::thread::park_timeout(TURN);
        }
    }

    /// Opens the file again if it was renamed or removed, as programs that rotate logs do.
    fn reopen(&mut self) {
        let inode = |data: std::fs::Metadata| (data.dev(), data.ino());
        let open_one = self.file.metadata().map(inode).ok();
        if std::fs::metadata(&self.path).map(inode).ok() != open_one {
            if let Ok(file) = open(&self.path) {
                self.file = file;
            }
        }
    }
}

impl Entry {
    fn json(&self) -> Value {
        let milliseconds = |nanoseconds: u64| (nanoseconds / 1000) as f64 / 1000.0;
        let route = self.route.and_then(|row| self.names.route(row));
        let backend = self.backend.and_then(|row| self.names.backend(row));
        let text = self.text.as_ref();
        json!({
            "time": rfc3339(self.time),
            "client": self.client.0,
            "client_port": self.client.1,
            "listener": self.names.listener(self.vip),
            "route": route,
            "pool": backend.map(|(pool, _)| pool),
            "backend": backend.map(|(_, name)| name),
            "method": text.and_then(Text::method),
            "path": text.and_then(Text::path),
            "host": text.and_then(Text::host),
            "status": Some(self.status).filter(|status| *status > 0),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "first_ms": self.first.map(milliseconds),
            "duration_ms": milliseconds(self.duration),
            "end": self.end,
        })
    }
}

/// Formats a time as `2026-11-23T15:06:22.123Z` (RFC 3339).
fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // From days since 1970 to a date of the Gregorian calendar, whose years begin in March (Hinnant, "chrono-compatible low-level date algorithms").
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_868_799_000, "2000-02-29T23:59:59.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_795_446_382_123, "2026-11-23T15:06:22.123Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
            assert_eq!(rfc3339(time), text);
        }
    }

    #[test]
    fn a_sample_has_its_share_evenly() {
        let log = Log {
            path: PathBuf::new(),
            queue: None,
            thread: None,
            ends: Arc::default(),
            turn: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        for (share, count) in [(0.0, 0), (0.1, 10), (0.25, 25), (1.0, 100)] {
            let taken = (0..100).filter(|_| log.samples(share)).count();
            assert!(taken.abs_diff(count) <= 1, "{share}: {taken}");
        }
    }
}
