//! Actions and fields that the rules of `edge` share.

/// OXM_OF_VLAN_VID: none.
pub const UNTAGGED: [u8; 6] = [0x80, 0, 6 << 1, 2, 0, 0];

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
