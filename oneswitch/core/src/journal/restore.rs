//! Writing and restoring the journal.

use crate::api::Restored;
use crate::journal::bridges::{self, SavedBridge};
use crate::journal::moves::{self, array, SavedMove};
use crate::journal::port_counters::{self, SavedCounters};
use crate::journal::records::{
    checksum, key_of, kind, put_change, put_group, put_meter, put_rule, Clock, Journal,
    JournalError, Settings, FRAMING, HEAD, LENGTH_MAX, MAGIC,
};
use crate::model::facts::Facts;
use crate::model::hidden::HiddenGroups;
use crate::model::in_flight::InFlight;
use crate::model::rule::{Counters, Rule};
use crate::model::table_configs::TableConfigs;
use crate::model::truth::{Request, Truth};
use openflow13::tlv_table::{TlvCommand, TlvTableMod};
use openflow13::{decode, FlowMod, Message};
use std::sync::Arc;
use std::time::Instant;

impl Journal {
    /// Starts a complete new journal with everything settled in `truth`; the settings must follow. `size`: its estimated bytes.
    pub fn snapshot(&mut self, truth: &Truth, in_flight: &InFlight, size: usize) -> Vec<u8> {
        self.bytes.clear();
        let mut out = MAGIC.to_vec();
        let Some(clock) = self.clock else {
            return out;
        };
        out.reserve(size);
        // Messages in flight are not in it: until their verdict they do not count.
        let tlv_table = in_flight.tlv_table.as_ref().unwrap_or(&truth.tlv_table);
        let added = TlvTableMod {
            command: TlvCommand::Add,
            mappings: tlv_table.mappings(),
        };
        if !added.mappings.is_empty() {
            put_change(&mut out, &clock, clock.now, &added.message());
        }
        let settled = truth.groups.iter();
        settled
            .filter(|(id, _)| !in_flight.groups.contains_key(id))
            .map(|(_, group)| group)
            .chain(in_flight.groups.values().flatten())
            .for_each(|group| put_group(&mut out, &clock, group));
        let settled = truth.meters.iter();
        settled
            .filter(|(id, _)| !in_flight.meters.contains_key(id))
            .map(|(_, meter)| meter)
            .chain(in_flight.meters.values().flatten())
            .for_each(|meter| put_meter(&mut out, &clock, meter));
        let settled = truth.tables.iter();
        settled
            .filter(|rule| !in_flight.rules.contains_key(&rule.key))
            .chain(in_flight.rules.values().flatten())
            .for_each(|rule| put_rule(&mut out, &clock, rule));
        self.settings.clear();
        self.moves.clear();
        self.retired.clear();
        self.tables.clear();
        self.port_counters.clear();
        self.hidden.clear();
        self.bridges.clear();
        out
    }

    /// Notes the moves, the quarantined flow-ids and the configurations of tables of a restored journal.
    pub fn resume(&mut self, moves: &[SavedMove], retired: Vec<u8>, tables: Vec<u8>) {
        self.moves = moves::encode(moves);
        self.retired = retired;
        self.tables = tables;
    }
}

/// The content of a journal.
pub struct Replayed {
    pub truth: Truth,
    pub settings: Option<Settings>,
    pub moves: Vec<SavedMove>,
    pub retired: Vec<u8>,
    pub port_counters: Vec<SavedCounters>,
    pub hidden: HiddenGroups,
    pub bridges: Vec<SavedBridge>,
    pub restored: Restored,
}

/// Reads a journal.
///
/// # Errors
/// The position and kind of damage. A truncated last record is not an error.
pub fn replay(journal: &[u8], clock: Clock) -> Result<Replayed, JournalError> {
    let mut reader = Replay {
        truth: Truth::default(),
        settings: None,
        moves: Vec::new(),
        retired: Vec::new(),
        port_counters: Vec::new(),
        hidden: HiddenGroups::default(),
        bridges: Vec::new(),
        clock,
    };
    let mut restored = Restored::default();
    let mut offset = header(journal)?;
    while let Some((body, next)) = record(journal, offset)? {
        let reason = |reason: &str| JournalError {
            offset,
            reason: reason.into(),
        };
        if reader.apply(body).map_err(reason)? > (journal.len() - next) as u64 {
            break; // records that count only together, and some were not written
        }
        restored.records += 1;
        offset = next;
    }
    restored.cut_off = journal.len() - offset;
    Ok(Replayed {
        truth: reader.truth,
        settings: reader.settings,
        moves: reader.moves,
        retired: reader.retired,
        port_counters: reader.port_counters,
        hidden: reader.hidden,
        bridges: reader.bridges,
        restored,
    })
}

/// Returns the offset of the first record; that of the end if even the magic is truncated.
fn header(journal: &[u8]) -> Result<usize, JournalError> {
    let length = journal.len().min(MAGIC.len());
    if journal[..length] != MAGIC[..length] {
        let reason = match journal.starts_with(&MAGIC[..MAGIC.len() - 1]) {
            true => format!(
                "format version {}; this oneswitchd reads {}",
                journal[MAGIC.len() - 1],
                MAGIC[MAGIC.len() - 1]
            ),
            false => "it is not a journal of oneswitchd".into(),
        };
        return Err(JournalError { offset: 0, reason });
    }
    Ok(if length == MAGIC.len() { length } else { 0 })
}

/// Returns the record at `offset` and the offset of the next one; `None` at the end, and for a truncated last record.
fn record(journal: &[u8], offset: usize) -> Result<Option<(&[u8], usize)>, JournalError> {
    let rest = &journal[offset..];
    let error = |reason: &str| {
        Err(JournalError {
            offset,
            reason: reason.into(),
        })
    };
    let Some((framing, body)) = rest.split_at_checked(FRAMING) else {
        return Ok(None);
    };
    let number = |at: usize| u32::from_be_bytes(framing[at..at + 4].try_into().unwrap_or_default());
    let (length, complement, sum) = (number(0), number(4), number(8));
    let size = length as usize;
    if length != !complement || !(HEAD..=LENGTH_MAX).contains(&size) {
        return error("the length of a record is wrong");
    }
    let Some(body) = body.get(..size) else {
        return Ok(None);
    };
    if checksum(body) != sum {
        return error("the checksum of a record is wrong");
    }
    Ok(Some((body, offset + FRAMING + size)))
}

struct Replay {
    truth: Truth,
    settings: Option<Settings>,
    moves: Vec<SavedMove>,
    retired: Vec<u8>,
    port_counters: Vec<SavedCounters>,
    hidden: HiddenGroups,
    bridges: Vec<SavedBridge>,
    clock: Clock,
}

impl Replay {
    /// Applies a record; returns the bytes behind it without which it does not count.
    fn apply(&mut self, body: &[u8]) -> Result<u64, &'static str> {
        const SHORT: &str = "a record is too short";
        let input = &mut &*body;
        let [kind] = array(input).ok_or(SHORT)?;
        let time = self
            .clock
            .instant(u64::from_be_bytes(array(input).ok_or(SHORT)?));
        match kind {
            kind::JOINED => {
                return array(input).map(u64::from_be_bytes).ok_or(SHORT);
            }
            kind::CHANGE => self.change(input, time)?,
            kind::RULE | kind::LEARNED => {
                let modified = u64::from_be_bytes(array(input).ok_or(SHORT)?);
                let base = counters(input).ok_or(SHORT)?;
                let message = flow_mod(input)?;
                let key = key_of(&message).ok_or("a rule's match cannot be read")?;
                let facts = Facts::of_instructions(&message.instructions);
                self.truth.tables.put(Arc::new(Rule {
                    modified: self.clock.instant(modified),
                    base,
                    learned: kind == kind::LEARNED,
                    ..Rule::new(key, &message, facts, time)
                }));
            }
            kind::FOLD => {
                let more = counters(input).ok_or(SHORT)?;
                let key = key_of(&flow_mod(input)?).ok_or("a rule's match cannot be read")?;
                self.truth.tables.fold(&key, more.packets, more.bytes);
            }
            kind::COUNTED => match decode(input) {
                Ok((_, Message::MultipartReply(reply))) => {
                    self.truth.fold_counted(reply.body);
                }
                _ => return Err("statistics that cannot be read"),
            },
            kind::SETTINGS => {
                let settings = Settings::decode(input);
                self.settings = Some(settings.ok_or("the settings cannot be read")?);
            }
            kind::MOVES => {
                self.moves = moves::decode(input).ok_or("the moves cannot be read")?;
            }
            kind::RETIRED => {
                self.retired = input.to_vec();
            }
            kind::TABLES => {
                let configs = TableConfigs::decode(input);
                self.truth.table_configs =
                    configs.ok_or("the configurations of tables cannot be read")?;
            }
            kind::PORT_COUNTERS => {
                let saved = port_counters::decode(input);
                self.port_counters = saved.ok_or("counters of ports cannot be read")?;
            }
            kind::HIDDEN => {
                let hidden = HiddenGroups::decode(input);
                self.hidden = hidden.ok_or("the numbers of hidden groups cannot be read")?;
            }
            kind::BRIDGES => {
                let saved = bridges::decode(input);
                self.bridges = saved.ok_or("the identities of bridges cannot be read")?;
            }
            _ => return Err("a record of unknown kind"),
        }
        Ok(0)
    }

    fn change(&mut self, frame: &[u8], at: Instant) -> Result<(), &'static str> {
        let request = match decode(frame) {
            Ok((_, Message::FlowMod(message))) => {
                let matching = message.matching.canonical();
                Request::Flow {
                    matching: matching.map_err(|_| "a rule's match cannot be read")?,
                    facts: Facts::of_instructions(&message.instructions),
                    message: Box::new(message),
                }
            }
            Ok((_, Message::GroupMod(message))) => Request::Group {
                facts: Facts::of_buckets(&message.buckets),
                message,
            },
            Ok((_, Message::MeterMod(message))) => Request::Meter(message),
            Ok((_, Message::Experimenter(message))) => {
                let message = TlvTableMod::of(&message).ok_or("a vendor's message")?;
                Request::TlvTable(message)
            }
            _ => return Err("a message that changes nothing, or cannot be read"),
        };
        self.truth.apply(&request, at);
        Ok(())
    }
}

fn counters(input: &mut &[u8]) -> Option<Counters> {
    Some(Counters {
        packets: u64::from_be_bytes(array(input)?),
        bytes: u64::from_be_bytes(array(input)?),
    })
}

fn flow_mod(frame: &[u8]) -> Result<FlowMod, &'static str> {
    match decode(frame) {
        Ok((_, Message::FlowMod(message))) => Ok(message),
        _ => Err("a rule cannot be read"),
    }
}
