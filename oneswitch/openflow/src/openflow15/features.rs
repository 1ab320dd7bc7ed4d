//! Features of tables: lists of instructions and fields have the numbers of their
//! version (lib/ofp-table.c).

use crate::instruction::METER;
use crate::message::{decode, Message};
use crate::multipart::{multipart_kind, MultipartReply};
use crate::openflow14::replies::multipart;
use crate::oxm::OxmField;
use crate::wire::{padded, patch_length, u16_at, Put, Reader};

use super::fields::{name_of, preferred, put_header};
use super::VERSION;

/// Bytes of `ofp_table_features` before the properties.
const HEADER: usize = 64;

/// Kinds of properties.
mod property {
    pub const INSTRUCTIONS: u16 = 0;
    pub const INSTRUCTIONS_MISS: u16 = 1;
    pub const MATCH: u16 = 8;
    pub const APPLY_SETFIELD_MISS: u16 = 15;
}

/// Translates a reply of one or more messages; `None`: it is another reply. Messages
/// in OpenFlow 1.5 have room for other numbers of tables.
pub fn encode_table_features(frames: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut entries = Vec::new();
    let mut xid = 0;
    for frame in frames {
        let Ok((header, Message::MultipartReply(reply))) = decode(frame) else {
            return None;
        };
        let MultipartReply::TableFeatures(list) = reply.body else {
            return None;
        };
        xid = header.xid;
        entries.extend(tables(&list));
    }
    let mut out = multipart(
        xid,
        multipart_kind::TABLE_FEATURES,
        false,
        entries.into_iter(),
    );
    out.iter_mut()
        .filter_map(|frame| frame.first_mut())
        .for_each(|version| *version = VERSION);
    Some(out)
}

/// Translates the entries of a reply.
fn tables(mut list: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while !list.is_empty() {
        let length = u16_at(list, 0).map_or(0, usize::from).max(1);
        let (table, rest) = list.split_at_checked(length).unwrap_or((list, &[]));
        out.push(self::table(table));
        list = rest;
    }
    out
}

fn table(table: &[u8]) -> Vec<u8> {
    let (head, mut properties) = table.split_at(HEADER.min(table.len()));
    let mut out = head.to_vec();
    while let Some(length) = u16_at(properties, 2).map(usize::from).filter(|n| *n >= 4) {
        let kind = u16_at(properties, 0).unwrap_or_default();
        let content = properties.get(4..length).unwrap_or_default();
        let start = out.len();
        out.put_u16(kind);
        out.zeros(2);
        match kind {
            property::INSTRUCTIONS | property::INSTRUCTIONS_MISS => {
                put_instructions(&mut out, content)
            }
            property::MATCH..=property::APPLY_SETFIELD_MISS => put_fields(&mut out, content),
            _ => out.put(content),
        }
        patch_length(&mut out, start, 2);
        let length = out.len() - start;
        out.zeros(padded(length) - length);
        properties = properties
            .get(padded(4 + content.len())..)
            .unwrap_or_default();
    }
    patch_length(&mut out, 0, 0);
    out
}

/// Appends the instructions without the one that OpenFlow 1.5 has as an action.
fn put_instructions(out: &mut Vec<u8>, mut list: &[u8]) {
    while let Some((instruction, rest)) = list.split_first_chunk::<4>() {
        if u16_at(instruction, 0) != Some(METER) {
            out.put(instruction);
        }
        list = rest;
    }
}

/// Appends headers of fields.
fn put_fields(out: &mut Vec<u8>, list: &[u8]) {
    let mut reader = Reader::new(list);
    while let Ok(header) = reader.array::<4>() {
        let [_, _, _, length] = header;
        // An empty value takes its place.
        let mut whole = header.to_vec();
        if header.starts_with(&[0xff, 0xff]) {
            whole.put(&reader.array::<4>().unwrap_or_default());
        }
        whole.zeros(length.into());
        let Ok(field) = OxmField::pull(&mut Reader::new(&whole)) else {
            continue;
        };
        let width = field.value.len() + field.mask.map_or(0, <[u8]>::len);
        put_header(out, preferred(name_of(&field)), field.has_mask, width);
    }
}
