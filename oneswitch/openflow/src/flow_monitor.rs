//! Flow monitors: a controller asks to be told of the rules that change.
//!
//! OpenFlow 1.0 has them as an extension of Nicira's, 1.3 as one of the ONF's,
//! 1.4 natively (lib/ofp-monitor.c of Open vSwitch 3.1).

mod forms;
mod requests;
mod updates;

pub(crate) use forms::{
    cancelled, of_extension, NICIRA_PAUSED, NICIRA_RESUMED, NICIRA_STATS, ONF_PAUSED, ONF_RESUMED,
    ONF_STATS, STANDARD_STATS,
};
pub use forms::{Form, MonitorRequests};
pub use requests::{flags, MonitorCommand, MonitorRequest};
pub(crate) use updates::decode_entries;
pub use updates::{
    decode_updates, encode_paused, encode_resumed, updates_messages, Event, FullUpdate, Update,
    UpdateMessages,
};
