//! Reports of changed rules.

use crate::error::{ErrorCode, Refusal};
use crate::header::{finish, kind, start, Header, HEADER_LEN, VERSION};
use crate::instruction::Instructions;
use crate::multipart::EntryMessages;
use crate::openflow10;
use crate::openflow15;
use crate::oxm::Match;
use crate::wire::{patch_length, u16_at, u32_at, Put, Reader};
use crate::{NX_VENDOR, ONF_VENDOR};

use super::forms::{
    Form, NICIRA_PAUSED, NICIRA_RESUMED, NICIRA_STATS, ONF_PAUSED, ONF_RESUMED, ONF_STATS,
    STANDARD_STATS,
};

/// `ofp_multipart_type` of an experimenter, and OpenFlow 1.0's of a vendor.
const VENDOR_STATS: u16 = 0xffff;
/// Events of OpenFlow 1.4, and of the extensions.
const ABBREVIATED: u16 = 4;
const EXTENSION_ABBREVIATED: u16 = 3;
const PAUSED: u16 = 5;
const RESUMED: u16 = 6;

/// The change of a rule, with its number in OpenFlow 1.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The rule was there when the monitor began; the extensions report this as
    /// an addition.
    Initial = 0,
    /// The rule was added, perhaps in place of another one.
    Added = 1,
    /// The rule was removed.
    Removed = 2,
    /// Its instructions or its cookie were changed.
    Modified = 3,
}

impl Event {
    fn in_extensions(self) -> u16 {
        (self as u16).saturating_sub(1)
    }
}

/// A report of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FullUpdate {
    pub event: Event,
    /// `ofp_flow_removed_reason` of a removal; 0 otherwise.
    pub reason: u8,
    pub table_id: u8,
    pub priority: u16,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub cookie: u64,
    pub matching: Match,
    /// Empty unless the monitor asks for them.
    pub instructions: Instructions,
}

/// An entry of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// One rule.
    Full(Box<FullUpdate>),
    /// Changes by the receiver's own message with this xid.
    Abbreviated(u32),
}

impl Update {
    /// Estimates its bytes in memory; at least those of its message.
    pub fn size(&self) -> usize {
        std::mem::size_of::<Self>()
            + match self {
                Self::Full(update) => {
                    let lists = update.matching.as_oxm().len();
                    let fixed = std::mem::size_of::<FullUpdate>();
                    fixed + lists + update.instructions.as_bytes().len()
                }
                Self::Abbreviated(_) => 0,
            }
    }
}

/// The messages of a report, encoded one at a time.
pub type UpdateMessages = EntryMessages<Update>;

/// Encodes a report: with the xid of the request that it answers, or 0.
pub fn updates_messages(version: u8, xid: u32, updates: Vec<Update>) -> UpdateMessages {
    let form = Form::of_version(version);
    let put = match form {
        Form::Nicira => put_nicira,
        Form::Onf => put_onf,
        Form::Standard if version == openflow15::VERSION => put_standard_15,
        Form::Standard => put_standard,
    };
    EntryMessages::with_head(head(version, xid), put, updates)
}

/// Starts a message of a report.
fn head(version: u8, xid: u32) -> Vec<u8> {
    let form = Form::of_version(version);
    let number = match form {
        Form::Nicira => openflow10::kind::STATS_REPLY,
        Form::Onf | Form::Standard => kind::MULTIPART_REPLY,
    };
    let mut out = start(xid, number);
    if let Some(slot) = out.first_mut() {
        *slot = version;
    }
    match form {
        Form::Nicira => {
            out.put_u16(VENDOR_STATS);
            out.zeros(2);
            out.put_u32(NX_VENDOR);
            out.put_u32(NICIRA_STATS);
            out.zeros(4);
        }
        Form::Onf => {
            out.put_u16(VENDOR_STATS);
            out.zeros(6);
            out.put_u32(ONF_VENDOR);
            out.put_u32(ONF_STATS);
        }
        Form::Standard => {
            out.put_u16(STANDARD_STATS);
            out.zeros(6);
        }
    }
    out
}

fn put_nicira(update: &Update, out: &mut Vec<u8>) {
    put_extension(update, out, |update, out| {
        let nxm = openflow10::to_nxm(&update.matching);
        openflow10::put_padded(out, &nxm);
        out.extend(openflow10::of_instructions(&update.instructions));
        nxm.len()
    });
}

fn put_onf(update: &Update, out: &mut Vec<u8>) {
    put_extension(update, out, |update, out| {
        update.matching.put(out);
        update.instructions.put_before_15(out);
        4 + update.matching.as_oxm().len()
    });
}

/// Writes an entry of the extensions, with lists of which `put_lists` writes and
/// of which it returns the length of the match.
fn put_extension(
    update: &Update,
    out: &mut Vec<u8>,
    put_lists: impl FnOnce(&FullUpdate, &mut Vec<u8>) -> usize,
) {
    /// Where an entry has the length of its match.
    const MATCH_LENGTH: usize = 12;
    let begin = out.len();
    out.zeros(2);
    match update {
        Update::Abbreviated(xid) => {
            out.put_u16(EXTENSION_ABBREVIATED);
            out.put_u32(*xid);
        }
        Update::Full(update) => {
            out.put_u16(update.event.in_extensions());
            out.put_u16(u16::from(update.reason));
            out.put_u16(update.priority);
            out.put_u16(update.idle_timeout);
            out.put_u16(update.hard_timeout);
            out.zeros(2);
            out.put(&[update.table_id, 0]);
            out.put_u64(update.cookie);
            let length = put_lists(update, out);
            let length = u16::try_from(length).unwrap_or(u16::MAX);
            crate::wire::patch_u16(out, begin + MATCH_LENGTH, length);
        }
    }
    patch_length(out, begin, 0);
}

fn put_standard(update: &Update, out: &mut Vec<u8>) {
    put_native(update, out, |update, out| {
        update.matching.put(out);
        openflow10::instructions_with_moves(&update.instructions).put_before_15(out);
    });
}

fn put_standard_15(update: &Update, out: &mut Vec<u8>) {
    put_native(update, out, |update, out| {
        openflow15::matching(&update.matching).put(out);
        out.put(&openflow15::to_15(&update.instructions));
    });
}

/// Writes an entry of OpenFlow 1.4 or later, with lists that `put_lists` writes.
fn put_native(
    update: &Update,
    out: &mut Vec<u8>,
    put_lists: impl FnOnce(&FullUpdate, &mut Vec<u8>),
) {
    let begin = out.len();
    out.zeros(2);
    match update {
        Update::Abbreviated(xid) => {
            out.put_u16(ABBREVIATED);
            out.put_u32(*xid);
        }
        Update::Full(update) => {
            out.put_u16(update.event as u16);
            out.put(&[update.table_id, update.reason]);
            out.put_u16(update.idle_timeout);
            out.put_u16(update.hard_timeout);
            out.put_u16(update.priority);
            out.zeros(4);
            out.put_u64(update.cookie);
            put_lists(update, out);
        }
    }
    patch_length(out, begin, 0);
}

/// Encodes the message that no more changes are reported for now.
pub fn encode_paused(version: u8) -> Vec<u8> {
    pause(version, NICIRA_PAUSED, ONF_PAUSED, PAUSED)
}

/// Encodes the message that changes are reported again.
pub fn encode_resumed(version: u8) -> Vec<u8> {
    pause(version, NICIRA_RESUMED, ONF_RESUMED, RESUMED)
}

fn pause(version: u8, nicira: u32, onf: u32, standard: u16) -> Vec<u8> {
    let form = Form::of_version(version);
    let mut out = match form {
        Form::Standard => head(version, 0),
        Form::Nicira | Form::Onf => {
            let mut out = start(0, kind::EXPERIMENTER);
            if let Some(slot) = out.first_mut() {
                *slot = version;
            }
            out
        }
    };
    match form {
        Form::Nicira => {
            out.put_u32(NX_VENDOR);
            out.put_u32(nicira);
        }
        Form::Onf => {
            out.put_u32(ONF_VENDOR);
            out.put_u32(onf);
        }
        Form::Standard => {
            out.put_u16(8);
            out.put_u16(standard);
            out.zeros(4);
        }
    }
    finish(out).unwrap_or_default()
}

/// Decodes a message of a report in OpenFlow 1.3 or later.
///
/// # Errors
/// The message is not a report, or its entries do not fit.
pub fn decode_updates(frame: &[u8]) -> Result<Vec<Update>, Refusal> {
    let header = Header::parse(frame).ok_or_else(|| malformed("no header"))?;
    let body = frame.get(HEADER_LEN..).unwrap_or_default();
    let (form, at) = match (header.version, u16_at(body, 0), u32_at(body, 12)) {
        (VERSION, Some(VENDOR_STATS), Some(ONF_STATS)) => (Form::Onf, 16),
        (_, Some(STANDARD_STATS), _) => (Form::Standard, 8),
        _ => return Err(malformed("not a report of a flow monitor")),
    };
    decode_entries(form, body.get(at..).unwrap_or_default())
}

/// Decodes the entries of a report, but not in Nicira's form.
pub(crate) fn decode_entries(form: Form, mut list: &[u8]) -> Result<Vec<Update>, Refusal> {
    let mut updates = Vec::new();
    while !list.is_empty() {
        let length = u16_at(list, 0).map_or(0, usize::from);
        let (entry, rest) = list
            .split_at_checked(length)
            .filter(|(entry, _)| entry.len() >= 8)
            .ok_or_else(|| malformed("an entry does not fit"))?;
        updates.push(pull(form, &mut Reader::new(entry))?);
        list = rest;
    }
    Ok(updates)
}

fn malformed(detail: &'static str) -> Refusal {
    Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail)
}

fn pull(form: Form, reader: &mut Reader<'_>) -> Result<Update, Refusal> {
    reader.skip(2)?;
    let number = reader.u16()?;
    let (number, abbreviated) = match form {
        Form::Standard => (number, ABBREVIATED),
        Form::Nicira | Form::Onf => (number + 1, EXTENSION_ABBREVIATED + 1),
    };
    if number == abbreviated {
        return Ok(Update::Abbreviated(reader.u32()?));
    }
    let event = match number {
        0 => Event::Initial,
        1 => Event::Added,
        2 => Event::Removed,
        3 => Event::Modified,
        other => {
            let detail = format!("event {other} of a flow monitor");
            return Err(Refusal::new(ErrorCode::NX_FM_BAD_EVENT, detail));
        }
    };
    let mut update = FullUpdate {
        event,
        reason: 0,
        table_id: 0,
        priority: 0,
        idle_timeout: 0,
        hard_timeout: 0,
        cookie: 0,
        matching: Match::any(),
        instructions: Instructions::default(),
    };
    if form == Form::Standard {
        [update.table_id, update.reason] = reader.array()?;
        update.idle_timeout = reader.u16()?;
        update.hard_timeout = reader.u16()?;
        update.priority = reader.u16()?;
        reader.skip(4)?;
    } else {
        [_, update.reason] = reader.array()?;
        update.priority = reader.u16()?;
        update.idle_timeout = reader.u16()?;
        update.hard_timeout = reader.u16()?;
        reader.skip(2)?;
        [update.table_id, _] = reader.array()?;
    }
    update.cookie = reader.u64()?;
    update.matching = Match::pull(reader)?;
    update.instructions = Instructions::from_bytes(reader.rest().to_vec())?;
    Ok(Update::Full(Box::new(update)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::action::ActionList;

    fn full(event: Event) -> Update {
        Update::Full(Box::new(FullUpdate {
            event,
            reason: 3,
            table_id: 7,
            priority: 9,
            idle_timeout: 10,
            hard_timeout: 11,
            cookie: 12,
            matching: Match::any().with_in_port(1),
            instructions: Instructions::apply(&ActionList::new().output(2, 0)),
        }))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn reports_decode_to_what_they_were_encoded_from() {
        let updates = vec![
            full(Event::Added),
            Update::Abbreviated(5),
            full(Event::Removed),
            full(Event::Modified),
        ];
        for version in [4, 5, 6] {
            let messages = updates_messages(version, 0, updates.clone());
            let found = messages.flat_map(|frame| decode_updates(&frame).unwrap());
            assert_eq!(found.collect::<Vec<_>>(), updates, "version {version}");
        }
    }

    #[test]
    fn long_reports_are_split_between_rules() {
        let updates = vec![full(Event::Added); 3_000];
        for version in [1, 4, 5] {
            let messages: Vec<_> = updates_messages(version, 3, updates.clone()).collect();
            let mores: Vec<u8> = messages.iter().map(|m| m[HEADER_LEN + 3]).collect();
            let (last, others) = mores.split_last().unwrap();
            assert!(others.iter().all(|more| *more == 1) && !others.is_empty());
            assert_eq!(*last, 0, "version {version}");
            let lengths = messages.iter().map(|m| usize::from(u16_at(m, 2).unwrap()));
            assert!(lengths.eq(messages.iter().map(Vec::len)));
        }
    }

    /// Reads the reports that Open vSwitch 3.1 sends.
    #[test]
    fn pauses_are_told_as_open_vswitch_tells_them() {
        for (version, paused, resumed) in [
            (
                1,
                "01040010000000000000232000000016",
                "01040010000000000000232000000017",
            ),
            (
                4,
                "04040010000000004f4e46000000074f",
                "04040010000000004f4e460000000750",
            ),
            (
                5,
                "051300180000000000100000000000000008000500000000",
                "051300180000000000100000000000000008000600000000",
            ),
        ] {
            assert_eq!(hex(&encode_paused(version)), paused);
            assert_eq!(hex(&encode_resumed(version)), resumed);
        }
    }

    #[test]
    fn reports_that_do_not_fit_are_refused() {
        let frame = updates_messages(4, 0, vec![full(Event::Added)])
            .next()
            .unwrap();
        for length in [0, 8, 26, frame.len() - 1] {
            assert!(decode_updates(&frame[..length]).is_err() || length == 8 + 16);
        }
    }
}
