//! Writing the journal, and becoming again what it says.

use crate::api::Restored;
use crate::journal::moves::{self, SavedMove};
use crate::journal::records::{
    array, checksum, key_of, kind, put_group, put_meter, put_rule, Clock, JournalError,
    PortSettings, Settings, FRAMING, HEAD, LENGTH_MAX, MAGIC,
};
use crate::model::facts::Facts;
use crate::model::rule::{Counters, Rule};
use crate::model::truth::{Request, Truth};
use crate::server::flood::Flood;
use crate::Core;
use openflow13::{decode, FlowMod, Message};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Core {
    /// Tells the time on the wall, `unix_now` since 1970, and that a journal is kept. To be called once per round: wall clocks are put right
    /// now and then.
    pub fn keep_journal(&mut self, now: Instant, unix_now: Duration) {
        self.journal.clock = Some(Clock {
            now,
            unix: unix_now,
        });
    }

    /// Bytes to append to the journal, before what [`Core::take_outputs`] returns is written.
    pub fn take_journal(&mut self) -> Vec<u8> {
        if std::mem::take(&mut self.journal.unsettled) {
            self.write_settled();
        }
        std::mem::take(&mut self.journal.bytes)
    }

    /// About as many bytes as [`Core::snapshot`] has.
    pub fn snapshot_size(&self) -> usize {
        /// Of a group or meter; they are few.
        const OTHER: usize = 256;
        self.truth.tables.journal_size()
            + OTHER * (self.truth.groups.len() + self.truth.meters.len())
    }

    /// A whole journal, to replace one that has grown long: everything settled that was taken or is still to be taken.
    /// What [`Core::take_journal`] would have returned is in it.
    pub fn snapshot(&mut self) -> Vec<u8> {
        self.journal.bytes.clear();
        self.journal.unsettled = false;
        let mut out = MAGIC.to_vec();
        let Some(clock) = self.journal.clock else {
            return out;
        };
        out.reserve(self.snapshot_size());
        // What is in flight is not in it: until its verdict it counts for nothing.
        let in_flight = self.verdicts.all_in_flight();
        let settled = self.truth.groups.iter();
        settled
            .filter(|(id, _)| !in_flight.groups.contains_key(id))
            .map(|(_, group)| group)
            .chain(in_flight.groups.values().flatten())
            .for_each(|group| put_group(&mut out, &clock, group));
        let settled = self.truth.meters.iter();
        settled
            .filter(|(id, _)| !in_flight.meters.contains_key(id))
            .map(|(_, meter)| meter)
            .chain(in_flight.meters.values().flatten())
            .for_each(|meter| put_meter(&mut out, &clock, meter));
        let settled = self.truth.tables.iter();
        settled
            .filter(|rule| !in_flight.rules.contains_key(&rule.key))
            .chain(in_flight.rules.values().flatten())
            .for_each(|rule| put_rule(&mut out, &clock, rule));
        self.journal.settings.clear();
        self.journal.moves.clear();
        self.journal.retired.clear();
        self.write_settled();
        out.append(&mut self.journal.bytes);
        out
    }

    fn write_settled(&mut self) {
        let (settings, moves) = (self.settings().encode(), self.saved_moves());
        let retired = self.ports.quarantine.ids();
        let retired = retired.flat_map(u16::to_be_bytes).collect();
        self.journal.settle(settings, moves, retired);
    }

    fn settings(&self) -> Settings {
        Settings {
            fragment_flags: self.fragment_flags,
            flood: self.flood.current().number,
            ports: self.ports.iter().map(PortSettings::of).collect(),
        }
    }

    /// Becomes what the journal says, before anybody is connected. `unix_now`: the time on the wall, since 1970.
    ///
    /// # Errors
    /// Where the journal is damaged, and how; then nothing was restored. A last record that was cut off is none.
    pub fn restore(
        &mut self,
        journal: &[u8],
        now: Instant,
        unix_now: Duration,
    ) -> Result<Restored, JournalError> {
        let clock = Clock {
            now,
            unix: unix_now,
        };
        let mut reader = Replay {
            truth: Truth::default(),
            settings: None,
            moves: Vec::new(),
            retired: Vec::new(),
            clock,
        };
        let mut restored = Restored::default();
        let mut offset = header(journal)?;
        while let Some((body, next)) = record(journal, offset)? {
            let reason = |reason: &str| JournalError {
                offset,
                reason: reason.into(),
            };
            reader.apply(body).map_err(reason)?;
            restored.records += 1;
            offset = next;
        }
        restored.cut_off = journal.len() - offset;
        self.truth = reader.truth;
        self.journal.moves = moves::encode(&reader.moves);
        let retired = reader.retired.chunks_exact(2);
        let retired = retired.map(|id| u16::from_be_bytes([id[0], id[1]]));
        self.ports.quarantine.restore(retired);
        self.journal.retired = reader.retired;
        for saved in &reader.moves {
            self.resume_move(saved);
        }
        if let Some(settings) = reader.settings {
            self.adopt_settings(&settings);
        }
        self.derive_executors(self.truth.moves_in_port());
        // Rules whose copies have no idle timers of their own are watched again.
        self.idle.start(now);
        restored.flows = self.truth.tables.len();
        restored.groups = self.truth.groups.len();
        restored.meters = self.truth.meters.len();
        Ok(restored)
    }

    fn adopt_settings(&mut self, settings: &Settings) {
        self.fragment_flags = settings.fragment_flags;
        let mut flow_ids = BTreeMap::new();
        for saved in &settings.ports {
            // Another name: the number was given to another port meanwhile.
            let port = self.ports.get_mut(saved.number);
            if let Some(port) = port.filter(|port| port.name == saved.name) {
                saved.restore(port);
                flow_ids.insert(saved.number, (saved.flow_id, saved.ingress_id));
            } else {
                let ids = [Some(saved.flow_id), saved.ingress_id];
                self.ports.quarantine.restore(ids.into_iter().flatten());
            }
        }
        self.ports.set_flow_ids(&flow_ids);
        self.flood = Flood::new(&self.ports);
        self.flood.resume(settings.flood);
        for moving in self.ports.iter_mut().filter_map(|p| p.moving.as_mut()) {
            moving.flood = settings.flood;
        }
    }
}

/// The offset of the first record; that of the end, where not even the magic is whole.
fn header(journal: &[u8]) -> Result<usize, JournalError> {
    let length = journal.len().min(MAGIC.len());
    if journal[..length] != MAGIC[..length] {
        let reason = match journal.starts_with(&MAGIC[..MAGIC.len() - 1]) {
            true => format!(
                "format version {}; this oneswitchd reads {}",
                journal[MAGIC.len() - 1],
                MAGIC[MAGIC.len() - 1]
            ),
            false => "it is no journal of oneswitchd".into(),
        };
        return Err(JournalError { offset: 0, reason });
    }
    Ok(if length == MAGIC.len() { length } else { 0 })
}

/// The record at `offset` and the offset of the next one; `None` at the end, and where the last one was cut off.
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
    clock: Clock,
}

impl Replay {
    fn apply(&mut self, body: &[u8]) -> Result<(), &'static str> {
        const SHORT: &str = "a record is too short";
        let input = &mut &*body;
        let [kind] = array(input).ok_or(SHORT)?;
        let time = self
            .clock
            .instant(u64::from_be_bytes(array(input).ok_or(SHORT)?));
        match kind {
            kind::CHANGE => self.change(input, time),
            kind::RULE => {
                let modified = u64::from_be_bytes(array(input).ok_or(SHORT)?);
                let base = counters(input).ok_or(SHORT)?;
                let message = flow_mod(input)?;
                let key = key_of(&message).ok_or("a rule's match cannot be read")?;
                let facts = Facts::of_instructions(&message.instructions);
                self.truth.tables.put(Arc::new(Rule {
                    modified: self.clock.instant(modified),
                    base,
                    ..Rule::new(key, &message, facts, time)
                }));
                Ok(())
            }
            kind::FOLD => {
                let more = counters(input).ok_or(SHORT)?;
                let key = key_of(&flow_mod(input)?).ok_or("a rule's match cannot be read")?;
                self.truth.tables.fold(&key, more.packets, more.bytes);
                Ok(())
            }
            kind::COUNTED => match decode(input) {
                Ok((_, Message::MultipartReply(reply))) => {
                    self.truth.fold_counted(reply.body);
                    Ok(())
                }
                _ => Err("statistics that cannot be read"),
            },
            kind::SETTINGS => {
                let settings = Settings::decode(input);
                self.settings = Some(settings.ok_or("the settings cannot be read")?);
                Ok(())
            }
            kind::MOVES => {
                self.moves = moves::decode(input).ok_or("the moves cannot be read")?;
                Ok(())
            }
            kind::RETIRED => {
                self.retired = input.to_vec();
                Ok(())
            }
            _ => Err("a record of unknown kind"),
        }
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
