//! The OpenFlow 1.3.5 wire format with the Nicira and ONF extensions of Open
//! vSwitch 3.1. No I/O; see README.md.
#![warn(missing_docs)]

mod action;
mod action_check;
mod async_config;
pub mod bundle;
mod canonical;
mod codes;
mod codes10;
mod codes14;
pub mod continuation;
mod error;
pub mod extension;
mod field;
mod flow;
pub mod flow_monitor;
pub mod flow_watch;
mod group;
mod header;
mod instruction;
mod later_fields;
mod learn_check;
mod load_check;
mod message;
mod meter;
mod metering;
mod multipart;
mod nicira;
pub mod openflow10;
pub mod openflow14;
pub mod openflow15;
mod oxm;
mod packet;
mod port;
mod properties;
mod selection;
mod session;
mod spelled;
pub mod tlv_table;
mod wire;

/// Actions as on the wire, and lists of them to build.
pub mod actions {
    pub use crate::action::{
        action_kind, flatten, nicira_action, Action, ActionItem, ActionIter, ActionList, Actions,
    };
}

pub use action::{Action, ActionItem, ActionIter, ActionList, Actions};
pub use canonical::CanonicalMatch;
pub use error::{ErrorCode, Oversize, Refusal, EXPERIMENTER_ERROR};
pub use field::class as oxm_class;
pub use flow::{FlowMod, FlowModCommand, FlowRemoved, ALL_TABLES, NO_BUFFER};
pub use group::{bucket_no, group_no, group_type, Bucket, Buckets, GroupMod, GroupModCommand};
pub use header::{fits_kind, frame_length, kind, set_xid, Header, HEADER_LEN, VERSION};
pub use instruction::{Instruction, Instructions};
pub use later_fields::{group_mod_before_15, without_later_fields};
pub use message::{decode, encode, Message};
pub use meter::{meter_flags, meter_no, MeterBand, MeterMod, MeterModCommand};
pub use multipart::{
    described_before_15, encode_multipart_reply, multipart_kind, BucketCounter, EntryMessages,
    FlowStats, FlowStatsMessages, FlowStatsRequest, GroupDesc, GroupFeatures, GroupStats,
    IntelPortStats, MeterBandStats, MeterConfig, MeterFeatures, MeterStats, Multipart,
    MultipartReply, MultipartRequest, PortStats, QueueStats, SwitchDesc, TableStats, RFC2819,
};
pub use oxm::{Match, OxmField, OxmFields, VID_PRESENT};
pub use packet::{PacketIn, PacketOut};
pub use port::{
    config, from_openflow10, is_output, is_representable, port_no, state, Port, PortMod, PortStatus,
};
pub use selection::Selection;
pub use session::{
    encode_error, encode_hello_failed, AsyncMasks, ErrorMessage, Experimenter, Features, Hello,
    Role, SwitchConfig, TableMod,
};

/// Nicira's experimenter id.
pub const NX_VENDOR: u32 = 0x0000_2320;
/// ONF's experimenter id.
pub const ONF_VENDOR: u32 = 0x4f4e_4600;
