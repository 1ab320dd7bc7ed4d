//! The ports mapped at run time, in a file that survives a restart.
//!
//! The file contains every mapped port and, under `deleted`, the `[[port]]` entries that were deleted at run time. At the next start:
//! - a port of the file is mapped as the file says, even if a `[[port]]` has the same number;
//! - a `[[port]]` whose number is not in the file is mapped, so ports added to `server.toml` appear;
//! - a `[[port]]` that equals a deleted one stays deleted; changed in any way, it appears again.
//!
//! Deleting the file returns to `server.toml`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oneswitch_core::{PortConfig, HOME};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::error;

use crate::config::{Config, Port};
use crate::events::{Problem, Reply};
use crate::stream::make_parent;

/// Version of the file's format.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    ports: Vec<SavedPort>,
    #[serde(default)]
    deleted: Vec<SavedPort>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedPort {
    number: u32,
    name: String,
    switch: String,
    interface: String,
    /// `None`: the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    executor: Option<String>,
    /// The executor to which it returns, if it has left that one for state that all ports share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gathered_from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

impl From<&PortConfig> for SavedPort {
    fn from(port: &PortConfig) -> Self {
        let port = port.clone();
        Self {
            number: port.number,
            name: port.name,
            switch: port.switch,
            interface: port.interface,
            executor: port.executor,
            gathered_from: port.gathered_from,
            owner: port.owner,
        }
    }
}

impl From<SavedPort> for PortConfig {
    fn from(port: SavedPort) -> Self {
        Self {
            number: port.number,
            name: port.name,
            switch: port.switch,
            interface: port.interface,
            executor: port.executor,
            gathered_from: port.gathered_from,
            owner: port.owner,
        }
    }
}

/// Returns the initial ports: those of the configuration and of its state file, if it has one.
///
/// # Errors
/// The fault of the state file, or the ports that contradict each other.
pub fn ports(config: &Config) -> Result<Vec<PortConfig>, String> {
    let saved = match &config.state {
        Some(path) => load(path)?,
        None => None,
    };
    let Some(saved) = saved else {
        return Ok(config
            .ports
            .iter()
            .map(|port| port.config.clone())
            .collect());
    };
    let file = config.state.as_deref().unwrap_or(Path::new("")).display();
    let mut ports: Vec<PortConfig> = Vec::new();
    for port in saved.ports {
        let port = PortConfig::from(port);
        let executors = [&port.executor, &port.gathered_from].into_iter().flatten();
        let executors = executors.filter(|name| *name != HOME);
        for name in [&port.switch].into_iter().chain(executors) {
            if !config.switches.iter().any(|switch| switch.name == *name) {
                return Err(format!(
                    "{file}: port {}: unknown switch \"{name}\" in {}; correct either file, or delete {file}",
                    port.number, config.file
                ));
            }
        }
        if let Some(other) = conflict(&ports, &port) {
            return Err(format!(
                "{file}: port {} contradicts port {}: {}",
                port.number,
                other.number,
                clash(other, &port)
            ));
        }
        ports.push(port);
    }
    for Port { config: port, line } in &config.ports {
        let known = ports.iter().any(|mapped| mapped.number == port.number);
        if known || saved.deleted.contains(&SavedPort::from(port)) {
            continue;
        }
        if let Some(other) = conflict(&ports, port) {
            return Err(format!(
                "{}:{line}: port {} contradicts port {} of {file}: {}",
                config.file,
                port.number,
                other.number,
                clash(other, port)
            ));
        }
        ports.push(port.clone());
    }
    Ok(ports)
}

fn conflict<'a>(ports: &'a [PortConfig], port: &PortConfig) -> Option<&'a PortConfig> {
    ports.iter().find(|other| {
        other.number == port.number
            || other.name == port.name
            || (other.switch == port.switch && other.interface == port.interface)
    })
}

fn clash(first: &PortConfig, second: &PortConfig) -> String {
    if first.number == second.number {
        "both have the same number".into()
    } else if first.name == second.name {
        format!("both are named \"{}\"", first.name)
    } else {
        format!("both use interface {} of {}", first.interface, first.switch)
    }
}

fn load(path: &Path) -> Result<Option<Saved>, String> {
    let shown = path.display();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{shown}: the state file cannot be read: {error}")),
    };
    let saved: Saved = serde_json::from_str(&text).map_err(|error| {
        format!(
            "{shown}:{}: not a state file of oneswitchd: {error}",
            error.line()
        )
    })?;
    if saved.version != VERSION {
        return Err(format!(
            "{shown}: format version {}; this oneswitchd writes {VERSION}",
            saved.version
        ));
    }
    Ok(Some(saved))
}

/// Writes the state file atomically: after a crash it is the old or the new one.
pub struct StateFile {
    path: PathBuf,
    configured: Vec<PortConfig>,
}

impl StateFile {
    /// `None` when the configuration names no state file.
    pub fn new(config: &Config) -> Option<Self> {
        let path = config.state.clone()?;
        Some(Self {
            path,
            configured: config
                .ports
                .iter()
                .map(|port| port.config.clone())
                .collect(),
        })
    }

    fn save(&self, ports: &[PortConfig]) -> io::Result<()> {
        let numbers: BTreeSet<_> = ports.iter().map(|port| port.number).collect();
        let deleted = self
            .configured
            .iter()
            .filter(|port| !numbers.contains(&port.number));
        let saved = Saved {
            version: VERSION,
            ports: ports.iter().map(SavedPort::from).collect(),
            deleted: deleted.map(SavedPort::from).collect(),
        };
        let mut text = serde_json::to_vec_pretty(&saved)?;
        text.push(b'\n');
        make_parent(&self.path)?;
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let temporary = self.path.with_file_name(name);
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        // Sync the folder, too, so that the rename survives a power cut.
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// An answer and its recipient.
type Owed = (oneshot::Sender<Reply>, Reply);

/// Answers to give once their ports are on disk.
#[derive(Debug)]
pub struct Job {
    /// With the port map's revision. `None`: no change since the last one.
    pub ports: Option<(u64, Vec<PortConfig>)>,
    pub answers: Vec<Owed>,
}

/// Pending work for the disk: the newest port map contains all earlier changes.
#[derive(Debug, Default)]
struct Pending {
    ports: Option<(u64, Vec<PortConfig>)>,
    /// Answers to give when `ports` are saved.
    answers: Vec<Owed>,
    /// Answers of jobs that changed nothing.
    others: Vec<Owed>,
}

impl Pending {
    fn add(&mut self, job: Job) {
        // Drop answers whose client has disconnected, or a hung disk would let them pile up.
        self.answers.retain(|(reply, _)| !reply.is_closed());
        self.others.retain(|(reply, _)| !reply.is_closed());
        if job.ports.is_some() {
            self.ports = job.ports;
            self.answers.extend(job.answers);
        } else {
            self.others.extend(job.answers);
        }
    }
}

/// Hands jobs to the saving task, without blocking messages.
#[derive(Clone)]
pub struct Saver {
    pending: Arc<Mutex<Pending>>,
    /// Wakes the task.
    wake: mpsc::Sender<()>,
    saved: watch::Receiver<u64>,
}

impl Saver {
    /// Creates the handle, and the task to run, which ends when the last handle is dropped.
    pub fn new(file: StateFile) -> (Self, impl std::future::Future<Output = ()>) {
        let (wake, mut woken) = mpsc::channel::<()>(1);
        let (newest, saved) = watch::channel(0);
        let pending = Arc::new(Mutex::new(Pending::default()));
        let queue = pending.clone();
        let task = async move {
            let mut file = file;
            while woken.recv().await.is_some() {
                let job = std::mem::take(&mut *lock(&queue));
                let mut failed = None;
                if let Some((revision, ports)) = job.ports {
                    let saving = tokio::task::spawn_blocking(move || {
                        let result = file.save(&ports);
                        (file, result)
                    });
                    // The task neither panics nor is cancelled before the runtime ends.
                    let Ok((back, result)) = saving.await else {
                        return;
                    };
                    file = back;
                    match result {
                        Ok(()) => drop(newest.send_replace(revision)),
                        Err(cause) => failed = Some(cause),
                    }
                }
                let failed = failed.map(|cause| {
                    let text = format!(
                        "{}: cannot be written: {cause}; port changes will be lost at a restart",
                        file.path.display()
                    );
                    error!(target: "config", "{text}");
                    text
                });
                // A client that disconnected needs no answer.
                for (reply, result) in job.answers {
                    let _ = reply.send(match &failed {
                        Some(text) => result.and_then(|_| Err(Problem::not_saved(text))),
                        None => result,
                    });
                }
                for (reply, result) in job.others {
                    let _ = reply.send(result);
                }
            }
        };
        let saver = Self {
            pending,
            wake,
            saved,
        };
        (saver, task)
    }

    pub fn submit(&self, job: Job) {
        lock(&self.pending).add(job);
        // If it is full, the task will run anyway; it outlives every handle.
        let _ = self.wake.try_send(());
    }

    /// Returns the revision of the port map on disk; 0: none written since the start.
    pub fn saved(&self) -> u64 {
        *self.saved.borrow()
    }

    /// Returns when more is saved than at the last call.
    pub async fn saved_more(&mut self) {
        if self.saved.changed().await.is_err() {
            // The task has ended: nothing more will be saved.
            std::future::pending().await
        }
    }
}

/// Locks; a thread that panicked while holding it left it consistent.
fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
