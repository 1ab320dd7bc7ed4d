//! The controllers: their connections, roles and replies, and merging several switches' answers into one.

pub mod bundles;
pub mod controller;
pub mod merge;
pub mod merge_flows;
pub mod monitors;
pub mod multipart;
pub mod reply;
pub mod roles;
pub mod sources;
pub mod telling;

use crate::api::ControllerId;
use crate::model::truth::Truth;
use crate::outbox::Outbox;
use crate::server::Server;
use crate::switches::verdict::Origin;
use crate::switches::Switches;
use controller::Controller;
use openflow13::{openflow10, openflow14};
use std::collections::BTreeMap;

/// A controller's message inside the core.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    pub origin: Origin,
    /// The message in OpenFlow 1.3.
    pub frame: &'a [u8],
    /// The message as the controller sent it, for errors.
    pub sent: &'a [u8],
}

impl Incoming<'_> {
    /// Tells whether the controller sent another message, in another version.
    pub fn is_translated(&self) -> bool {
        !std::ptr::eq(self.frame, self.sent)
    }

    pub fn version(&self) -> u8 {
        self.sent.first().copied().unwrap_or_default()
    }

    pub fn is_openflow10(&self) -> bool {
        self.version() == openflow10::VERSION
    }

    /// Tells whether the controller's version has a rule's importance, where OpenFlow 1.3 has padding.
    pub fn has_importance(&self) -> bool {
        self.version() >= openflow14::VERSION
    }
}

#[derive(Debug, Default)]
pub struct Controllers {
    connections: BTreeMap<ControllerId, Controller>,
    /// Of the last accepted ROLE_REQUEST for master or slave (OpenFlow 1.3.5, 6.3.6).
    role_generation: Option<u64>,
    pub outbox: Outbox,
    /// Controllers to disconnect, with the reason for the log.
    pub disconnects: Vec<(ControllerId, String)>,
    /// Messages answered with an error.
    pub refused: u64,
}

/// The sources of an answer to a controller.
pub struct View<'a> {
    pub datapath_id: u64,
    pub truth: &'a Truth,
    pub server: &'a Server,
    pub switches: &'a Switches,
}
