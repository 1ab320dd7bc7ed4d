//! Instructions (OpenFlow 1.3.5, section 7.2.4).

use crate::action::{flatten, ActionItem, ActionList, Actions, Strictness};
use crate::action_check::check;
use crate::error::{ErrorCode, Refusal};
use crate::wire::{patch_length, u16_at, u32_at, Put};
use std::sync::Arc;

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
pub(crate) const WRITE_ACTIONS: u16 = 3;
pub(crate) const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
pub(crate) const METER: u16 = 6;
const EXPERIMENTER: u16 = 0xffff;

/// Bytes of an instruction's header, with the padding before actions.
pub(crate) const HEADER: usize = 8;

/// One instruction.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Instruction<'a> {
    GotoTable(u8),
    WriteMetadata {
        metadata: u64,
        mask: u64,
    },
    WriteActions(Actions<'a>),
    ApplyActions(Actions<'a>),
    ClearActions,
    Meter(u32),
    /// Raw; Open vSwitch supports none, so only a switch's reply can contain
    /// one.
    Experimenter(&'a [u8]),
}

/// Raw instructions of a known structure, which clones share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions(Arc<[u8]>);

impl Instructions {
    /// Creates an empty list: drop.
    pub fn none() -> Self {
        Self::default()
    }

    /// Checks instructions as Open vSwitch checks those of a request.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Refusal> {
        Self::checked(&bytes, Strictness::Request)?;
        Ok(Self(bytes.into()))
    }

    /// Creates one apply-actions instruction; none for an empty list.
    pub fn apply(actions: &ActionList) -> Self {
        if actions.as_bytes().is_empty() {
            return Self::default();
        }
        let mut bytes = Vec::with_capacity(HEADER + actions.as_bytes().len());
        bytes.put_u16(APPLY_ACTIONS);
        bytes.zeros(6);
        bytes.put(actions.as_bytes());
        patch_length(&mut bytes, 0, 2);
        Self(bytes.into())
    }

    pub(crate) fn decode(bytes: &[u8], strictness: Strictness) -> Result<Self, Refusal> {
        Self::checked(bytes, strictness)?;
        let decoded = Self(bytes.into());
        Ok(match strictness {
            Strictness::Reply => decoded.gathered(),
            _ => decoded,
        })
    }

    /// Wraps instructions that were checked before.
    pub(crate) fn trusted(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// Performs the checks of `ofpacts_pull_openflow_instructions`, in its
    /// order: all headers, then the actions to apply, then those to write.
    fn checked(bytes: &[u8], strictness: Strictness) -> Result<(), Refusal> {
        const BAD_LEN: ErrorCode = ErrorCode::BAD_INSTRUCTION_BAD_LEN;
        if bytes.len() % 8 != 0 {
            return Err(Refusal::new(BAD_LEN, "instructions not padded to 8 bytes"));
        }
        let mut seen = 0u8;
        let mut rest = bytes;
        while !rest.is_empty() {
            let kind = u16_at(rest, 0).unwrap_or_default();
            let length = usize::from(u16_at(rest, 2).unwrap_or_default());
            let bad_length =
                || Refusal::new(BAD_LEN, format!("instruction {kind} of length {length}"));
            if length % 8 != 0 || length < HEADER {
                return Err(bad_length());
            }
            let (_, after) = rest.split_at_checked(length).ok_or_else(bad_length)?;
            let fits = match kind {
                GOTO_TABLE | CLEAR_ACTIONS | METER => length == 8,
                WRITE_METADATA => length == 24,
                WRITE_ACTIONS | APPLY_ACTIONS => true,
                _ if strictness == Strictness::Reply => true,
                EXPERIMENTER => {
                    return Err(Refusal::new(
                        ErrorCode::BAD_INSTRUCTION_BAD_EXPERIMENTER,
                        "experimenter instruction",
                    ))
                }
                _ => {
                    return Err(Refusal::new(
                        ErrorCode::BAD_INSTRUCTION_UNKNOWN_INST,
                        format!("instruction {kind}"),
                    ))
                }
            };
            if !fits {
                return Err(bad_length());
            }
            if kind == METER && strictness == Strictness::Request15 {
                let detail = "OpenFlow 1.5 meters packets by an action";
                return Err(Refusal::new(
                    ErrorCode::BAD_INSTRUCTION_UNKNOWN_INST,
                    detail,
                ));
            }
            let is_repeatable = matches!(kind, APPLY_ACTIONS | METER);
            if kind < 8 && !(is_repeatable && strictness == Strictness::Reply) {
                let bit = 1 << kind;
                if seen & bit != 0 {
                    return Err(Refusal::new(
                        ErrorCode::ONF_DUP_INST,
                        format!("second instruction {kind}"),
                    ));
                }
                seen |= bit;
            }
            rest = after;
        }
        for wanted in [APPLY_ACTIONS, WRITE_ACTIONS] {
            for (kind, _, body) in raw_instructions(bytes) {
                if kind == wanted {
                    check(body, strictness)?;
                }
            }
        }
        Ok(())
    }

    /// The instructions as on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, to patch numbers in place; see
    /// [`ActionItem::offset`].
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.0)
    }

    /// Tells whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the instructions in wire order. Offsets of actions count
    /// from the first byte of the instructions.
    pub fn iter(&self) -> impl Iterator<Item = Instruction<'_>> {
        raw_instructions(&self.0).map(|(kind, offset, body)| {
            let raw = || self.0.get(offset - HEADER..).unwrap_or_default();
            let number = |at| u32_at(raw(), at).unwrap_or_default();
            let long = |at| u64::from(number(at)) << 32 | u64::from(number(at + 4));
            match kind {
                GOTO_TABLE => Instruction::GotoTable(raw().get(4).copied().unwrap_or_default()),
                WRITE_METADATA => Instruction::WriteMetadata {
                    metadata: long(8),
                    mask: long(16),
                },
                WRITE_ACTIONS => Instruction::WriteActions(Actions::trusted(body, offset)),
                APPLY_ACTIONS => Instruction::ApplyActions(Actions::trusted(body, offset)),
                CLEAR_ACTIONS => Instruction::ClearActions,
                METER => Instruction::Meter(number(4)),
                _ => {
                    Instruction::Experimenter(raw().get(..HEADER + body.len()).unwrap_or_default())
                }
            }
        })
    }

    /// Calls `visit` for every applied or written action, including nested
    /// ones.
    pub fn for_each_action<'a>(&'a self, visit: &mut dyn FnMut(&ActionItem<'a>)) {
        for instruction in self.iter() {
            if let Instruction::ApplyActions(list) | Instruction::WriteActions(list) = instruction {
                flatten(list, visit);
            }
        }
    }
}

/// Iterates over kind, offset of the body, and body of each instruction.
pub(crate) fn raw_instructions(bytes: &[u8]) -> impl Iterator<Item = (u16, usize, &[u8])> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(offset..)?;
        let kind = u16_at(rest, 0)?;
        let length = usize::from(u16_at(rest, 2)?).max(HEADER);
        let body = rest.get(HEADER..length)?;
        let at = offset + HEADER;
        offset += length;
        Some((kind, at, body))
    })
}
