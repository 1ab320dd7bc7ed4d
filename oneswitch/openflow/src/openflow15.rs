//! OpenFlow 1.5, translated to and from the messages of OpenFlow 1.3 (OpenFlow
//! 1.5.1; lib/ofp-*.c of Open vSwitch 3.1).
//!
//! The parts that it shares with OpenFlow 1.4 are translated there. Actions, matches, groups
//! and the statistics of rules differ.

mod actions;
mod described;
mod features;
mod fields;
pub(crate) mod groups;
mod instructions;
mod packet_outs;
mod replies;
mod requests;
mod statistics;
mod towards;

use crate::openflow14;

pub use described::{decode_descriptions, encode_description_request, DescribedGroup};
pub use features::encode_table_features;
pub(crate) use fields::{matching, preferred, Name};
pub(crate) use instructions::{to_13 as instructions_to_13, to_15};
pub use replies::{encode, packet_in_in_version};
pub use requests::{decode, is_write};
pub use towards::{decode_error, encode_request};

pub use crate::header::VERSION_15 as VERSION;

/// A decoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A request that OpenFlow 1.4 has, too.
    Shared(openflow14::Request),
    /// A request of OpenFlow 1.3 for descriptions of all ports or groups, of which the
    /// controller wants those of this number.
    Describe(Vec<u8>, u32),
}
