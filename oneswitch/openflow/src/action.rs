//! Actions (OpenFlow 1.3.5, section 7.2.5; lib/ofp-actions.c).

use crate::oxm::{put_vlan_vid, OxmField};
use crate::wire::{padded, patch_length, patch_u16, u16_at, u32_at, Put, Reader};
use crate::NX_VENDOR;

/// `ofp_action_type`.
pub mod action_kind {
    #![allow(missing_docs)]
    pub const OUTPUT: u16 = 0;
    pub const COPY_TTL_OUT: u16 = 11;
    pub const COPY_TTL_IN: u16 = 12;
    pub const SET_MPLS_TTL: u16 = 15;
    pub const DEC_MPLS_TTL: u16 = 16;
    pub const PUSH_VLAN: u16 = 17;
    pub const POP_VLAN: u16 = 18;
    pub const PUSH_MPLS: u16 = 19;
    pub const POP_MPLS: u16 = 20;
    pub const SET_QUEUE: u16 = 21;
    pub const GROUP: u16 = 22;
    pub const SET_NW_TTL: u16 = 23;
    pub const DEC_NW_TTL: u16 = 24;
    pub const SET_FIELD: u16 = 25;
    pub const PUSH_PBB: u16 = 26;
    pub const POP_PBB: u16 = 27;
    /// OpenFlow 1.5.
    pub const COPY_FIELD: u16 = 28;
    /// OpenFlow 1.5; an instruction before.
    pub const METER: u16 = 29;
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// Subtypes of Nicira's actions that a caller may want to name
/// (`enum ofp_raw_action_type`).
pub mod nicira_action {
    #![allow(missing_docs)]
    pub const RESUBMIT: u16 = 1;
    pub const REG_MOVE: u16 = 6;
    pub const REG_LOAD: u16 = 7;
    pub const BUNDLE: u16 = 12;
    pub const BUNDLE_LOAD: u16 = 13;
    pub const RESUBMIT_TABLE: u16 = 14;
    pub const OUTPUT_REG: u16 = 15;
    pub const LEARN: u16 = 16;
    pub const CONTROLLER: u16 = 20;
    pub const OUTPUT_REG2: u16 = 32;
    pub const REG_LOAD2: u16 = 33;
    pub const CONJUNCTION: u16 = 34;
    pub const CT: u16 = 35;
    pub const NAT: u16 = 36;
    pub const CONTROLLER2: u16 = 37;
    pub const OUTPUT_TRUNC: u16 = 39;
    pub const CLONE: u16 = 42;
    pub const RESUBMIT_TABLE_CT: u16 = 44;
    pub const LEARN2: u16 = 45;
}

/// Offset of the nested actions in an `nx_action_conntrack`.
const CT_HEADER: usize = 24;
/// Offset of the nested actions in a clone, an `ext_action_header`.
const CLONE_HEADER: usize = 16;

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Action<'a> {
    Output {
        port: u32,
        max_len: u16,
    },
    Group(u32),
    SetQueue(u32),
    PushVlan(u16),
    PopVlan,
    PushMpls(u16),
    PopMpls(u16),
    PushPbb(u16),
    PopPbb,
    SetMplsTtl(u8),
    DecMplsTtl,
    SetNwTtl(u8),
    DecNwTtl,
    CopyTtlOut,
    CopyTtlIn,
    SetField(OxmField<'a>),
    /// Vendor 0x2320; the body follows the 16-bit subtype.
    Nicira {
        subtype: u16,
        body: &'a [u8],
    },
    /// Another vendor's; the body follows the vendor.
    Experimenter {
        vendor: u32,
        body: &'a [u8],
    },
    /// The actions of OpenFlow 1.1 that 1.2 deprecated and Open vSwitch still
    /// accepts, and, from a switch, any unknown one.
    Other {
        kind: u16,
        body: &'a [u8],
    },
}

/// An action and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionItem<'a> {
    /// The action.
    pub action: Action<'a>,
    /// The offset of its first byte from the start of the outermost list. The
    /// port of an output or the id of a group follows 4 bytes later.
    pub offset: usize,
    /// The whole action, header and padding included.
    pub raw: &'a [u8],
}

impl<'a> ActionItem<'a> {
    pub(crate) fn parse(raw: &'a [u8], offset: usize) -> Self {
        Self {
            action: parse(raw).unwrap_or(Action::Other {
                kind: u16_at(raw, 0).unwrap_or_default(),
                body: raw.get(4..).unwrap_or_default(),
            }),
            offset,
            raw,
        }
    }

    /// Returns the actions inside a clone or a conntrack action.
    pub fn nested(&self) -> Option<Actions<'a>> {
        let header = nested_header(&self.action)?;
        Some(Actions {
            bytes: self.raw.get(header..)?,
            base: self.offset + header,
        })
    }
}

/// Returns the number of bytes before an action's nested actions.
pub(crate) fn nested_header(action: &Action<'_>) -> Option<usize> {
    match action {
        Action::Nicira {
            subtype: nicira_action::CT,
            ..
        } => Some(CT_HEADER),
        Action::Nicira {
            subtype: nicira_action::CLONE,
            ..
        } => Some(CLONE_HEADER),
        _ => None,
    }
}

/// Parses `raw`, one whole action; `None` if it is too short for its type,
/// which checked lists never contain.
fn parse(raw: &[u8]) -> Option<Action<'_>> {
    use action_kind as k;
    let kind = u16_at(raw, 0)?;
    let byte = raw.get(4).copied();
    Some(match kind {
        k::OUTPUT => Action::Output {
            port: u32_at(raw, 4)?,
            max_len: u16_at(raw, 8)?,
        },
        k::COPY_TTL_OUT => Action::CopyTtlOut,
        k::COPY_TTL_IN => Action::CopyTtlIn,
        k::SET_MPLS_TTL => Action::SetMplsTtl(byte?),
        k::DEC_MPLS_TTL => Action::DecMplsTtl,
        k::PUSH_VLAN => Action::PushVlan(u16_at(raw, 4)?),
        k::POP_VLAN => Action::PopVlan,
        k::PUSH_MPLS => Action::PushMpls(u16_at(raw, 4)?),
        k::POP_MPLS => Action::PopMpls(u16_at(raw, 4)?),
        k::SET_QUEUE => Action::SetQueue(u32_at(raw, 4)?),
        k::GROUP => Action::Group(u32_at(raw, 4)?),
        k::SET_NW_TTL => Action::SetNwTtl(byte?),
        k::DEC_NW_TTL => Action::DecNwTtl,
        k::SET_FIELD => Action::SetField(OxmField::pull(&mut Reader::new(raw.get(4..)?)).ok()?),
        k::PUSH_PBB => Action::PushPbb(u16_at(raw, 4)?),
        k::POP_PBB => Action::PopPbb,
        k::EXPERIMENTER => match u32_at(raw, 4)? {
            NX_VENDOR => Action::Nicira {
                subtype: u16_at(raw, 8)?,
                body: raw.get(10..)?,
            },
            vendor => Action::Experimenter {
                vendor,
                body: raw.get(8..)?,
            },
        },
        _ => return None,
    })
}

/// A list of actions whose lengths exactly cover its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Actions<'a> {
    bytes: &'a [u8],
    base: usize,
}

impl<'a> Actions<'a> {
    /// Wraps a list that was checked before.
    pub(crate) fn trusted(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, base }
    }

    /// The actions as on the wire.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Tells whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Iterates over the actions in order, without nested ones.
    pub fn iter(&self) -> ActionIter<'a> {
        ActionIter {
            rest: self.bytes,
            offset: self.base,
        }
    }
}

impl<'a> IntoIterator for Actions<'a> {
    type Item = ActionItem<'a>;
    type IntoIter = ActionIter<'a>;

    fn into_iter(self) -> ActionIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Actions`].
#[derive(Clone, Debug)]
pub struct ActionIter<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for ActionIter<'a> {
    type Item = ActionItem<'a>;

    fn next(&mut self) -> Option<ActionItem<'a>> {
        let length = usize::from(u16_at(self.rest, 2)?).max(8);
        let (raw, rest) = self.rest.split_at_checked(length)?;
        let item = ActionItem::parse(raw, self.offset);
        self.rest = rest;
        self.offset += length;
        Some(item)
    }
}

/// Calls `visit` for every action, including those nested in clone and
/// conntrack actions, outer ones first. Actions that a learn action puts into
/// future rules do not belong to this list.
pub fn flatten<'a>(actions: Actions<'a>, visit: &mut dyn FnMut(&ActionItem<'a>)) {
    let mut list = actions.iter();
    // Stays without memory unless actions are nested.
    let mut outer = Vec::new();
    loop {
        match list.next() {
            Some(item) => {
                visit(&item);
                if let Some(nested) = item.nested() {
                    outer.push(std::mem::replace(&mut list, nested.iter()));
                }
            }
            None => match outer.pop() {
                Some(rest) => list = rest,
                None => return,
            },
        }
    }
}

/// Strictness of the checks of instructions and actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// From a controller: refuse what Open vSwitch 3.1 refuses.
    Request,
    /// Does the same for OpenFlow 1.5.
    Request15,
    /// From a switch: accept everything that can be parsed.
    Reply,
}

/// An owned list of actions, built or received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ActionList(pub(crate) Vec<u8>);

impl ActionList {
    /// Creates an empty list: drop.
    pub fn new() -> Self {
        Self::default()
    }

    /// The list as it is on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, to patch numbers in place; see
    /// [`ActionItem::offset`].
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The actions.
    pub fn as_actions(&self) -> Actions<'_> {
        Actions::trusted(&self.0, 0)
    }

    /// Appends an output; `max_len` applies to the controller port only.
    #[must_use]
    pub fn output(mut self, port: u32, max_len: u16) -> Self {
        self.0.put_u16(action_kind::OUTPUT);
        self.0.put_u16(16);
        self.0.put_u32(port);
        self.0.put_u16(max_len);
        self.0.zeros(6);
        self
    }

    /// Appends a push of a tag with this ethertype, 0x8100 or 0x88a8.
    #[must_use]
    pub fn push_vlan(self, ethertype: u16) -> Self {
        self.with_argument(
            action_kind::PUSH_VLAN,
            (u32::from(ethertype) << 16).to_be_bytes(),
        )
    }

    /// Appends the removal of the outermost tag.
    #[must_use]
    pub fn pop_vlan(self) -> Self {
        self.with_argument(action_kind::POP_VLAN, [0; 4])
    }

    /// Appends a set-field of the VLAN id, 0 to 4095.
    #[must_use]
    pub fn set_vlan_vid(mut self, vid: u16) -> Self {
        let start = self.0.len();
        self.0.put_u16(action_kind::SET_FIELD);
        self.0.put_u16(0);
        put_vlan_vid(&mut self.0, vid);
        let length = self.0.len() - start;
        self.0.zeros(padded(length) - length);
        patch_length(&mut self.0, start, 2);
        self
    }

    /// Appends the action `group`.
    #[must_use]
    pub fn group(self, group: u32) -> Self {
        self.with_argument(action_kind::GROUP, group.to_be_bytes())
    }

    fn with_argument(mut self, kind: u16, argument: [u8; 4]) -> Self {
        let start = self.0.len();
        self.0.zeros(4);
        patch_u16(&mut self.0, start, kind);
        patch_u16(&mut self.0, start + 2, 8);
        self.0.put(&argument);
        self
    }
}
