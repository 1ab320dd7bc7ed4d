//! The configurations of tables, which OpenFlow 1.4 can change.

use crate::model::tables::ALL_TABLES;
use openflow13::openflow14::{TableChange, TableConfig, Vacancy};
use std::collections::BTreeMap;

/// Bytes of a table in a journal: its number, flags, and the limits of its vacancy.
const LENGTH: usize = 4;
/// Flags in a journal.
const EVICTION: u8 = 1;
const VACANCY: u8 = 2;

/// Those that differ from the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableConfigs(BTreeMap<u8, TableConfig>);

impl TableConfigs {
    pub fn of(&self, table: u8) -> TableConfig {
        self.0.get(&table).copied().unwrap_or_default()
    }

    /// Changes one of the `shown` tables, or all of them; returns whether it exists.
    pub fn change(&mut self, change: &TableChange, shown: u8) -> bool {
        let tables = match change.table_id {
            ALL_TABLES => 0..shown,
            table if table >= shown => return false,
            table => table..table + 1,
        };
        for table in tables {
            let mut config = self.of(table);
            change.apply(&mut config);
            match config == TableConfig::default() {
                true => self.0.remove(&table),
                false => self.0.insert(table, config),
            };
        }
        true
    }

    /// Encodes them for a journal.
    pub fn encode(&self) -> Vec<u8> {
        let encode = |(table, config): (&u8, &TableConfig)| {
            let eviction = if config.eviction { EVICTION } else { 0 };
            let vacancy = config.vacancy.map_or(0, |_| VACANCY);
            let Vacancy { down, up } = config.vacancy.unwrap_or_default();
            [*table, eviction | vacancy, down, up]
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
            Some((table, config))
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
        let configs =
            configs.map(|(table, eviction, vacancy)| (table, TableConfig { eviction, vacancy }));
        let configs = TableConfigs(configs.into());
        let bytes = configs.encode();
        assert_eq!(TableConfigs::decode(&bytes), Some(configs));
        assert_eq!(TableConfigs::decode(&bytes[1..]), None);
    }
}
