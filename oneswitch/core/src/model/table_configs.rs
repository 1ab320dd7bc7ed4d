//! The configurations of tables, which OpenFlow 1.4 can change, and the events about their vacancy (`send_table_status`, ofproto/ofproto.c).

use crate::model::happened::Happened;
use crate::model::tables::ALL_TABLES;
use openflow13::openflow14::{Table, TableChange, TableConfig, Vacancy, VacancyEvent};
use std::collections::BTreeMap;

/// Bytes of a table in a journal: its number, flags, and the limits of its vacancy.
const LENGTH: usize = 4;
/// Flags in a journal.
const EVICTION: u8 = 1;
const VACANCY: u8 = 2;
const AWAITS_UP: u8 = 4;

/// A table that differs from the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    config: TableConfig,
    /// Whether the next event about its vacancy is that there is more space.
    awaits_up: bool,
    /// The rules that it has had after the last message whose changes were reported; only if it tells of its vacancy.
    rules: usize,
}

impl Entry {
    fn table(&self, id: u8) -> Table {
        Table {
            id,
            config: self.config,
            rules: self.rules,
        }
    }

    /// Returns the event that is due after a rule has come or gone.
    fn event(&mut self, id: u8) -> Option<VacancyEvent> {
        let limits = self.config.vacancy?;
        let vacancy = self.table(id).vacancy();
        let event = match vacancy {
            _ if vacancy < limits.down => VacancyEvent::Down,
            _ if vacancy > limits.up => VacancyEvent::Up,
            _ => return None,
        };
        let is_up = event == VacancyEvent::Up;
        (is_up == self.awaits_up).then(|| {
            self.awaits_up = !is_up;
            event
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableConfigs(BTreeMap<u8, Entry>);

impl TableConfigs {
    pub fn of(&self, table: u8) -> TableConfig {
        self.0
            .get(&table)
            .map_or_else(TableConfig::default, |entry| entry.config)
    }

    /// Tells whether some table tells of its vacancy.
    pub fn watch_vacancy(&self) -> bool {
        self.0.values().any(|entry| entry.config.vacancy.is_some())
    }

    /// Changes one of the `shown` tables, or all of them; returns whether it exists. `rules`: of a table.
    pub fn change(&mut self, change: &TableChange, shown: u8, rules: impl Fn(u8) -> usize) -> bool {
        let tables = match change.table_id {
            ALL_TABLES => 0..shown,
            table if table >= shown => return false,
            table => table..table + 1,
        };
        for table in tables {
            let mut entry = self.0.remove(&table).unwrap_or_default();
            let had_events = entry.config.vacancy.is_some();
            change.apply(&mut entry.config);
            match entry.config.vacancy {
                Some(limits) if !had_events => {
                    entry.rules = rules(table);
                    entry.awaits_up = entry.table(table).vacancy() < limits.up;
                }
                Some(_) => {}
                None => (entry.rules, entry.awaits_up) = (0, false),
            }
            if entry != Entry::default() {
                self.0.insert(table, entry);
            }
        }
        true
    }

    /// Counts the rules of the tables that tell of their vacancy.
    pub fn count(&mut self, rules: impl Fn(u8) -> usize) {
        let entries = self.0.iter_mut();
        for (table, entry) in entries.filter(|(_, entry)| entry.config.vacancy.is_some()) {
            entry.rules = rules(*table);
        }
    }

    /// Returns the events after the changes by one message.
    pub fn events(&mut self, happened: &[Happened]) -> Vec<(VacancyEvent, Table)> {
        let changes = || happened.iter().flat_map(|one| &one.rules);
        let come_or_gone = || {
            changes().filter_map(|change| match (&change.before, &change.after) {
                (None, Some(rule)) => Some((rule.key.table, true)),
                (Some(rule), None) => Some((rule.key.table, false)),
                _ => None,
            })
        };
        for (table, has_come) in come_or_gone() {
            if let Some(entry) = self.0.get_mut(&table) {
                entry.rules = match has_come {
                    true => entry.rules.saturating_add(1),
                    false => entry.rules.saturating_sub(1),
                };
            }
        }
        let mut events = Vec::new();
        for (id, _) in come_or_gone() {
            let entry = self.0.get_mut(&id);
            let event = entry.and_then(|entry| Some((entry.event(id)?, entry.table(id))));
            events.extend(event);
        }
        events
    }

    /// Encodes them for a journal.
    pub fn encode(&self) -> Vec<u8> {
        let encode = |(table, entry): (&u8, &Entry)| {
            let config = entry.config;
            let eviction = if config.eviction { EVICTION } else { 0 };
            let vacancy = config.vacancy.map_or(0, |_| VACANCY);
            let awaited = if entry.awaits_up { AWAITS_UP } else { 0 };
            let Vacancy { down, up } = config.vacancy.unwrap_or_default();
            [*table, eviction | vacancy | awaited, down, up]
        };
        self.0.iter().flat_map(encode).collect()
    }

    /// Decodes; `None`: not the format of [`Self::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let entries = bytes.chunks_exact(LENGTH);
        if !entries.remainder().is_empty() {
            return None;
        }
        let decode = |entry: &[u8]| {
            let &[table, flags, down, up] = entry else {
                return None;
            };
            let config = TableConfig {
                eviction: flags & EVICTION != 0,
                vacancy: (flags & VACANCY != 0).then_some(Vacancy { down, up }),
            };
            let entry = Entry {
                config,
                awaits_up: flags & AWAITS_UP != 0,
                rules: 0,
            };
            Some((table, entry))
        };
        entries.map(decode).collect::<Option<_>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_as_they_were_written() {
        let vacancy = Some(Vacancy { down: 3, up: 90 });
        let configs = [(2, true, None), (7, false, vacancy), (253, true, vacancy)];
        let configs = configs.map(|(table, eviction, vacancy)| {
            let entry = Entry {
                config: TableConfig { eviction, vacancy },
                awaits_up: table == 7,
                rules: 0,
            };
            (table, entry)
        });
        let configs = TableConfigs(configs.into());
        let bytes = configs.encode();
        assert_eq!(TableConfigs::decode(&bytes), Some(configs));
        assert_eq!(TableConfigs::decode(&bytes[1..]), None);
    }
}
