//! The mapping of tunnels' options to the fields `tun_metadataN`, which matches and actions can then name.

use openflow13::tlv_table::{TlvCommand, TlvMapping, TlvTableMod, SPACE};
use openflow13::ErrorCode;
use std::collections::BTreeMap;

/// The mappings, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlvTable(BTreeMap<u16, TlvMapping>);

impl TlvTable {
    pub fn of(mappings: impl IntoIterator<Item = TlvMapping>) -> Self {
        Self(mappings.into_iter().map(|m| (m.index, m)).collect())
    }

    pub fn mappings(&self) -> Vec<TlvMapping> {
        self.0.values().copied().collect()
    }

    /// Returns the table after a message (Open vSwitch, lib/tun-metadata.c).
    ///
    /// # Errors
    /// The switches' error for a message that contradicts this table. Whether a rule uses a field that is to be removed is left to them.
    pub fn changed_by(&self, message: &TlvTableMod) -> Result<Self, ErrorCode> {
        let mut table = self.clone();
        match message.command {
            TlvCommand::Add => message.mappings.iter().try_for_each(|m| table.add(*m))?,
            TlvCommand::Delete => {
                for mapping in &message.mappings {
                    table.0.remove(&mapping.index);
                }
            }
            TlvCommand::Clear => table.0.clear(),
        }
        Ok(table)
    }

    fn add(&mut self, mapping: TlvMapping) -> Result<(), ErrorCode> {
        if self.0.contains_key(&mapping.index) {
            return Err(ErrorCode::NX_TLV_ALREADY_MAPPED);
        }
        let is_option = |m: &TlvMapping| (m.class, m.kind) == (mapping.class, mapping.kind);
        if self.0.values().any(is_option) {
            return Err(ErrorCode::NX_TLV_DUP_ENTRY);
        }
        let used: u32 = self.0.values().map(|m| u32::from(m.length)).sum();
        if used + u32::from(mapping.length) > SPACE {
            return Err(ErrorCode::NX_TLV_TABLE_FULL);
        }
        self.0.insert(mapping.index, mapping);
        Ok(())
    }

    /// Returns what a switch with this table must remove and then add to have `wanted`.
    pub fn difference(&self, wanted: &Self) -> [Option<TlvTableMod>; 2] {
        let lacking = |table: &Self, other: &Self, command| {
            let has = |m: &&TlvMapping| other.0.get(&m.index) != Some(*m);
            let mappings: Vec<TlvMapping> = table.0.values().filter(has).copied().collect();
            (!mappings.is_empty()).then_some(TlvTableMod { command, mappings })
        };
        [
            lacking(self, wanted, TlvCommand::Delete),
            lacking(wanted, self, TlvCommand::Add),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(index: u16, kind: u8, length: u8) -> TlvMapping {
        TlvMapping {
            class: 0xffff,
            kind,
            length,
            index,
        }
    }

    fn add(mappings: &[TlvMapping]) -> TlvTableMod {
        TlvTableMod {
            command: TlvCommand::Add,
            mappings: mappings.into(),
        }
    }

    #[test]
    fn an_addition_is_taken_as_a_whole_or_refused() {
        let table = TlvTable::of([mapping(1, 1, 4)]);
        for (refused, error) in [
            (mapping(1, 9, 4), ErrorCode::NX_TLV_ALREADY_MAPPED),
            (mapping(9, 1, 4), ErrorCode::NX_TLV_DUP_ENTRY),
        ] {
            let message = add(&[mapping(2, 2, 4), refused]);
            assert_eq!(table.changed_by(&message), Err(error));
        }
        let large = [mapping(2, 2, 124), mapping(3, 3, 124), mapping(4, 4, 8)];
        let full = table.changed_by(&add(&large));
        assert_eq!(full, Err(ErrorCode::NX_TLV_TABLE_FULL));
        let fits = table.changed_by(&add(&large[..2])).unwrap();
        assert_eq!(fits.mappings().len(), 3);
    }

    #[test]
    fn a_difference_makes_one_table_the_other() {
        let table = TlvTable::of([mapping(1, 1, 4), mapping(2, 2, 4), mapping(3, 3, 4)]);
        let wanted = TlvTable::of([mapping(1, 1, 4), mapping(2, 7, 8), mapping(4, 3, 4)]);
        let messages = table.difference(&wanted);
        let result = messages
            .into_iter()
            .flatten()
            .fold(table, |table, message| table.changed_by(&message).unwrap());
        assert_eq!(result, wanted);
        assert_eq!(wanted.difference(&wanted), [None, None]);
    }
}
