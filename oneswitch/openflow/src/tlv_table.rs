//! Nicira's messages about tunnels' options: which of them are the fields
//! `tun_metadataN` (include/openflow/nicira-ext.h; lib/ofp-match.c).

use crate::error::{ErrorCode, Refusal};
use crate::message::Message;
use crate::nicira::subtype;
use crate::session::Experimenter;
use crate::wire::{Put, Reader};
use crate::NX_VENDOR;

/// Fields that can be mapped (`TUN_METADATA_NUM_OPTS`).
pub const FIELDS: u16 = 64;
/// Bytes of all options together (`TUN_METADATA_TOT_OPT_SIZE`).
pub const SPACE: u32 = 256;
/// The longest option (`TLV_MAX_OPT_SIZE`).
const LONGEST: u8 = 124;

/// `nx_tlv_map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvMapping {
    /// The option's class.
    pub class: u16,
    /// The option's type.
    pub kind: u8,
    /// Bytes of its value.
    pub length: u8,
    /// N of `tun_metadataN`.
    pub index: u16,
}

/// `nx_tlv_table_mod_command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TlvCommand {
    Add,
    Delete,
    Clear,
}

/// `nx_tlv_table_mod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlvTableMod {
    /// The change.
    pub command: TlvCommand,
    /// Its mappings; a deletion needs their indices only.
    pub mappings: Vec<TlvMapping>,
}

impl TlvTableMod {
    /// Decodes a body whose length is right.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let command = match reader.u16()? {
            0 => TlvCommand::Add,
            1 => TlvCommand::Delete,
            2 => TlvCommand::Clear,
            other => {
                let detail = format!("command {other} for a table of options");
                return Err(Refusal::new(ErrorCode::NX_TLV_BAD_COMMAND, detail));
            }
        };
        reader.skip(6)?;
        let mappings = mappings(&mut reader)?;
        Ok(Self { command, mappings })
    }

    /// Decodes a message; `None`: it is another one.
    pub fn of(message: &Experimenter) -> Option<Self> {
        let numbers = (message.vendor, message.subtype);
        let is_change = numbers == (NX_VENDOR, subtype::TLV_TABLE_MOD);
        is_change.then(|| Self::decode(&message.body).ok())?
    }

    /// Returns the message, for any version.
    pub fn message(&self) -> Message {
        let command: u16 = match self.command {
            TlvCommand::Add => 0,
            TlvCommand::Delete => 1,
            TlvCommand::Clear => 2,
        };
        let mut body = Vec::new();
        body.put_u16(command);
        body.zeros(6);
        put_mappings(&mut body, &self.mappings);
        nicira(subtype::TLV_TABLE_MOD, body)
    }
}

/// Returns a request for the mappings.
pub fn request() -> Message {
    nicira(subtype::TLV_TABLE_REQUEST, Vec::new())
}

/// Returns the reply to such a request.
pub fn reply(mappings: &[TlvMapping]) -> Message {
    let mut body = Vec::new();
    body.put_u32(SPACE);
    body.put_u16(FIELDS);
    body.zeros(10);
    put_mappings(&mut body, mappings);
    nicira(subtype::TLV_TABLE_REPLY, body)
}

/// Returns the mappings of a switch's reply; `None`: it is another message.
pub fn reported(message: &Experimenter) -> Option<Vec<TlvMapping>> {
    if (message.vendor, message.subtype) != (NX_VENDOR, subtype::TLV_TABLE_REPLY) {
        return None;
    }
    let mut reader = Reader::new(message.body.get(16..)?);
    mappings(&mut reader).ok()
}

fn mappings(reader: &mut Reader<'_>) -> Result<Vec<TlvMapping>, Refusal> {
    let mut mappings = Vec::new();
    while !reader.is_empty() {
        let class = reader.u16()?;
        let [kind, length] = reader.array()?;
        let index = reader.u16()?;
        reader.skip(2)?;
        if length % 4 != 0 || length > LONGEST {
            let detail = format!("tunnel option of {length} bytes");
            return Err(Refusal::new(ErrorCode::NX_TLV_BAD_OPT_LEN, detail));
        }
        if index >= FIELDS {
            let detail = format!("field tun_metadata{index}");
            return Err(Refusal::new(ErrorCode::NX_TLV_BAD_FIELD_IDX, detail));
        }
        mappings.push(TlvMapping {
            class,
            kind,
            length,
            index,
        });
    }
    Ok(mappings)
}

fn put_mappings(out: &mut Vec<u8>, mappings: &[TlvMapping]) {
    for mapping in mappings {
        out.put_u16(mapping.class);
        out.put(&[mapping.kind, mapping.length]);
        out.put_u16(mapping.index);
        out.zeros(2);
    }
}

fn nicira(subtype: u32, body: Vec<u8>) -> Message {
    Message::Experimenter(Experimenter {
        vendor: NX_VENDOR,
        subtype,
        body: body.into(),
    })
}
