//! Flow-mods of OpenFlow 1.0, in its own form and in Nicira's.

use crate::action::ActionList;
use crate::error::{ErrorCode, Refusal};
use crate::flow::{FlowMod, FlowModCommand, ALL_TABLES};
use crate::group::group_no;
use crate::instruction::Instructions;
use crate::message::Message;
use crate::oxm::Match;
use crate::port::from_openflow10;

use super::{actions, Formats, Modify, Request};

/// `OFPFF_EMERG`.
const EMERGENCY: u16 = 1 << 2;

/// The content of a flow-mod in either form.
pub(super) struct FlowMod10<'a> {
    pub(super) matching: Match,
    pub(super) cookie: u64,
    pub(super) cookie_mask: u64,
    pub(super) new_cookie: u64,
    pub(super) command: u16,
    pub(super) idle_timeout: u16,
    pub(super) hard_timeout: u16,
    pub(super) priority: u16,
    pub(super) buffer_id: u32,
    pub(super) out_port: u16,
    pub(super) flags: u16,
    /// In later versions instructions.
    pub(super) actions: &'a [u8],
}

fn refuse<T>(error: ErrorCode, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(error, detail.into()))
}

/// Does what `ofputil_decode_flow_mod` does for OpenFlow 1.0.
pub(super) fn flow_mod(message: FlowMod10<'_>, formats: &Formats) -> Result<Request, Refusal> {
    let [high, low] = message.command.to_be_bytes();
    let (number, table_id) = match formats.table_id {
        true => (u16::from(low), high),
        false => (message.command, ALL_TABLES),
    };
    let command = u8::try_from(number)
        .ok()
        .and_then(FlowModCommand::from_wire);
    let Some(command) = command else {
        return refuse(
            ErrorCode::FLOW_MOD_FAILED_BAD_COMMAND,
            format!("flow-mod command {number}"),
        );
    };
    let list = actions::to_13(message.actions)?;
    let instructions = Instructions::apply(&ActionList::from_bytes(list)?);
    let known = FlowMod::SEND_FLOW_REM | FlowMod::CHECK_OVERLAP | EMERGENCY;
    if message.flags & !known != 0 {
        return refuse(
            ErrorCode::FLOW_MOD_FAILED_BAD_FLAGS,
            format!("flow-mod flags {:#x}", message.flags),
        );
    }
    if message.flags & EMERGENCY != 0 {
        // Open vSwitch has no emergency flow table either.
        return refuse(
            ErrorCode::FLOW_MOD_FAILED_TABLE_FULL,
            "a rule for emergencies",
        );
    }
    let is_add = command == FlowModCommand::Add;
    let message = FlowMod10 {
        flags: match is_add {
            // In OpenFlow 1.0, adding a rule always resets its counters.
            true => message.flags | FlowMod::RESET_COUNTS,
            false => message.flags,
        },
        ..message
    };
    Ok(message.request(command, table_id, instructions))
}

impl FlowMod10<'_> {
    /// Returns the request of later versions that does the same.
    pub(super) fn request(
        self,
        command: FlowModCommand,
        table_id: u8,
        instructions: Instructions,
    ) -> Request {
        let is_add = command == FlowModCommand::Add;
        let (cookie, cookie_mask) = match is_add {
            true => (self.new_cookie, 0),
            false => (self.cookie, self.cookie_mask),
        };
        let flow_mod = FlowMod {
            cookie,
            cookie_mask,
            // Open vSwitch adds rules without a table to table 0.
            table_id: match table_id {
                ALL_TABLES if is_add => 0,
                table => table,
            },
            command,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            priority: self.priority,
            buffer_id: self.buffer_id,
            out_port: from_openflow10(self.out_port),
            out_group: group_no::ANY,
            flags: self.flags,
            importance: 0,
            matching: self.matching,
            instructions,
        };
        match command {
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => Request::Modify(Modify {
                flow_mod,
                new_cookie: (self.new_cookie != u64::MAX).then_some(self.new_cookie),
            }),
            _ => Request::Message(Message::FlowMod(flow_mod)),
        }
    }
}
