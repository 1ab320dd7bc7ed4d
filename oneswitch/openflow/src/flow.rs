//! Flow-mods and flow-removed messages (OpenFlow 1.3.5, sections 7.3.4.1,
//! 7.4.2; lib/ofp-flow.c).

use crate::action::Strictness;
use crate::error::{ErrorCode, Refusal};
use crate::instruction::Instructions;
use crate::oxm::Match;
use crate::port::is_representable;
use crate::wire::{Put, Reader};
use crate::{group_no, port_no};

/// A packet that is not buffered at the switch (`OFP_NO_BUFFER`).
pub const NO_BUFFER: u32 = 0xffff_ffff;
/// Every table, in deletions and requests (`OFPTT_ALL`).
pub const ALL_TABLES: u8 = 0xff;

/// `ofp_flow_mod_command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FlowModCommand {
    Add = 0,
    Modify = 1,
    ModifyStrict = 2,
    Delete = 3,
    DeleteStrict = 4,
}

impl FlowModCommand {
    pub(crate) fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Add,
            1 => Self::Modify,
            2 => Self::ModifyStrict,
            3 => Self::Delete,
            4 => Self::DeleteStrict,
            _ => return None,
        })
    }

    /// Tells whether the command deletes rules.
    pub fn is_delete(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteStrict)
    }
}

/// `ofp_flow_mod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// The new rule's cookie; for the other commands the bits to match.
    pub cookie: u64,
    /// Bits of the cookie that must match; not used by `Add`.
    pub cookie_mask: u64,
    /// Table, or [`ALL_TABLES`] to delete.
    pub table_id: u8,
    /// The command.
    pub command: FlowModCommand,
    /// Idle timeout in seconds; 0: none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0: none.
    pub hard_timeout: u16,
    /// The priority; the highest wins.
    pub priority: u16,
    /// A packet to send through the rule, or [`NO_BUFFER`].
    pub buffer_id: u32,
    /// Deletions: only rules that output there, or `ANY`.
    pub out_port: u32,
    /// Deletions: only rules that use the group, or `ANY`.
    pub out_group: u32,
    /// Bits of the constants below.
    pub flags: u16,
    /// OpenFlow 1.4: rules of lower importance make way for others. OpenFlow 1.3
    /// has padding there, whose content means nothing.
    pub importance: u16,
    /// The match.
    pub matching: Match,
    /// The instructions.
    pub instructions: Instructions,
}

impl FlowMod {
    /// Send a flow-removed message when the rule is removed.
    pub const SEND_FLOW_REM: u16 = 1 << 0;
    /// Refuse a rule that overlaps another of its priority.
    pub const CHECK_OVERLAP: u16 = 1 << 1;
    /// Reset the counters.
    pub const RESET_COUNTS: u16 = 1 << 2;
    /// Do not count packets.
    pub const NO_PKT_COUNTS: u16 = 1 << 3;
    /// Do not count bytes.
    pub const NO_BYT_COUNTS: u16 = 1 << 4;
    /// All of these flags.
    pub const ALL_FLAGS: u16 = 0x1f;

    /// Builds a message for a rule without cookie, timeouts, flags and instructions, or a deletion without filters.
    pub fn new(command: FlowModCommand, table_id: u8, priority: u16, matching: Match) -> Self {
        Self {
            cookie: 0,
            cookie_mask: 0,
            table_id,
            command,
            idle_timeout: 0,
            hard_timeout: 0,
            priority,
            buffer_id: NO_BUFFER,
            out_port: port_no::ANY,
            out_group: group_no::ANY,
            flags: 0,
            importance: 0,
            matching,
            instructions: Instructions::default(),
        }
    }

    pub(crate) fn decode(body: &[u8], strictness: Strictness) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let cookie = reader.u64()?;
        let cookie_mask = reader.u64()?;
        let [table_id, command] = reader.array()?;
        let idle_timeout = reader.u16()?;
        let hard_timeout = reader.u16()?;
        let priority = reader.u16()?;
        let buffer_id = reader.u32()?;
        let out_port = reader.u32()?;
        let out_group = reader.u32()?;
        let flags = reader.u16()?;
        let importance = reader.u16()?;
        // From here on in the order of ofputil_decode_flow_mod().
        if reader.len() % 8 != 0 {
            return Err(Refusal::new(
                ErrorCode::BAD_REQUEST_BAD_LEN,
                "flow-mod is not padded to 8 bytes",
            ));
        }
        let (matching, key) = Match::pull_checked(&mut reader)?;
        let known = FlowModCommand::from_wire(command);
        if table_id == ALL_TABLES && !known.is_some_and(FlowModCommand::is_delete) {
            return Err(Refusal::new(
                ErrorCode::FLOW_MOD_FAILED_BAD_TABLE_ID,
                "table 0xff (all) is valid for deletions only",
            ));
        }
        if !is_representable(out_port) {
            return Err(Refusal::new(
                ErrorCode::BAD_ACTION_BAD_OUT_PORT,
                format!("out_port {out_port:#x}"),
            ));
        }
        if key.mismatches_connection() {
            return Err(Refusal::new(
                ErrorCode::BAD_ACTION_MATCH_INCONSISTENT,
                "match on connection addresses of a different IP version",
            ));
        }
        let command = known.ok_or_else(|| {
            Refusal::new(
                ErrorCode::FLOW_MOD_FAILED_BAD_COMMAND,
                format!("flow-mod command {command}"),
            )
        })?;
        let instructions = Instructions::decode(reader.rest(), strictness)?;
        if flags & !Self::ALL_FLAGS != 0 {
            return Err(Refusal::new(
                ErrorCode::FLOW_MOD_FAILED_BAD_FLAGS,
                format!("flow-mod flags {flags:#x}"),
            ));
        }
        Ok(Self {
            cookie,
            cookie_mask,
            table_id,
            command,
            idle_timeout,
            hard_timeout,
            priority,
            buffer_id,
            out_port,
            out_group,
            flags,
            importance,
            matching,
            instructions,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.reserve(40 + self.matching.wire_len() + self.instructions.as_bytes().len());
        out.put_u64(self.cookie);
        out.put_u64(self.cookie_mask);
        out.put(&[self.table_id, self.command as u8]);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        out.put_u16(self.priority);
        out.put_u32(self.buffer_id);
        out.put_u32(self.out_port);
        out.put_u32(self.out_group);
        out.put_u16(self.flags);
        out.put_u16(self.importance);
        self.matching.put(out);
        out.put(self.instructions.as_bytes());
    }
}

/// `ofp_flow_removed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// The rule's cookie.
    pub cookie: u64,
    /// The rule's priority.
    pub priority: u16,
    /// One of the constants.
    pub reason: u8,
    /// The rule's table.
    pub table_id: u8,
    /// Lifetime in seconds.
    pub duration_sec: u32,
    /// Nanoseconds beyond them.
    pub duration_nsec: u32,
    /// As in the flow-mod.
    pub idle_timeout: u16,
    /// As in the flow-mod.
    pub hard_timeout: u16,
    /// Packets that matched; all ones: not counted.
    pub packet_count: u64,
    /// Their bytes; all ones: not counted.
    pub byte_count: u64,
    /// The rule's match.
    pub matching: Match,
}

impl FlowRemoved {
    /// `OFPRR_IDLE_TIMEOUT`.
    pub const IDLE_TIMEOUT: u8 = 0;
    /// `OFPRR_HARD_TIMEOUT`.
    pub const HARD_TIMEOUT: u8 = 1;
    /// `OFPRR_DELETE`.
    pub const DELETE: u8 = 2;
    /// `OFPRR_GROUP_DELETE`.
    pub const GROUP_DELETE: u8 = 3;

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        Ok(Self {
            cookie: reader.u64()?,
            priority: reader.u16()?,
            reason: reader.u8()?,
            table_id: reader.u8()?,
            duration_sec: reader.u32()?,
            duration_nsec: reader.u32()?,
            idle_timeout: reader.u16()?,
            hard_timeout: reader.u16()?,
            packet_count: reader.u64()?,
            byte_count: reader.u64()?,
            matching: Match::pull(&mut reader)?,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.cookie);
        out.put_u16(self.priority);
        out.put(&[self.reason, self.table_id]);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        self.matching.put(out);
    }
}
