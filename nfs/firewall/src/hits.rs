//! The hit log: a line of JSON for each connection that a rule with `log` decides.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    net::IpAddr,
    path::{Path, PathBuf},
};

use nf_runtime::Refusal;
use serde::Serialize;

/// The most lines per second. A flood must not fill the disk, nor keep the worker busy.
const MOST: u64 = 1000;

/// A line. It has no bytes of packets, and a host only if the configuration asks for it.
#[derive(Debug, Serialize)]
pub struct Hit<'a> {
    pub time: u64,
    pub rule: &'a str,
    pub action: &'a str,
    pub protocol: u8,
    pub source: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    pub destination: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
}

/// The log file, opened where the function runs.
#[derive(Default)]
pub struct Hits {
    file: Option<Opened>,
    /// The second of the latest line, and the lines of that second.
    second: (u64, u64),
    pub written: u64,
    /// Lines that were too many, or that the file did not take.
    pub lost: u64,
}

struct Opened {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
}

impl Opened {
    fn open(path: &Path, most: u64) -> Result<Self, Refusal> {
        let failed = |error: std::io::Error| {
            let reason = format!(
                "cannot open {path:?}: {error}; expected a file in a directory that exists and this process may write to"
            );
            Refusal::configuration("log", reason)
        };
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            most,
        })
    }

    fn write(&mut self, line: &[u8]) -> Result<(), std::io::Error> {
        if self.bytes.saturating_add(line.len() as u64) > self.most && self.bytes > 0 {
            let mut older = self.path.clone().into_os_string();
            older.push(".1");
            std::fs::rename(&self.path, older)?;
            self.file = OpenOptions::new()
                .append(true)
                .create(true)
                .open(&self.path)?;
            self.bytes = 0;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

impl Hits {
    /// Opens the file of a new configuration, unless it is open.
    ///
    /// # Errors
    /// If it cannot be opened. The old one is in use then.
    pub fn open(&mut self, path: Option<&Path>, most: u64) -> Result<(), Refusal> {
        match (&mut self.file, path) {
            (Some(opened), Some(path)) if opened.path == path => opened.most = most,
            (_, Some(path)) => self.file = Some(Opened::open(path, most)?),
            (_, None) => self.file = None,
        }
        Ok(())
    }

    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Writes a line.
    pub fn write(&mut self, hit: &Hit<'_>) {
        let Some(opened) = &mut self.file else {
            return;
        };
        if self.second.0 != hit.time {
            self.second = (hit.time, 0);
        }
        self.second.1 += 1;
        let line = serde_json::to_vec(hit).map(|mut line| {
            line.push(b'\n');
            line
        });
        let is_written =
            self.second.1 <= MOST && line.is_ok_and(|line| opened.write(&line).is_ok());
        if is_written {
            self.written += 1;
        } else {
            self.lost += 1;
        }
    }
}
