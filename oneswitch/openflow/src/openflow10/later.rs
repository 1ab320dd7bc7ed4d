//! Nicira's flow-mods over versions after OpenFlow 1.0: as there they match in NXM
//! and change cookies, but with the instructions and the flags of the version
//! (`ofputil_decode_flow_mod`).

use crate::action::Strictness;
use crate::error::{ErrorCode, Refusal};
use crate::flow::{FlowMod, FlowModCommand};
use crate::header::{kind, Header, HEADER_LEN};
use crate::instruction::Instructions;
use crate::openflow15;
use crate::wire::{u32_at, Reader};
use crate::NX_VENDOR;

use super::nicira::{pull_flow_mod, subtype};
use super::Request;

/// Bytes of an experimenter message before its content, and of the smallest flow-mod.
const HEAD: usize = HEADER_LEN + 8;
const SMALLEST: usize = HEAD + 32;

/// Decodes Nicira's flow-mod of a version after 1.0; `None`: another message, or one
/// of a wrong length.
pub fn decode_later_flow_mod(frame: &[u8]) -> Option<Result<Request, Refusal>> {
    let header = Header::parse(frame)?;
    let numbers = (header.kind, u32_at(frame, 8), u32_at(frame, 12));
    let wanted = (kind::EXPERIMENTER, Some(NX_VENDOR), Some(subtype::FLOW_MOD));
    (numbers == wanted).then(|| match frame.len() >= SMALLEST && frame.len() % 8 == 0 {
        true => decode(header.version, frame.get(HEAD..).unwrap_or_default()),
        false => {
            let detail = format!("Nicira's flow-mod has {} bytes", frame.len());
            Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail))
        }
    })
}

fn decode(version: u8, body: &[u8]) -> Result<Request, Refusal> {
    let refuse = |error, detail: String| Err(Refusal::new(error, detail));
    let message = pull_flow_mod(&mut Reader::new(body))?;
    let [table_id, number] = message.command.to_be_bytes();
    let command = FlowModCommand::from_wire(number);
    let is_add = command == Some(FlowModCommand::Add);
    if is_add && message.cookie_mask != 0 {
        let detail = "a rule that is added matches on a cookie".into();
        return refuse(ErrorCode::NX_NXM_INVALID, detail);
    }
    let Some(command) = command else {
        let detail = format!("flow-mod command {number}");
        return refuse(ErrorCode::FLOW_MOD_FAILED_BAD_COMMAND, detail);
    };
    let instructions = match version {
        openflow15::VERSION => {
            let list = Instructions::decode(message.actions, Strictness::Request15)?;
            openflow15::instructions_to_13(&list)?
        }
        _ => Instructions::decode(message.actions, Strictness::Request)?,
    };
    if message.flags & !FlowMod::ALL_FLAGS != 0 {
        let detail = format!("flow-mod flags {:#x}", message.flags);
        return refuse(ErrorCode::FLOW_MOD_FAILED_BAD_FLAGS, detail);
    }
    Ok(message.request(command, table_id, instructions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    /// An addition to table 3 with this cookie and these flags, and instructions that
    /// write a register.
    fn frame(version: u8, cookie: u8, flags: u8) -> Vec<u8> {
        let mut out = vec![version, kind::EXPERIMENTER, 0, 56, 0, 0, 0, 1];
        out.extend([0, 0, 0x23, 0x20, 0, 0, 0, 13]);
        out.extend([0, 0, 0, 0, 0, 0, 0, cookie, 3, 0, 0, 0, 0, 0, 0, 9]);
        out.extend([
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, flags, 0, 0, 0, 0, 0, 0, 0, 0,
        ]);
        out.extend([0, 1, 0, 8, 4, 0, 0, 0]);
        out
    }

    #[test]
    fn the_command_names_the_table_and_instructions_follow_the_match() {
        for version in 4..=6 {
            let decoded = decode_later_flow_mod(&frame(version, 7, 4));
            let Some(Ok(Request::Message(Message::FlowMod(added)))) = decoded else {
                panic!("{decoded:?}");
            };
            assert_eq!((added.table_id, added.cookie, added.flags), (3, 7, 4));
            assert_eq!(added.instructions.as_bytes(), [0, 1, 0, 8, 4, 0, 0, 0]);
        }
    }

    #[test]
    fn other_messages_and_malformed_ones_are_told_apart() {
        let whole = frame(4, 0, 0x20);
        let refused = decode_later_flow_mod(&whole).unwrap().unwrap_err();
        assert_eq!(refused.error, ErrorCode::FLOW_MOD_FAILED_BAD_FLAGS);
        let refused = decode_later_flow_mod(&whole[..44]).unwrap().unwrap_err();
        assert_eq!(refused.error, ErrorCode::BAD_REQUEST_BAD_LEN);
        assert_eq!(decode_later_flow_mod(&[4, 10, 0, 8, 0, 0, 0, 1]), None);
    }
}
