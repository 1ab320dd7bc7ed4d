//! Configurations of tables (lib/ofp-table.c).

use crate::error::{ErrorCode, Refusal};
use crate::properties::{bad_content, Properties};
use crate::wire::{u32_at, Put, Reader};

use super::replies::{message, multipart};
use super::{kind, multipart_kind};

/// `ofp14_table_config`.
const EVICTION: u32 = 1 << 2;
const VACANCY_EVENTS: u32 = 1 << 3;
/// `ofp14_table_mod_prop_type`.
mod property {
    pub const EVICTION: u16 = 2;
    pub const VACANCY: u16 = 3;
}
/// All factors of an eviction, which Open vSwitch shows even if it does not evict.
const FACTORS: u32 = 7;

/// The percentages of a table's space below and above which it tells of its
/// vacancy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Vacancy {
    pub down: u8,
    pub up: u8,
}

/// The configuration of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableConfig {
    /// Whether rules make way for others.
    pub eviction: bool,
    /// Whether it tells of its vacancy, and when.
    pub vacancy: Option<Vacancy>,
}

/// A change of the configuration of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// The table, or all of them.
    pub table_id: u8,
    eviction: Option<bool>,
    vacancy: Option<Vacancy>,
}

impl TableChange {
    /// Tells whether the tables are to tell of their vacancy.
    pub fn watches_vacancy(&self) -> bool {
        self.vacancy.is_some()
    }

    /// Changes the configuration of one of the tables.
    pub fn apply(&self, config: &mut TableConfig) {
        config.eviction = self.eviction.unwrap_or(config.eviction);
        config.vacancy = self.vacancy;
    }

    /// Decodes the body of a table-mod (`ofputil_decode_table_mod`).
    pub(super) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let table_id = reader.u8()?;
        reader.skip(3)?;
        let config = reader.u32()?;
        let mut eviction = Some(config & EVICTION != 0);
        let mut vacancy = Vacancy::default();
        for property in Properties::new(reader.rest()) {
            let (kind, content) = property?;
            match kind {
                property::EVICTION => {
                    // Open vSwitch takes the factors for its own numbers of DEFAULT, ON and OFF.
                    let factors = u32_at(content, 0).filter(|_| content.len() == 4);
                    eviction = match factors.ok_or_else(|| bad_content(kind, content))? {
                        1 => Some(true),
                        2 => Some(false),
                        _ => None,
                    };
                }
                property::VACANCY => vacancy = thresholds(content)?,
                _ => {
                    let detail = format!("unknown property {kind} of a table");
                    return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_TYPE, detail));
                }
            }
        }
        Ok(Self {
            table_id,
            eviction,
            vacancy: (config & VACANCY_EVENTS != 0).then_some(vacancy),
        })
    }
}

/// Does what `parse_table_mod_vacancy_property` does.
fn thresholds(content: &[u8]) -> Result<Vacancy, Refusal> {
    let &[down, up, vacancy, _] = content else {
        return Err(bad_content(property::VACANCY, content));
    };
    if down > up || up > 100 || vacancy != 0 {
        let detail = format!("events below {down} % and above {up} %, vacancy {vacancy} %");
        return Err(Refusal::new(
            ErrorCode::TABLE_FEATURES_FAILED_BAD_ARGUMENT,
            detail,
        ));
    }
    Ok(Vacancy { down, up })
}

/// A table as its description shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its number.
    pub id: u8,
    /// Its configuration.
    pub config: TableConfig,
    /// Its rules.
    pub rules: usize,
}

impl Table {
    /// Rules that Open vSwitch counts as the limit of a table without one.
    const LIMIT: u32 = u32::MAX;

    /// Returns its free space in percent, rounded down (`oftable_vacancy`).
    pub fn vacancy(&self) -> u8 {
        let free = u64::from(Self::LIMIT).saturating_sub(self.rules as u64);
        (free * 100 / u64::from(Self::LIMIT)) as u8
    }
}

/// An event about a table's vacancy (`ofp14_table_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VacancyEvent {
    /// Less space is left than the lower limit.
    Down = 3,
    /// More space is left than the upper limit.
    Up = 4,
}

/// Encodes the notification of an event for a peer of OpenFlow 1.4 or later
/// (`ofputil_encode_table_status`).
pub fn encode_table_status(version: u8, event: VacancyEvent, table: &Table) -> Vec<u8> {
    let mut body = vec![event as u8, 0, 0, 0, 0, 0, 0, 0];
    body.put(&desc(table));
    let mut out = message(kind::TABLE_STATUS, 0, &body);
    if let Some(first) = out.first_mut() {
        *first = version;
    }
    out
}

/// Encodes the descriptions of tables.
pub fn encode_table_desc(xid: u32, tables: impl Iterator<Item = Table>) -> Vec<Vec<u8>> {
    let descs = tables.map(|table| desc(&table));
    multipart(xid, multipart_kind::TABLE_DESC, false, descs)
}

fn desc(table: &Table) -> Vec<u8> {
    let config = table.config;
    let mut properties = Vec::new();
    properties.put_u16(property::EVICTION);
    properties.put_u16(8);
    properties.put_u32(FACTORS);
    if let Some(Vacancy { down, up }) = config.vacancy {
        properties.put_u16(property::VACANCY);
        properties.put_u16(8);
        properties.put(&[down, up, table.vacancy(), 0]);
    }
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    let mut out = Vec::new();
    out.put_u16((8 + properties.len()) as u16);
    out.put(&[table.id, 0]);
    out.put_u32(bit(config.eviction, EVICTION) | bit(config.vacancy.is_some(), VACANCY_EVENTS));
    out.put(&properties);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_table_without_rules_is_empty() {
        for (rules, vacancy) in [(0, 100), (1, 99), (42_949_672, 99), (42_949_673, 98)] {
            let config = TableConfig::default();
            let table = Table {
                id: 0,
                config,
                rules,
            };
            assert_eq!(table.vacancy(), vacancy, "{rules} rules");
        }
    }
}
