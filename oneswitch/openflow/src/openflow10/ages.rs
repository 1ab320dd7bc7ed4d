//! The ages of a switch's rules, which Open vSwitch tells only in Nicira's
//! statistics of OpenFlow 1.0 (`nx_flow_stats`).

use crate::error::{ErrorCode, Refusal};
use crate::oxm::Match;
use crate::wire::{padded, Put, Reader};
use crate::NX_VENDOR;

use super::frames::message;
use super::matching::{pull_nxm, to_nxm};
use super::{kind, STATS_VENDOR};

/// `NXST_FLOW`.
const FLOW: u32 = 0;
/// `OFPP10_NONE`.
const NO_PORT: u16 = 0xffff;
/// `OFPSF_REPLY_MORE`.
const MORE: u16 = 1;

/// The age of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// The rule's table.
    pub table_id: u8,
    /// The rule's priority.
    pub priority: u16,
    /// The rule's match.
    pub matching: Match,
    /// Seconds since its last packet and 1, as on the wire; 0: unknown.
    pub idle: u16,
}

/// Asks for the ages of rules.
pub fn encode_ages_request(xid: u32, table_id: u8, matching: &Match) -> Vec<u8> {
    let nxm = to_nxm(matching);
    let mut body = Vec::new();
    body.put_u16(STATS_VENDOR);
    body.put_u16(0);
    body.put_u32(NX_VENDOR);
    body.put_u32(FLOW);
    body.zeros(4);
    body.put_u16(NO_PORT);
    body.put_u16(u16::try_from(nxm.len()).unwrap_or(u16::MAX));
    body.put(&[table_id, 0, 0, 0]);
    body.put(&nxm);
    body.zeros(padded(nxm.len()) - nxm.len());
    message(kind::STATS_REQUEST, xid, &body)
}

/// Decodes a message of the reply, and tells whether others follow. Rules whose
/// match cannot be read are left out.
///
/// # Errors
/// It is something else.
pub fn decode_ages(frame: &[u8]) -> Result<(Vec<Age>, bool), Refusal> {
    if frame.get(1) != Some(&kind::STATS_REPLY) {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_TYPE,
            format!("message of type {:?}", frame.get(1)),
        ));
    }
    let mut reader = Reader::new(frame);
    reader.skip(10)?;
    let flags = reader.u16()?;
    reader.skip(12)?;
    let mut ages = Vec::new();
    while !reader.is_empty() {
        let length = usize::from(reader.u16()?);
        let mut entry = Reader::new(reader.bytes(length.saturating_sub(2))?);
        ages.extend(age(&mut entry).ok());
    }
    Ok((ages, flags & MORE != 0))
}

fn age(entry: &mut Reader<'_>) -> Result<Age, Refusal> {
    let [table_id, _] = entry.array()?;
    entry.skip(8)?;
    let priority = entry.u16()?;
    entry.skip(4)?;
    let length = entry.u16()?;
    let idle = entry.u16()?;
    entry.skip(2 + 24)?;
    Ok(Age {
        table_id,
        priority,
        matching: pull_nxm(entry, length)?.matching,
        idle,
    })
}
