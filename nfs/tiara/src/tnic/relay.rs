//! Passes the rows of load balancers on to the switch, over its control socket, and again after each restart of the switch.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::net::UnixStream,
    path::PathBuf,
};

use serde_json::{json, Value};

use crate::session::{Channel, Kept};

/// Rows in one request.
const REQUEST: usize = 1000;
const MILLISECOND: u64 = 1_000_000;
/// The time until a switch that did not answer is tried again.
const RETRY: u64 = 500 * MILLISECOND;
/// The time within which the switch must answer.
const PATIENCE: u64 = 2000 * MILLISECOND;
/// The time after which a silent switch gets a row once more: it closes connections that are silent for a minute.
const ALIVE: u64 = 20_000 * MILLISECOND;

/// A request that was sent.
struct Asked {
    rows: Vec<u32>,
    at: u64,
    /// The changes that the switch has when it answers.
    version: u64,
}

/// The rows, and how far the switch knows them.
pub struct Relay {
    /// The switch's control socket. None: the switch has its rows from its configuration.
    socket: Option<PathBuf>,
    channel: Option<Channel>,
    tried: u64,
    /// When the switch answered last.
    heard: u64,
    rows: BTreeMap<u32, Kept>,
    /// Rows to be written, or dropped if they are not in `rows`, each with the change that asked for it.
    changed: BTreeMap<u32, u64>,
    asked: Option<Asked>,
    version: u64,
    /// Why the switch does not have all rows; None: it answers.
    why: Option<String>,
}

impl Relay {
    #[must_use]
    pub fn new(socket: Option<PathBuf>) -> Self {
        Self {
            socket,
            channel: None,
            tried: 0,
            heard: 0,
            rows: BTreeMap::new(),
            changed: BTreeMap::new(),
            asked: None,
            version: 0,
            why: None,
        }
    }

    /// Writes rows of a load balancer; returns the number of the change.
    pub fn put(&mut self, prefix: u16, rows: Vec<Kept>) -> u64 {
        self.version += 1;
        for row in rows {
            let index = index_of(prefix, row.row);
            self.rows.insert(index, row);
            self.changed.insert(index, self.version);
        }
        self.version
    }

    pub fn drop(&mut self, prefix: u16, rows: &[u16]) {
        self.version += 1;
        for row in rows {
            let index = index_of(prefix, *row);
            if self.rows.remove(&index).is_some() {
                self.changed.insert(index, self.version);
            }
        }
    }

    /// Drops all rows of a load balancer.
    pub fn clear(&mut self, prefix: u16) {
        let all = self
            .rows
            .range(index_of(prefix, 0)..=index_of(prefix, u16::MAX));
        let rows: Vec<u16> = all.map(|(_, row)| row.row).collect();
        self.drop(prefix, &rows);
    }

    /// Returns the number up to which the switch has all changes.
    #[must_use]
    pub fn confirmed(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.version);
        let waiting = self.changed.values().copied();
        asked
            .chain(waiting)
            .min()
            .map_or(self.version, |oldest| oldest - 1)
    }

    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Exchanges requests and answers with the switch. `now` in nanoseconds.
    pub fn turn(&mut self, now: u64) {
        if self.socket.is_none() {
            self.changed.clear();
            return;
        }
        if self.changed.is_empty() && self.channel.is_none() && self.rows.is_empty() {
            return;
        }
        if let Err(why) = self.exchange(now) {
            self.lose(why);
        }
    }

    fn lose(&mut self, why: String) {
        self.channel = None;
        self.why = Some(why);
        if let Some(asked) = self.asked.take() {
            for index in asked.rows {
                self.changed.entry(index).or_insert(asked.version);
            }
        }
        // The switch may have restarted and lost its rows.
        for index in self.rows.keys() {
            self.changed.entry(*index).or_insert(self.version);
        }
    }

    fn exchange(&mut self, now: u64) -> Result<(), String> {
        if self.channel.is_none() {
            if now < self.tried + RETRY {
                return Ok(());
            }
            self.tried = now;
            let path = self.socket.clone().unwrap_or_default();
            let stream = UnixStream::connect(&path);
            let channel = stream.and_then(Channel::new);
            self.channel =
                Some(channel.map_err(|error| {
                    format!("no tswitch answers at {}: {error}", path.display())
                })?);
        }
        self.read(now)?;
        let is_silent = self.asked.is_none() && now > self.heard + ALIVE;
        if let (true, Some(first)) = (is_silent, self.rows.keys().next()) {
            self.changed.entry(*first).or_insert(self.version);
        }
        if self.asked.is_none() && !self.changed.is_empty() {
            self.ask(now);
        }
        let channel = self.channel.as_mut();
        channel
            .map_or(Ok(()), Channel::flush)
            .map_err(|error| format!("the tswitch is lost: {error}"))
    }

    /// Reads the switch's answer.
    fn read(&mut self, now: u64) -> Result<(), String> {
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        let lost = |error: std::io::Error| format!("the tswitch is lost: {error}");
        let is_open = channel.fill().map_err(lost)?;
        if let Some(answer) = channel.next::<Value>().map_err(lost)? {
            if let Some(error) = answer.get("error") {
                return Err(format!("the tswitch refuses: {error}"));
            }
            (self.asked, self.why, self.heard) = (None, None, now);
        }
        let is_late = self
            .asked
            .as_ref()
            .is_some_and(|asked| now > asked.at + PATIENCE);
        match is_open && !is_late {
            true => Ok(()),
            false => Err("the tswitch does not answer".to_owned()),
        }
    }

    /// Sends the oldest kind of change: rows to be written, or rows to be dropped.
    fn ask(&mut self, at: u64) {
        let is_put = |index: &u32| self.rows.contains_key(index);
        let first = self.changed.keys().next().is_some_and(is_put);
        let same = self
            .changed
            .iter()
            .filter(|(index, _)| is_put(index) == first)
            .take(REQUEST);
        let (rows, versions): (Vec<u32>, BTreeSet<u64>) =
            same.map(|(index, version)| (*index, *version)).unzip();
        let request = match first {
            true => {
                let servers: Vec<Value> = rows
                    .iter()
                    .filter_map(|index| {
                        let row = self.rows.get(index)?;
                        Some(json!({"index": index, "address": row.address, "vtep": row.vtep, "vni": row.vni, "mac": row.mac}))
                    })
                    .collect();
                json!({"do": "tswitch.put_servers", "servers": servers})
            }
            false => json!({"do": "tswitch.drop_servers", "indices": rows}),
        };
        for index in &rows {
            self.changed.remove(index);
        }
        if let Some(channel) = &mut self.channel {
            channel.put(&request);
        }
        let version = versions.first().copied().unwrap_or(self.version);
        self.asked = Some(Asked { rows, at, version });
    }
}

fn index_of(prefix: u16, row: u16) -> u32 {
    u32::from(prefix) << 16 | u32::from(row)
}
