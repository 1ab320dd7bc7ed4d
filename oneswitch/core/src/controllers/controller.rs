//! State of one controller connection: role, masks, the order of its replies, and their memory.

use crate::api::{ControllerRole, Greeting};
use crate::controllers::bundles::Bundles;
use crate::controllers::monitors::Monitors;
use crate::controllers::multipart::Partials;
use crate::controllers::reply::Reply;
use openflow13::openflow10::{self, Formats, PacketInFormat, StatsForm};
use openflow13::{decode, described_before_15, extension, frame_length, kind};
use openflow13::{openflow14, openflow15, AsyncMasks, Message, PacketIn, SwitchConfig, VERSION};
use std::borrow::Cow;
use std::collections::VecDeque;
use tracing::error;

/// Bytes kept for one controller above which no more of its messages are taken: replies that wait for a switch or for the controller to
/// read, and switches' answers that are being merged.
pub const BUDGET: usize = 4 << 20;
/// Unsent bytes of a controller's connection above which its replies wait in the core.
pub const WINDOW: usize = 1 << 20;
/// Unsent bytes of a controller's connection above which it gets no packet-ins.
pub const PACKET_IN_WINDOW: usize = 8 << 20;

/// A pending reply: it leaves when it is complete, its turn has come and its batch is settled.
#[derive(Debug)]
struct Slot {
    /// This batch settles everything the controller sent before.
    after: u64,
    reply: Option<Reply>,
    /// The messages to send before it: errors about messages between the previous reply and this one, and reports of monitors.
    before: VecDeque<Before>,
    /// The number of operations when it was reserved: their changes are reported before it.
    operations: u64,
    form: StatsForm,
}

#[derive(Debug)]
struct Before {
    frame: Vec<u8>,
    is_report: bool,
}

impl Slot {
    /// Memory of the shortest reply, allocations included.
    const SIZE: usize = std::mem::size_of::<Self>() + 64;
}

#[derive(Debug)]
pub struct Controller {
    pub version: u8,
    /// See [`Greeting::is_service`].
    is_service: bool,
    pub role: ControllerRole,
    pub asynchronous: AsyncMasks,
    pub miss_send_len: u16,
    /// It gets the packet-ins of actions `controller` with this `id`; other actions and misses have 0.
    pub packet_ins_of: u16,
    /// Formats that it has chosen, in OpenFlow 1.0.
    pub formats: Formats,
    /// The form of the reply to its current request, in OpenFlow 1.0 and 1.5.
    pub form: StatsForm,
    pub partials: Partials,
    pub bundles: Bundles,
    pub monitors: Monitors,
    slots: VecDeque<Slot>,
    /// Number of `slots[0]`; they are numbered in order.
    first_slot: u64,
    /// Bytes of the slots, and bytes reserved for switches' answers.
    kept: usize,
    /// Bytes that its connection has not sent yet.
    pub unsent: usize,
    /// Packet-ins that it lost because it did not read.
    pub packet_ins_dropped: u64,
    /// Whether it has lost packet-ins since it last had room for replies.
    loses_packet_ins: bool,
    /// Whether it has disconnected, while messages of it wait to be handled.
    pub has_left: bool,
}

/// `OFP_DEFAULT_MISS_SEND_LEN`.
const DEFAULT_MISS_SEND_LEN: u16 = 128;

impl Controller {
    pub fn new(greeting: Greeting) -> Self {
        Self {
            version: greeting.version,
            is_service: greeting.is_service,
            role: ControllerRole::Equal,
            asynchronous: default_masks(greeting.version),
            miss_send_len: if greeting.is_service {
                0
            } else {
                DEFAULT_MISS_SEND_LEN
            },
            packet_ins_of: 0,
            formats: Formats::default(),
            form: StatsForm::default(),
            partials: Partials::default(),
            bundles: Bundles::default(),
            monitors: Monitors::new(greeting.version),
            slots: VecDeque::new(),
            first_slot: 0,
            kept: 0,
            unsent: 0,
            packet_ins_dropped: 0,
            loses_packet_ins: false,
            has_left: false,
        }
    }
}

/// The bit of packet-ins whose TTL has expired.
const INVALID_TTL: u32 = 1 << PacketIn::INVALID_TTL;

/// As Open vSwitch (lib/ofp-connection.c, ofputil_async_cfg_default()): index 0 for master and equal, 1 for slave.
fn default_masks(version: u8) -> AsyncMasks {
    const NO_MATCH_AND_ACTION: u32 = 0b011;
    /// Those that OpenFlow 1.4 splits off from ACTION.
    const SORTS_OF_ACTION: u32 = 0b11_1000;
    const ADD_DELETE_MODIFY: u32 = 0b111;
    const TIMEOUTS_AND_DELETE: u32 = 0b0111;
    const ALL_REMOVALS: u32 = 0b1111;
    const METER_DELETE_AND_EVICTION: u32 = 0b11_0000;
    let (packet_ins, removals) = match version {
        openflow10::VERSION => (NO_MATCH_AND_ACTION, TIMEOUTS_AND_DELETE),
        VERSION => (NO_MATCH_AND_ACTION, ALL_REMOVALS),
        _ => (
            NO_MATCH_AND_ACTION | SORTS_OF_ACTION,
            ALL_REMOVALS | METER_DELETE_AND_EVICTION,
        ),
    };
    AsyncMasks {
        packet_in: [packet_ins, 0],
        port_status: [ADD_DELETE_MODIFY; 2],
        flow_removed: [removals, 0],
        ..AsyncMasks::NONE
    }
}

/// The fate of a packet-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Send,
    Drop,
    /// As [`Self::Drop`], the first one since the controller last kept up.
    DropFirst,
}

/// Asynchronous messages that a controller can mask.
#[derive(Clone, Copy, Debug)]
pub enum Asynchronous {
    PacketIn,
    PortStatus,
    FlowRemoved,
    RequestForward,
    TableStatus,
}

impl Controller {
    /// Says, as OpenFlow 1.0 does in the configuration, whether packets whose TTL expires are reported to a master or an equal.
    pub fn report_invalid_ttl(&mut self, reports: bool) {
        let mask = &mut self.asynchronous.packet_in[0];
        *mask = *mask & !INVALID_TTL | if reports { INVALID_TTL } else { 0 };
    }

    /// Returns the flags of the configuration that are the controller's own.
    pub fn config_flags(&self) -> u16 {
        let reports = self.asynchronous.packet_in[0] & INVALID_TTL != 0;
        if reports && self.version == openflow10::VERSION {
            SwitchConfig::INVALID_TTL_TO_CONTROLLER
        } else {
            0
        }
    }

    pub fn wants_misses(&self) -> bool {
        self.packet_ins_of == 0 && self.wants(Asynchronous::PacketIn, PacketIn::IMPLICIT_MISS)
    }

    /// Tells whether its version tells the reasons apart that are ACTION before OpenFlow 1.4.
    pub fn has_all_reasons(&self) -> bool {
        self.version >= openflow14::VERSION
    }

    /// Tells whether it wants packet-ins for any reason.
    pub fn wants_some_packet_ins(&self) -> bool {
        let mut reasons = PacketIn::NO_MATCH..=PacketIn::PACKET_OUT;
        reasons.any(|reason| self.wants(Asynchronous::PacketIn, reason))
    }

    pub fn wants(&self, kind: Asynchronous, reason: u8) -> bool {
        if self.is_service && self.miss_send_len == 0 {
            return false;
        }
        // One bit of the masks is for misses with and without a rule for them.
        let reason = match (kind, reason) {
            (Asynchronous::PacketIn, PacketIn::IMPLICIT_MISS) => {
                if self.version != openflow10::VERSION {
                    return false;
                }
                PacketIn::NO_MATCH
            }
            (Asynchronous::PacketIn, PacketIn::ACTION_SET..=PacketIn::PACKET_OUT) => {
                PacketIn::reason_in(self.version, reason)
            }
            _ => reason,
        };
        let masks = match kind {
            Asynchronous::PacketIn => self.asynchronous.packet_in,
            Asynchronous::PortStatus => self.asynchronous.port_status,
            Asynchronous::FlowRemoved => self.asynchronous.flow_removed,
            Asynchronous::RequestForward => self.asynchronous.request_forward,
            Asynchronous::TableStatus => self.asynchronous.table_status,
        };
        let is_slave = self.role == ControllerRole::Slave;
        let mask = masks[usize::from(is_slave)];
        1u32.checked_shl(u32::from(reason))
            .is_some_and(|bit| mask & bit != 0)
    }

    /// Tells whether it has chosen the format of packet-ins that carries what continues them.
    pub fn continues_packets(&self) -> bool {
        self.formats.packet_in == PacketInFormat::Nicira2
    }

    /// Sends asynchronous messages to a service connection from now on, as Open vSwitch does when one chooses among them.
    pub fn expect_asynchronous(&mut self) {
        if self.is_service && self.miss_send_len == 0 {
            self.miss_send_len = DEFAULT_MISS_SEND_LEN;
        }
    }

    /// Returns the number of the next reply, which gives a message's place among the replies.
    pub fn place(&self) -> u64 {
        self.first_slot + self.slots.len() as u64
    }

    /// Learns how many bytes its connection has not sent yet, and whether its socket takes no more.
    pub fn set_unsent(&mut self, bytes: usize, is_stuck: bool) {
        self.unsent = bytes;
        self.monitors.unsent = self.monitors.unsent.min(bytes);
        self.monitors.is_stuck = is_stuck;
    }

    /// Reserves the next place among the replies, behind these operations.
    pub fn reserve(&mut self, after: u64, operations: u64) -> u64 {
        let place = self.place();
        self.slots.push_back(Slot {
            after,
            reply: None,
            before: VecDeque::new(),
            operations,
            form: self.form,
        });
        self.kept += Slot::SIZE;
        place
    }

    pub fn fill(&mut self, place: u64, reply: Reply) {
        let reply = match self.version {
            openflow15::VERSION => reply.in_openflow15(),
            _ => reply,
        };
        if let Some(slot) = self.slot_mut(place) {
            let size = reply.size();
            slot.reply = Some(reply);
            self.kept += size;
        }
    }

    /// Reserves `bytes` for an unfinished reply, until they are [released](Self::give_back).
    pub fn reserve_bytes(&mut self, bytes: usize) {
        self.kept += bytes;
    }

    pub fn give_back(&mut self, bytes: usize) {
        self.kept -= bytes;
    }

    /// Returns the bytes kept for this controller.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Tells whether it receives a packet-in of `length` bytes with `unsent` bytes unsent; counts a dropped one.
    pub fn admit_packet_in(&mut self, unsent: usize, length: usize) -> Admission {
        if unsent + length <= PACKET_IN_WINDOW {
            self.loses_packet_ins &= unsent > WINDOW;
            return Admission::Send;
        }
        self.packet_ins_dropped += 1;
        match std::mem::replace(&mut self.loses_packet_ins, true) {
            false => Admission::DropFirst,
            true => Admission::Drop,
        }
    }

    /// Queues an error about a message that preceded reply `place`, and was this operation. The message's batch is settled.
    pub fn refuse(&mut self, place: u64, operation: u64, error: Vec<u8>) {
        // An earlier error took the place and has left: the next reply is the following one.
        let place = place.max(self.first_slot);
        let index = usize::try_from(place - self.first_slot).unwrap_or(usize::MAX);
        let before = Before {
            frame: error,
            is_report: false,
        };
        self.put_before(index, operation, before);
    }

    /// Queues a report of what an operation changed; `is_counted`: it can lead to a pause of the monitors.
    pub fn report(&mut self, operation: u64, frame: Vec<u8>, is_counted: bool) {
        if is_counted {
            self.monitors.waiting += frame.len();
        }
        let before = Before {
            frame,
            is_report: is_counted,
        };
        let index = self
            .slots
            .partition_point(|slot| slot.operations <= operation);
        self.put_before(index, operation, before);
    }

    /// Queues something before the slot `index`, or behind all slots.
    fn put_before(&mut self, index: usize, operation: u64, before: Before) {
        self.kept += before.frame.len();
        if let Some(slot) = self.slots.get_mut(index) {
            return slot.before.push_back(before);
        }
        self.kept += Slot::SIZE;
        self.slots.push_back(Slot {
            after: 0,
            reply: Some(Reply::default()),
            before: [before].into(),
            operations: operation + 1,
            form: StatsForm::default(),
        });
    }

    fn slot_mut(&mut self, place: u64) -> Option<&mut Slot> {
        let index = place.checked_sub(self.first_slot)?;
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    /// Tells whether the next reply, or a part of it, may leave.
    pub fn is_ready(&self, is_settled: impl Fn(u64) -> bool) -> bool {
        let ready = |s: &Slot| !s.before.is_empty() || s.reply.is_some() && is_settled(s.after);
        self.slots.front().is_some_and(ready)
    }

    /// Translates messages of OpenFlow 1.3 to the connection's version.
    pub fn in_version<'a>(&self, frames: &'a [u8], form: StatsForm) -> Cow<'a, [u8]> {
        if self.version == VERSION {
            let other = || {
                let described = described_before_15(frames);
                described.or_else(|| extension::forwarded_before_15(frames))
            };
            return match self.in_format(frames).or_else(other) {
                Some(translated) => Cow::Owned(translated),
                None => Cow::Borrowed(frames),
            };
        }
        let mut out = Vec::new();
        let mut rest = frames;
        while let Ok(Some(length)) = frame_length(rest) {
            let Some((frame, after)) = rest.split_at_checked(length) else {
                break;
            };
            rest = after;
            // Errors have the version of the message that they are about.
            if frame.first() == Some(&self.version) || frame.get(1) == Some(&kind::ERROR) {
                out.extend_from_slice(frame);
                continue;
            }
            let later = match self.version {
                openflow14::VERSION => Some(openflow14::encode(frame, self.formats.packet_in)),
                openflow15::VERSION => {
                    Some(openflow15::encode(frame, self.formats.packet_in, form))
                }
                _ => None,
            };
            if let Some(translated) = later {
                out.extend(translated.concat());
                continue;
            }
            match decode(frame) {
                Ok((header, message)) => {
                    openflow10::encode(header.xid, &message, &self.formats, form)
                        .iter()
                        .for_each(|translated| out.extend_from_slice(translated))
                }
                Err(refusal) => {
                    error!(target: "northbound", detail = %refusal, "cannot translate a message; left out")
                }
            }
        }
        Cow::Owned(out)
    }

    /// Returns a packet-in of OpenFlow 1.3 in the format that the controller has chosen; `None`: as it is, like all other messages.
    fn in_format(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let format = self.formats.packet_in;
        if format == PacketInFormat::Standard || frame.get(1) != Some(&kind::PACKET_IN) {
            return None;
        }
        match decode(frame) {
            Ok((_, Message::PacketIn(packet))) => {
                openflow10::encode_packet_in(VERSION, &packet, format)
            }
            _ => None,
        }
    }

    /// Removes what may leave next, in the connection's version: errors, or one message of a reply.
    pub fn pop_ready(&mut self, is_settled: impl Fn(u64) -> bool) -> Option<Vec<u8>> {
        if !self.is_ready(is_settled) {
            return None;
        }
        let front = self.slots.front_mut()?;
        let form = front.form;
        if let Some(before) = front.before.pop_front() {
            let length = before.frame.len();
            self.kept -= length;
            if before.is_report {
                self.monitors.waiting -= length;
                self.monitors.unsent += length;
            }
            return Some(self.in_version(&before.frame, form).into_owned());
        }
        let reply = front.reply.as_mut()?;
        let before = reply.size();
        let message = reply.next_message();
        self.kept -= before - reply.size();
        if reply.is_over() {
            self.kept -= Slot::SIZE + reply.size();
            self.first_slot += 1;
            self.slots.pop_front();
        }
        Some(match self.in_version(&message, form) {
            Cow::Borrowed(_) => message,
            Cow::Owned(translated) => translated,
        })
    }
}

#[cfg(test)]
mod tests;
