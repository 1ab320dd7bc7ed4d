//! Numbers of Nicira's messages (include/openvswitch/ofp-msgs.h,
//! include/openflow/nicira-ext.h).

/// `nxt` subtypes.
pub(crate) mod subtype {
    pub const ROLE_REQUEST: u32 = 10;
    pub const ROLE_REPLY: u32 = 11;
    pub const FLOW_REMOVED: u32 = 14;
    pub const FLOW_MOD_TABLE_ID: u32 = 15;
    pub const SET_PACKET_IN_FORMAT: u32 = 16;
    pub const PACKET_IN: u32 = 17;
    pub const FLOW_AGE: u32 = 18;
    pub const SET_ASYNC_CONFIG: u32 = 19;
    pub const SET_CONTROLLER_ID: u32 = 20;
    pub const TLV_TABLE_MOD: u32 = 24;
    pub const TLV_TABLE_REQUEST: u32 = 25;
    pub const TLV_TABLE_REPLY: u32 = 26;
    /// A list of OpenFlow 1.4's properties.
    pub const SET_ASYNC_CONFIG2: u32 = 27;
    pub const RESUME: u32 = 28;
    pub const CT_FLUSH_ZONE: u32 = 29;
    pub const PACKET_IN2: u32 = 30;
    pub const CT_FLUSH: u32 = 32;
}

/// Properties of packet-ins of the second format (`nx_packet_in2_prop_type`).
pub(crate) mod property {
    pub const PACKET: u16 = 0;
    pub const FULL_LENGTH: u16 = 1;
    pub const BUFFER_ID: u16 = 2;
    pub const TABLE_ID: u16 = 3;
    pub const COOKIE: u16 = 4;
    pub const REASON: u16 = 5;
    pub const METADATA: u16 = 6;
    pub const CONTINUATION: u16 = 8;
}
