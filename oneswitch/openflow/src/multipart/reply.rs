//! `ofp_multipart_reply`, and its splitting over several messages.

use super::{multipart_kind as k, put_header, Body, Entry, MULTIPART_HEADER};
use super::{
    FlowStats, GroupDesc, GroupFeatures, GroupStats, MeterConfig, MeterFeatures, MeterStats,
    PortStats, QueueStats, SwitchDesc, TableStats,
};
use crate::error::{ErrorCode, Refusal};
use crate::header::{finish, kind, start, HEADER_LEN};
use crate::port::Port;
use crate::session::Experimenter;
use crate::wire::{u16_at, Put, Reader};

/// Maximum bytes of a message.
const MAX_MESSAGE: usize = 65_535;

impl Entry for Port {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        Port::pull(reader)
    }

    fn put(&self, out: &mut Vec<u8>) {
        Port::put(self, out);
    }
}

/// The content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MultipartReply {
    Desc(SwitchDesc),
    Flow(Vec<FlowStats>),
    Aggregate {
        packet_count: u64,
        byte_count: u64,
        flow_count: u32,
    },
    Table(Vec<TableStats>),
    PortStats(Vec<PortStats>),
    Queue(Vec<QueueStats>),
    Group(Vec<GroupStats>),
    GroupDesc(Vec<GroupDesc>),
    GroupFeatures(GroupFeatures),
    Meter(Vec<MeterStats>),
    MeterConfig(Vec<MeterConfig>),
    MeterFeatures(MeterFeatures),
    /// Raw `ofp_table_features`.
    TableFeatures(Box<[u8]>),
    PortDesc(Vec<Port>),
    Experimenter(Experimenter),
}

fn put_all<E: Entry>(out: &mut Vec<u8>, entries: &[E]) {
    for entry in entries {
        entry.put(out);
    }
}

impl Body for MultipartReply {
    fn kind(&self) -> u16 {
        match self {
            Self::Desc(_) => k::DESC,
            Self::Flow(_) => k::FLOW,
            Self::Aggregate { .. } => k::AGGREGATE,
            Self::Table(_) => k::TABLE,
            Self::PortStats(_) => k::PORT_STATS,
            Self::Queue(_) => k::QUEUE,
            Self::Group(_) => k::GROUP,
            Self::GroupDesc(_) => k::GROUP_DESC,
            Self::GroupFeatures(_) => k::GROUP_FEATURES,
            Self::Meter(_) => k::METER,
            Self::MeterConfig(_) => k::METER_CONFIG,
            Self::MeterFeatures(_) => k::METER_FEATURES,
            Self::TableFeatures(_) => k::TABLE_FEATURES,
            Self::PortDesc(_) => k::PORT_DESC,
            Self::Experimenter(_) => k::EXPERIMENTER,
        }
    }

    fn pull(kind: u16, reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        Ok(match kind {
            k::DESC => Self::Desc(SwitchDesc::pull(reader)?),
            k::FLOW => Self::Flow(Entry::pull_all(reader)?),
            k::AGGREGATE => {
                let reply = Self::Aggregate {
                    packet_count: reader.u64()?,
                    byte_count: reader.u64()?,
                    flow_count: reader.u32()?,
                };
                reader.skip(4)?;
                reply
            }
            k::TABLE => Self::Table(Entry::pull_all(reader)?),
            k::PORT_STATS => Self::PortStats(Entry::pull_all(reader)?),
            k::QUEUE => Self::Queue(Entry::pull_all(reader)?),
            k::GROUP => Self::Group(Entry::pull_all(reader)?),
            k::GROUP_DESC => Self::GroupDesc(Entry::pull_all(reader)?),
            k::GROUP_FEATURES => Self::GroupFeatures(GroupFeatures::pull(reader)?),
            k::METER => Self::Meter(Entry::pull_all(reader)?),
            k::METER_CONFIG => Self::MeterConfig(Entry::pull_all(reader)?),
            k::METER_FEATURES => Self::MeterFeatures(MeterFeatures::pull(reader)?),
            k::TABLE_FEATURES => Self::TableFeatures(reader.rest().into()),
            k::PORT_DESC => Self::PortDesc(Entry::pull_all(reader)?),
            k::EXPERIMENTER => Self::Experimenter(Experimenter::pull(reader)?),
            _ => {
                return Err(Refusal::new(
                    ErrorCode::BAD_REQUEST_BAD_MULTIPART,
                    format!("multipart reply of type {kind}"),
                ))
            }
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Desc(desc) => desc.put(out),
            Self::Flow(entries) => put_all(out, entries),
            Self::Aggregate {
                packet_count,
                byte_count,
                flow_count,
            } => {
                out.put_u64(*packet_count);
                out.put_u64(*byte_count);
                out.put_u32(*flow_count);
                out.zeros(4);
            }
            Self::Table(entries) => put_all(out, entries),
            Self::PortStats(entries) => put_all(out, entries),
            Self::Queue(entries) => put_all(out, entries),
            Self::Group(entries) => put_all(out, entries),
            Self::GroupDesc(entries) => put_all(out, entries),
            Self::GroupFeatures(features) => features.put(out),
            Self::Meter(entries) => put_all(out, entries),
            Self::MeterConfig(entries) => put_all(out, entries),
            Self::MeterFeatures(features) => features.put(out),
            Self::TableFeatures(body) => out.put(body),
            Self::PortDesc(entries) => put_all(out, entries),
            Self::Experimenter(message) => message.put(out),
        }
    }
}

/// Collects entries into messages of at most 65,535 bytes.
struct Splitter {
    xid: u32,
    kind: u16,
    done: Vec<Vec<u8>>,
    current: Vec<u8>,
}

impl Splitter {
    fn fresh(xid: u32, kind_number: u16, more: bool) -> Vec<u8> {
        let mut out = start(xid, kind::MULTIPART_REPLY);
        put_header(&mut out, kind_number, more);
        out
    }

    /// Marks in `message` that another one follows.
    fn continue_after(message: &mut [u8]) {
        // The low byte of the multipart flags.
        if let Some(flags) = message.get_mut(HEADER_LEN + 3) {
            *flags |= 1;
        }
    }

    fn new(xid: u32, kind: u16) -> Self {
        Self {
            xid,
            kind,
            done: Vec::new(),
            current: Self::fresh(xid, kind, false),
        }
    }

    /// Adds the output of `put`, in a new message if this one is full.
    fn add(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.current.len();
        put(&mut self.current);
        let length = self.current.len() - before;
        if self.current.len() <= MAX_MESSAGE {
            return;
        }
        let entry = self.current.split_off(before);
        if MULTIPART_HEADER + length > MAX_MESSAGE {
            return;
        }
        let next = Self::fresh(self.xid, self.kind, false);
        let full = std::mem::replace(&mut self.current, next);
        self.done.push(full);
        self.current.extend(entry);
    }

    fn add_all<E: Entry>(&mut self, entries: &[E]) {
        for entry in entries {
            self.add(|out| entry.put(out));
        }
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        self.done.iter_mut().for_each(|m| Self::continue_after(m));
        self.done.push(self.current);
        self.done
            .into_iter()
            .filter_map(|message| finish(message).ok())
            .collect()
    }
}

/// Encodes a reply as one or more messages, of which all but the last carry the
/// "more" flag. As in Open vSwitch, no entry is split. An entry longer than a
/// message is omitted, because OpenFlow cannot encode it: that can only be a
/// rule whose flow-mod had more than 65,500 bytes.
pub fn encode_multipart_reply(xid: u32, reply: &MultipartReply) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::new(xid, reply.kind());
    match reply {
        MultipartReply::Flow(entries) => splitter.add_all(entries),
        MultipartReply::Table(entries) => splitter.add_all(entries),
        MultipartReply::PortStats(entries) => splitter.add_all(entries),
        MultipartReply::Queue(entries) => splitter.add_all(entries),
        MultipartReply::Group(entries) => splitter.add_all(entries),
        MultipartReply::GroupDesc(entries) => splitter.add_all(entries),
        MultipartReply::Meter(entries) => splitter.add_all(entries),
        MultipartReply::MeterConfig(entries) => splitter.add_all(entries),
        MultipartReply::PortDesc(entries) => splitter.add_all(entries),
        MultipartReply::TableFeatures(body) => {
            let mut rest: &[u8] = body;
            while !rest.is_empty() {
                let length = u16_at(rest, 0).map_or(0, usize::from).max(1);
                let (entry, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                splitter.add(|out| out.put(entry));
                rest = after;
            }
        }
        MultipartReply::Desc(_)
        | MultipartReply::Aggregate { .. }
        | MultipartReply::GroupFeatures(_)
        | MultipartReply::MeterFeatures(_)
        | MultipartReply::Experimenter(_) => splitter.add(|out| reply.put(out)),
    }
    splitter.finish()
}

/// Encodes flow statistics like [`encode_multipart_reply`], one message per
/// call. Flow statistics are by far the longest reply, so a slow reader does
/// not keep all of it encoded in memory.
pub type FlowStatsMessages = EntryMessages<FlowStats>;

impl FlowStatsMessages {
    /// Starts a reply to request `xid`.
    pub fn new(xid: u32, flows: Vec<FlowStats>) -> Self {
        Self::with_head(Splitter::fresh(xid, k::FLOW, false), FlowStats::put, flows)
    }
}

/// The messages of a long reply, encoded one at a time.
#[derive(Debug)]
pub struct EntryMessages<E> {
    /// The beginning of each message.
    head: Vec<u8>,
    put: fn(&E, &mut Vec<u8>),
    entries: std::vec::IntoIter<E>,
    /// An encoded entry that did not fit into the previous message.
    held: Vec<u8>,
    finished: bool,
}

impl<E> EntryMessages<E> {
    pub(crate) fn with_head(head: Vec<u8>, put: fn(&E, &mut Vec<u8>), entries: Vec<E>) -> Self {
        Self {
            head,
            put,
            entries: entries.into_iter(),
            held: Vec::new(),
            finished: false,
        }
    }
}

impl<E> Iterator for EntryMessages<E> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if std::mem::replace(&mut self.finished, true) {
            return None;
        }
        // Most entries are longer than this.
        let room = (self.head.len() + self.held.len() + 64 * self.entries.len()).min(MAX_MESSAGE);
        let mut message = Vec::with_capacity(room);
        message.extend_from_slice(&self.head);
        message.append(&mut self.held);
        for entry in self.entries.by_ref() {
            let before = message.len();
            (self.put)(&entry, &mut message);
            let length = message.len() - before;
            if message.len() <= MAX_MESSAGE {
                continue;
            }
            let cut = message.split_off(before);
            if self.head.len() + length <= MAX_MESSAGE {
                self.held = cut;
                self.finished = false;
                Splitter::continue_after(&mut message);
                break;
            }
        }
        finish(message).ok()
    }
}
