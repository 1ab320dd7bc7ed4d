//! OpenFlow 1.4, translated to and from the messages of OpenFlow 1.3 (OpenFlow
//! 1.4.1; lib/ofp-*.c of Open vSwitch 3.1).
//!
//! Most messages differ only in the version. Others have properties, which
//! OpenFlow 1.3 lacks or has as fixed fields.

pub(crate) mod bundles;
mod messages;
mod port_stats;
pub(crate) mod replies;
pub(crate) mod requests;
mod tables;

use crate::multipart::{Multipart, MultipartRequest};
use crate::session::AsyncMasks;

pub use port_stats::decode_port_stats;
pub(crate) use replies::set_async;
pub use replies::{encode, encode_async_config, encode_port_stats, encode_port_stats_request};
pub use requests::{decode, is_write};
pub use tables::{
    encode_table_desc, encode_table_status, Table, TableChange, TableConfig, Vacancy, VacancyEvent,
};

pub use crate::header::VERSION_14 as VERSION;
pub use kind::BUNDLE_ADD;

/// `ofp_type` values that OpenFlow 1.3 lacks.
pub(crate) mod kind {
    pub(super) const ROLE_STATUS: u8 = 30;
    pub(super) const TABLE_STATUS: u8 = 31;
    pub(crate) const REQUEST_FORWARD: u8 = 32;
    pub(crate) const BUNDLE_CONTROL: u8 = 33;
    /// A message in a bundle.
    pub const BUNDLE_ADD: u8 = 34;
}

/// `ofp_multipart_type` values that OpenFlow 1.3 lacks.
mod multipart_kind {
    pub(super) const TABLE_DESC: u16 = 14;
    pub(super) const QUEUE_DESC: u16 = 15;
}

/// A decoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A message of OpenFlow 1.3 that means the same.
    Frame(Vec<u8>),
    /// A choice of asynchronous messages.
    AsyncMasks(AsyncMasks),
    /// A change of the configurations of tables.
    TableMod(TableChange),
    /// A request for the configurations of all tables.
    TableDesc,
    /// Flow monitors.
    Monitors(Multipart<MultipartRequest>),
}
