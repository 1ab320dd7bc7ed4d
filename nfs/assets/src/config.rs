//! The configuration.

use std::path::PathBuf;

use nf_runtime::Refusal;
use serde::{Deserialize, Serialize};

use crate::checks::{Check, Checks};

/// The checks to make, the signatures, and how much to remember.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The directory with the signature files of Debian's package `prads`.
    #[serde(default = "prads")]
    pub signatures: PathBuf,
    #[serde(default = "Checks::usual")]
    pub checks: Vec<Check>,
    /// Whether packets are copies, which end here.
    #[serde(default)]
    pub tap: bool,
    /// A file that gets each line, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// The most hosts, and services and operating systems of all hosts.
    #[serde(default = "hosts")]
    pub hosts: usize,
    #[serde(default = "findings")]
    pub findings: usize,
    /// The most connections at the same time.
    #[serde(default = "connections")]
    pub connections: usize,
    /// The size of the history of lines.
    #[serde(default = "history")]
    pub history_bytes: usize,
}

fn prads() -> PathBuf {
    "/etc/prads".into()
}

fn hosts() -> usize {
    4096
}

fn findings() -> usize {
    16_384
}

fn connections() -> usize {
    65_536
}

fn history() -> usize {
    256 << 10
}

/// The fewest bytes of a history: one line, however long, must fit.
const LEAST_HISTORY: usize = 4096;

impl Config {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// If a value is wrong; the error names it.
    pub fn checked(&self) -> Result<(), Refusal> {
        if self.checks.is_empty() {
            let reason = "is an empty list; expected at least one of syn, syn-ack, fin, rst, ack, udp-system, icmp-system, tcp-server, tcp-client, udp-service, arp, neighbours, dhcp";
            return Err(Refusal::configuration("checks", reason));
        }
        for (name, value) in [
            ("hosts", self.hosts),
            ("findings", self.findings),
            ("connections", self.connections),
        ] {
            if value == 0 {
                return Err(Refusal::configuration(name, "is 0; expected at least 1"));
            }
        }
        if self.history_bytes < LEAST_HISTORY {
            let reason = format!(
                "is {}; expected at least {LEAST_HISTORY}",
                self.history_bytes
            );
            return Err(Refusal::configuration("history_bytes", reason));
        }
        Ok(())
    }

    /// Refuses changes of what the state's shape depends on.
    ///
    /// # Errors
    /// If a new configuration has such a change.
    pub fn allows(&self, new: &Self) -> Result<(), Refusal> {
        for (name, old, new) in [
            ("hosts", self.hosts, new.hosts),
            ("findings", self.findings, new.findings),
            ("connections", self.connections, new.connections),
            ("history_bytes", self.history_bytes, new.history_bytes),
        ] {
            if old != new {
                let reason =
                    format!("is {old} and cannot change while the instance runs; start a new one");
                return Err(Refusal::configuration(name, reason));
            }
        }
        Ok(())
    }
}
