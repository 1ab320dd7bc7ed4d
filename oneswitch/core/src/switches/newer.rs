//! Messages to `virt` over OpenFlow 1.5, which says what OpenFlow 1.3 cannot: places of buckets in a group, their numbers, and how a group
//! selects them.
//!
//! Nothing tells Open vSwitch the order of two connections. So such a message waits until no other is in flight, and all others wait for it.

use super::Switches;
use crate::api::{Destination, SwitchIndex};
use crate::switches::reads::in_messages;
use crate::wire::wire;
use openflow13::openflow15::encode_request;
use openflow13::{ErrorCode, ErrorMessage, Header, Message, MultipartRequest};
use tracing::error;

impl Switches {
    /// Sends messages of controllers over OpenFlow 1.5 from now on, or over 1.3 again.
    pub fn speak_newer(&mut self, wanted: bool) {
        self.speaks_newer = wanted;
    }

    /// Sends an operation, or a message about a bundle, over OpenFlow 1.5.
    pub(super) fn operate_newer(&mut self, switch: SwitchIndex, message: &[u8]) {
        self.verdicts.touch_newer(switch);
        let xid = Header::parse(message).map_or(0, |header| header.xid);
        if !self.put_to_newer(switch, message) {
            let error = ErrorMessage::new(ErrorCode::BAD_REQUEST_BAD_LEN, message);
            self.verdicts.refuse(xid, switch, error);
        }
    }

    /// Sends a request over OpenFlow 1.5; returns its xid.
    pub fn request_newer(&mut self, switch: SwitchIndex, request: MultipartRequest) -> u32 {
        let xid = self.fresh_xid();
        for part in in_messages(request) {
            self.put_to_newer(switch, &wire(xid, &Message::MultipartRequest(part)));
        }
        xid
    }

    /// Sends a message over OpenFlow 1.5; returns false if it is too long for that.
    pub(super) fn put_to_newer(&mut self, switch: SwitchIndex, message: &[u8]) -> bool {
        match encode_request(message) {
            Ok(frame) => {
                self.outbox.put(Destination::Properties(switch), &frame);
                true
            }
            Err(oversize) => {
                let name = &self.list[switch].name;
                error!(target: "southbound", switch = %name, %oversize, "cannot send a message over OpenFlow 1.5");
                false
            }
        }
    }
}
