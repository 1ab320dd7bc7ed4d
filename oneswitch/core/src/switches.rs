//! The switches: their OpenFlow sessions, the messages and requests to them, and their verdicts.

pub mod audit;
pub mod bundles;
pub mod doubt;
pub mod fold;
pub mod incomplete;
pub mod learning;
pub mod liveness;
pub mod markers;
pub mod newer;
pub mod offload;
pub mod paths;
pub mod pcie_links;
pub mod port_config;
pub mod port_counters;
pub mod properties;
pub mod reads;
pub mod rounds;
pub mod sending;
pub mod session;
pub mod sync;
pub mod verdict;
pub mod version10;

use crate::api::{Bridge, SwitchIndex};
use crate::journal::records::Journal;
use crate::model::truth::Truth;
use crate::outbox::Outbox;
use crate::server::Server;
use audit::Audit;
use foldhash::{HashMap, HashMapExt};
use reads::Read;
use session::Switch;
use std::time::Instant;
use verdict::Verdicts;

#[derive(Debug)]
pub struct Switches {
    pub list: Vec<Switch>,
    pub verdicts: Verdicts,
    pub outbox: Outbox,
    /// The messages for each `virt` in the bundle that is being made.
    collecting: Option<bundles::Collecting>,
    /// Whether messages of controllers go to `virt` over OpenFlow 1.5.
    speaks_newer: bool,
    /// The switches' treatment of fragments (OFPC_FRAG_*).
    pub fragment_flags: u16,
    /// Whether they send packet-ins with what continues them, because a controller wants that.
    continues_packets: bool,
    /// Bridges to disconnect, with the reason for the log.
    pub disconnects: Vec<(SwitchIndex, Bridge, String)>,
    reads: HashMap<u32, Read>,
    /// Answers for controllers that came before the verdict on the messages before their requests.
    early: Vec<reads::Answer>,
    questions: u64,
    next_xid: u32,
    audit: Option<Audit>,
    pub properties: properties::GroupProperties,
    pub version10: version10::Version10,
    pub port_counters: port_counters::PortCounters,
}

impl Switches {
    pub fn new(list: Vec<Switch>) -> Self {
        Self {
            list,
            verdicts: Verdicts::default(),
            outbox: Outbox::default(),
            collecting: None,
            speaks_newer: false,
            fragment_flags: 0,
            continues_packets: false,
            disconnects: Vec::new(),
            reads: HashMap::new(),
            early: Vec::new(),
            questions: 0,
            next_xid: 1,
            audit: None,
            properties: properties::GroupProperties::default(),
            version10: version10::Version10::default(),
            port_counters: port_counters::PortCounters::default(),
        }
    }
}

/// The rooms that removed rules and moves act on.
pub struct Below<'a> {
    pub truth: &'a mut Truth,
    pub server: &'a mut Server,
    pub switches: &'a mut Switches,
    pub journal: &'a mut Journal,
    pub now: Instant,
}
