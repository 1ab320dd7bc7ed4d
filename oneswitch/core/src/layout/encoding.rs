//! Actions and fields that the rules of `edge` share.

use openflow13::ActionList;

/// OXM_OF_VLAN_VID: none.
pub const UNTAGGED: [u8; 6] = [0x80, 0, 6 << 1, 2, 0, 0];
/// OXM_OF_VLAN_VID, masked: some.
pub const TAGGED: [u8; 8] = [0x80, 0, 6 << 1 | 1, 4, 0x10, 0, 0x10, 0];
/// OXM_OF_ETH_SRC and OXM_OF_ETH_TYPE of the markers of a network function that moves (nf_runtime::migration::marker).
pub const MARKERS: [u8; 16] = [
    0x80,
    0,
    4 << 1,
    6,
    0x02,
    0x6e,
    0x66,
    0x6d,
    0x67,
    0x00, // from
    0x80,
    0,
    5 << 1,
    2,
    0x88,
    0xb5, // local experimental
];
/// Header of NXM_NX_REG0.
pub const REG0: [u8; 4] = [0, 1, 0, 4];
/// NXM_OF_IN_PORT: OFPP_NONE.
pub const NO_PORT: [u8; 6] = [0, 0, 0, 2, 0xff, 0xff];

/// Appends encoded actions.
pub fn appended(actions: ActionList, more: &[u8]) -> ActionList {
    let bytes = [actions.as_bytes(), more].concat();
    ActionList::from_bytes(bytes).unwrap_or_default()
}

/// Encodes OFPAT_SET_FIELD of one OXM TLV.
pub fn set_field(oxm: &[u8]) -> Vec<u8> {
    let length = (4 + oxm.len()).next_multiple_of(8);
    let mut action = vec![0, 25, 0, length as u8];
    action.extend(oxm);
    action.resize(length, 0);
    action
}

/// Encodes NXAST_RESUBMIT_TABLE, with the port as it is.
pub fn resubmit(table: u8) -> Vec<u8> {
    let mut action = vec![0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 14, 0xff, 0xf8];
    action.extend([table, 0, 0, 0]);
    action
}
