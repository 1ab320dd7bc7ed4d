//! Assigns rows of the state to VIPs and backends. A connection's record refers to its backend by row, so a row keeps its meaning across
//! configurations and moves, and is reused only when no record can refer to it.

use std::collections::{HashMap, HashSet};

use nf_balancing::{health, tuple::Address};
use nf_runtime::Refusal;

use crate::{
    config::{Config, Vip},
    state::{usage, BackendRecord, State, VipRecord},
};

/// Longer than any record lives after its last packet (15 min and a sixteenth) plus the time until aging finds it.
const QUARANTINE: u64 = 1_200_000_000_000;

/// Whether to wait until no record can refer to a removed backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Quarantine,
    None,
}

/// The rows of the state assigned to a configuration's VIPs and backends.
pub struct Rows {
    pub vips: Vec<usize>,
    /// The rows of each VIP's backends.
    pub backends: Vec<Vec<u16>>,
}

type Identity = (Address, u16, u8);

fn identity(vip: &Vip) -> Identity {
    (vip.address.into(), vip.port, vip.protocol.number())
}

impl State {
    /// Returns the number of rows that count traffic.
    #[must_use]
    pub fn traffic_row_count(&self) -> usize {
        self.backends.len() + self.vips.len() + 1
    }

    /// Returns the row that counts for a VIP's removed backends.
    #[must_use]
    pub fn gone_row(&self, vip_row: usize) -> usize {
        self.backends.len() + vip_row
    }

    /// Returns the counter rows of each VIP's backends, by the VIP's row. A removed backend's row stays its VIP's until its number is reused.
    #[must_use]
    pub fn traffic_rows(&self) -> HashMap<usize, Vec<usize>> {
        let vips = self.vips.iter().enumerate();
        let vips: HashMap<Identity, usize> = vips
            .filter(|(_, vip)| vip.used != 0)
            .map(|(row, vip)| ((vip.address, vip.port, vip.protocol), row))
            .collect();
        let mut rows: HashMap<usize, Vec<usize>> = HashMap::new();
        for (number, record) in self.backends.iter().enumerate() {
            let vip = (record.vip_address, record.vip_port, record.vip_protocol);
            if let Some(row) = vips.get(&vip).filter(|_| record.usage != usage::FREE) {
                rows.entry(*row).or_default().push(number);
            }
        }
        rows
    }

    /// Finds rows for everything in a configuration without changing any. `is_named`: whether a rule of a faster table may lead to this backend.
    ///
    /// # Errors
    /// If too many backends were replaced lately.
    pub fn assign(
        &self,
        config: &Config,
        now: u64,
        patience: Patience,
        is_named: impl Fn(u16) -> bool,
    ) -> Result<Rows, Refusal> {
        let vips = self.assign_vips(config);
        let records: Vec<BackendRecord> = self.backends.iter().collect();
        let mut taken = HashSet::new();
        let mut found: Vec<Vec<Option<u16>>> = Vec::new();
        for vip in &config.vips {
            let (address, port, protocol) = identity(vip);
            let same = |record: &BackendRecord, backend: &crate::config::Backend| {
                record.usage != usage::FREE
                    && (record.vip_address, record.vip_port, record.vip_protocol)
                        == (address, port, protocol)
                    && record.address == Address::from(backend.address)
                    && record.port == backend.port.unwrap_or(vip.port)
            };
            let numbers = vip.backends.iter().map(|backend| {
                let number = records.iter().position(|record| same(record, backend))?;
                taken.insert(number);
                Some(number as u16)
            });
            found.push(numbers.collect());
        }
        // Prefers rows that were never used, then those retired longest ago.
        let usable = |record: &BackendRecord| match record.usage {
            usage::FREE => true,
            usage::RETIRED if now.saturating_sub(record.retired) > QUARANTINE => true,
            // Includes the previous instance's rows, which are about to be retired.
            _ => patience == Patience::None,
        };
        let mut free: Vec<usize> = (0..records.len())
            .filter(|number| !taken.contains(number) && usable(&records[*number]))
            .filter(|number| !is_named(*number as u16))
            .collect();
        free.sort_by_key(|number| {
            let record = &records[*number];
            (record.usage == usage::USED, record.usage, record.retired)
        });
        let mut free = free.into_iter();
        let mut backends = Vec::new();
        for numbers in found {
            let numbers: Option<Vec<u16>> = numbers
                .into_iter()
                .map(|number| number.or_else(|| free.next().map(|number| number as u16)))
                .collect();
            backends.push(numbers.ok_or_else(|| {
                Refusal::new(
                    "backends-exhausted",
                    format!(
                        "vips: connections may still name the backends that were removed in the last {} minutes; wait, or raise tables.backends, which is {}",
                        QUARANTINE / 60_000_000_000,
                        records.len()
                    ),
                )
            })?);
        }
        Ok(Rows { vips, backends })
    }

    /// Assigns a row to each VIP. There are as many rows as VIPs allowed, so one is always free.
    fn assign_vips(&self, config: &Config) -> Vec<usize> {
        let records: Vec<VipRecord> = self.vips.iter().collect();
        let same = |record: &VipRecord, vip: &Vip| {
            record.used != 0 && (record.address, record.port, record.protocol) == identity(vip)
        };
        let found: Vec<Option<usize>> = config
            .vips
            .iter()
            .map(|vip| records.iter().position(|record| same(record, vip)))
            .collect();
        let taken: HashSet<usize> = found.iter().flatten().copied().collect();
        let mut free: Vec<usize> = (0..records.len())
            .filter(|row| !taken.contains(row))
            .collect();
        free.sort_by_key(|row| records[*row].used);
        let mut free = free.into_iter();
        found
            .into_iter()
            .filter_map(|row| row.or_else(|| free.next()))
            .collect()
    }

    /// Writes the rows found by [`assign`](Self::assign) and retires those that are not in the configuration.
    /// `fold` moves what rules of a faster table have counted from one row to another.
    pub fn occupy(&self, config: &Config, rows: &Rows, now: u64, fold: &dyn Fn(usize, usize)) {
        let none = self.traffic_row_count() - 1;
        for (vip, row) in config.vips.iter().zip(&rows.vips) {
            let (address, port, protocol) = identity(vip);
            let old = self.vips.get(*row);
            if old.used != 0 && (old.address, old.port, old.protocol) == (address, port, protocol) {
                continue;
            }
            self.half_open.set(*row, 0);
            self.turns.set(*row, 0);
            self.events.clear(*row);
            self.traffic.clear(self.gone_row(*row));
            fold(self.gone_row(*row), none);
            let record = VipRecord {
                address,
                port,
                protocol,
                used: 1,
                reserved: 0,
            };
            self.vips.put(*row, &record);
        }
        let mut kept = HashSet::new();
        for ((vip, numbers), vip_row) in config.vips.iter().zip(&rows.backends).zip(&rows.vips) {
            for (backend, number) in vip.backends.iter().zip(numbers) {
                let port = backend.port.unwrap_or(vip.port);
                let end = (backend.address.into(), port);
                self.occupy_backend(*number, vip, end, *vip_row, fold);
                kept.insert(usize::from(*number));
            }
        }
        for number in (0..self.backends.len()).filter(|number| !kept.contains(number)) {
            let mut record = self.backends.get(number);
            if record.usage == usage::USED {
                record.usage = usage::RETIRED;
                record.retired = now;
                self.backends.put(number, &record);
            }
        }
    }

    fn occupy_backend(
        &self,
        number: u16,
        vip: &Vip,
        end: (Address, u16),
        vip_row: usize,
        fold: &dyn Fn(usize, usize),
    ) {
        let (vip_address, vip_port, vip_protocol) = identity(vip);
        let number = usize::from(number);
        let mut record = self.backends.get(number);
        let is_same = (record.vip_address, record.vip_port, record.vip_protocol)
            == (vip_address, vip_port, vip_protocol)
            && (record.address, record.port) == end;
        if record.usage != usage::FREE && is_same {
            if record.usage == usage::RETIRED {
                record.usage = usage::USED;
                record.drained = 0;
                self.backends.put(number, &record);
            }
            return;
        }
        if record.usage != usage::FREE {
            let of_same_vip = (record.vip_address, record.vip_port, record.vip_protocol)
                == (vip_address, vip_port, vip_protocol);
            let none = self.traffic_row_count() - 1;
            let row = self.vips.iter().position(|vip| {
                (vip.address, vip.port, vip.protocol)
                    == (record.vip_address, record.vip_port, record.vip_protocol)
            });
            let row = if of_same_vip { Some(vip_row) } else { row };
            let into = row.map_or(none, |row| self.gone_row(row));
            self.traffic.fold(number, into);
            fold(number, into);
        }
        self.active.set(number, 0);
        let fresh = BackendRecord {
            vip_address,
            address: end.0,
            vip_port,
            port: end.1,
            vip_protocol,
            usage: usage::USED,
            drained: 0,
            health: health::UNKNOWN,
            retired: 0,
            probe: health::Probe::default(),
        };
        self.backends.put(number, &fresh);
    }
}
