//! Replies about the switch, its flows, tables, ports and queues.

use std::borrow::Cow;

use super::Entry;
use crate::action::Strictness;
use crate::error::{ErrorCode, Refusal};
use crate::instruction::Instructions;
use crate::oxm::Match;
use crate::wire::{patch_length, u16_at, Put, Reader};

/// `ofp_desc`: texts without their zero padding. All except the serial number
/// (31 bytes) are truncated to 255 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SwitchDesc {
    pub manufacturer: Box<[u8]>,
    pub hardware: Box<[u8]>,
    pub software: Box<[u8]>,
    pub serial: Box<[u8]>,
    pub datapath: Box<[u8]>,
}

impl SwitchDesc {
    /// Lengths of the texts on the wire, in order.
    const LENGTHS: [usize; 5] = [256, 256, 256, 32, 256];

    /// Converts a text for people.
    pub fn text(field: &[u8]) -> Cow<'_, str> {
        String::from_utf8_lossy(field)
    }

    pub(crate) fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let mut texts: [Box<[u8]>; 5] = Default::default();
        for (text, length) in texts.iter_mut().zip(Self::LENGTHS) {
            let raw = reader.bytes(length)?;
            *text = raw.split(|&b| b == 0).next().unwrap_or_default().into();
        }
        let [manufacturer, hardware, software, serial, datapath] = texts;
        Ok(Self {
            manufacturer,
            hardware,
            software,
            serial,
            datapath,
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let texts = [
            &self.manufacturer,
            &self.hardware,
            &self.software,
            &self.serial,
            &self.datapath,
        ];
        for (text, length) in texts.into_iter().zip(Self::LENGTHS) {
            let kept = text.len().min(length);
            out.extend(text.iter().take(kept));
            out.zeros(length - kept);
        }
    }
}

/// `ofp_flow_stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// The rule's table.
    pub table_id: u8,
    /// Lifetime in seconds.
    pub duration_sec: u32,
    /// Nanoseconds beyond them.
    pub duration_nsec: u32,
    /// The rule's priority.
    pub priority: u16,
    /// As in the flow-mod.
    pub idle_timeout: u16,
    /// As in the flow-mod.
    pub hard_timeout: u16,
    /// As in the flow-mod, except CHECK_OVERLAP and RESET_COUNTS.
    pub flags: u16,
    /// As in the flow-mod: padding in OpenFlow 1.3. For OpenFlow 1.0, which has no
    /// importance, the seconds since the last change and 1; 0: unknown.
    pub importance: u16,
    /// For OpenFlow 1.0, the seconds since the last packet and 1; 0: unknown. Later
    /// versions have padding there.
    pub idle_age: u16,
    /// The rule's cookie.
    pub cookie: u64,
    /// Packets that matched; all ones: not counted.
    pub packet_count: u64,
    /// Their bytes; all ones: not counted.
    pub byte_count: u64,
    /// The rule's match.
    pub matching: Match,
    /// The rule's instructions.
    pub instructions: Instructions,
}

/// Instructions of the last entries of a message, by a hash of their bytes. Entries with the same instructions share them: a table has
/// few different ones, and comparing costs less than decoding.
#[derive(Default)]
struct Recent<'a>([(&'a [u8], Instructions); 16]);

impl<'a> Recent<'a> {
    fn decode(&mut self, bytes: &'a [u8]) -> Result<Instructions, Refusal> {
        let decode = || Instructions::decode(bytes, Strictness::Reply);
        let Some(slot) = self.0.get_mut(Self::place(bytes)) else {
            return decode();
        };
        if slot.0 != bytes {
            *slot = (bytes, decode()?);
        }
        Ok(slot.1.clone())
    }

    /// Returns the upper four bits of a multiplicative hash (Knuth, The Art of Computer Programming, vol. 3, section 6.4).
    fn place(bytes: &[u8]) -> usize {
        let hash = bytes.chunks_exact(8).fold(0u64, |hash, word| {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (hash >> 60) as usize
    }
}

impl FlowStats {
    /// Bytes of an entry without match and instructions.
    const HEADER: usize = 48;

    fn pull_sharing<'a>(reader: &mut Reader<'a>, recent: &mut Recent<'a>) -> Result<Self, Refusal> {
        let mut entry = sized_entry(reader)?;
        entry.skip(2)?;
        let [table_id, _] = entry.array()?;
        let duration_sec = entry.u32()?;
        let duration_nsec = entry.u32()?;
        let priority = entry.u16()?;
        let idle_timeout = entry.u16()?;
        let hard_timeout = entry.u16()?;
        let flags = entry.u16()?;
        let importance = entry.u16()?;
        let idle_age = entry.u16()?;
        Ok(Self {
            table_id,
            duration_sec,
            duration_nsec,
            priority,
            idle_timeout,
            hard_timeout,
            flags,
            importance,
            idle_age,
            cookie: entry.u64()?,
            packet_count: entry.u64()?,
            byte_count: entry.u64()?,
            matching: Match::pull(&mut entry)?,
            instructions: recent.decode(entry.rest())?,
        })
    }
}

impl Entry for FlowStats {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        Self::pull_sharing(reader, &mut Recent::default())
    }

    fn pull_all(reader: &mut Reader<'_>) -> Result<Vec<Self>, Refusal> {
        // Most are as long as the first.
        let length = u16_at(reader.peek(), 0).map_or(0, usize::from);
        let mut flows = Vec::with_capacity(reader.len() / length.max(Self::HEADER));
        let mut recent = Recent::default();
        while !reader.is_empty() {
            flows.push(Self::pull_sharing(reader, &mut recent)?);
        }
        Ok(flows)
    }

    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put(&[self.table_id, 0]);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        out.put_u16(self.priority);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        out.put_u16(self.flags);
        out.put_u16(self.importance);
        out.put_u16(self.idle_age);
        out.put_u64(self.cookie);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        self.matching.put(out);
        self.instructions.put_before_15(out);
        patch_length(out, start, 0);
    }
}

/// Splits off an entry that starts with its own 16-bit length.
pub(crate) fn sized_entry<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, Refusal> {
    let length = u16_at(reader.peek(), 0).map_or(0, usize::from);
    // An entry has at least its length field, so each iteration makes progress.
    if length < 8 || length > reader.len() {
        return Err(Refusal::new(
            ErrorCode::BAD_REQUEST_BAD_LEN,
            format!("multipart entry of length {length}"),
        ));
    }
    Ok(Reader::new(reader.bytes(length)?))
}

/// `ofp_table_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct TableStats {
    pub table_id: u8,
    pub active_count: u32,
    pub lookup_count: u64,
    pub matched_count: u64,
}

impl Entry for TableStats {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let [table_id, _, _, _] = reader.array()?;
        Ok(Self {
            table_id,
            active_count: reader.u32()?,
            lookup_count: reader.u64()?,
            matched_count: reader.u64()?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put(&[self.table_id, 0, 0, 0]);
        out.put_u32(self.active_count);
        out.put_u64(self.lookup_count);
        out.put_u64(self.matched_count);
    }
}

/// The number of counters of RFC 2819 that Open vSwitch tells.
pub const RFC2819: usize = 21;

/// The counters of a port that only OpenFlow 1.4 and later have, as properties of
/// Intel's (include/openflow/intel-ext.h of Open vSwitch); all ones: not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntelPortStats {
    /// Those of RFC 2819, in the order of `intel_port_stats_rfc2819`.
    pub rfc2819: [u64; RFC2819],
    /// Those that its kind of device names itself; a name has at most 255 bytes.
    pub custom: Vec<(Box<[u8]>, u64)>,
}

/// `ofp_port_stats`; all ones: not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PortStats {
    pub port_no: u32,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_err: u64,
    pub rx_over_err: u64,
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// Lifetime in seconds.
    pub duration_sec: u32,
    /// Nanoseconds beyond them.
    pub duration_nsec: u32,
    /// Further counters, if they are known; the messages of OpenFlow 1.3 lack them.
    pub intel: Option<Box<IntelPortStats>>,
}

impl Entry for PortStats {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        let port_no = reader.u32()?;
        reader.skip(4)?;
        let mut stats = Self {
            port_no,
            ..Self::default()
        };
        stats.pull_traffic(reader)?;
        stats.pull_ethernet_errors(reader)?;
        stats.duration_sec = reader.u32()?;
        stats.duration_nsec = reader.u32()?;
        Ok(stats)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.port_no);
        out.zeros(4);
        self.put_traffic(out);
        self.put_ethernet_errors(out);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
    }
}

impl PortStats {
    /// Reads the counters that every kind of port has.
    pub(crate) fn pull_traffic(&mut self, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        for count in [
            &mut self.rx_packets,
            &mut self.tx_packets,
            &mut self.rx_bytes,
            &mut self.tx_bytes,
            &mut self.rx_dropped,
            &mut self.tx_dropped,
            &mut self.rx_errors,
            &mut self.tx_errors,
        ] {
            *count = reader.u64()?;
        }
        Ok(())
    }

    /// Reads the counters that OpenFlow 1.4 puts into a property.
    pub(crate) fn pull_ethernet_errors(&mut self, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        for count in [
            &mut self.rx_frame_err,
            &mut self.rx_over_err,
            &mut self.rx_crc_err,
            &mut self.collisions,
        ] {
            *count = reader.u64()?;
        }
        Ok(())
    }

    /// Writes the counters that every kind of port has.
    pub(crate) fn put_traffic(&self, out: &mut Vec<u8>) {
        for count in [
            self.rx_packets,
            self.tx_packets,
            self.rx_bytes,
            self.tx_bytes,
            self.rx_dropped,
            self.tx_dropped,
            self.rx_errors,
            self.tx_errors,
        ] {
            out.put_u64(count);
        }
    }

    /// Writes the counters that OpenFlow 1.4 puts into a property.
    pub(crate) fn put_ethernet_errors(&self, out: &mut Vec<u8>) {
        for count in [
            self.rx_frame_err,
            self.rx_over_err,
            self.rx_crc_err,
            self.collisions,
        ] {
            out.put_u64(count);
        }
    }
}

/// `ofp_queue_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct QueueStats {
    pub port_no: u32,
    pub queue_id: u32,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    /// Lifetime in seconds; all ones: unknown.
    pub duration_sec: u32,
    /// Nanoseconds beyond them; all ones: unknown.
    pub duration_nsec: u32,
}

impl Entry for QueueStats {
    fn pull(reader: &mut Reader<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            port_no: reader.u32()?,
            queue_id: reader.u32()?,
            tx_bytes: reader.u64()?,
            tx_packets: reader.u64()?,
            tx_errors: reader.u64()?,
            duration_sec: reader.u32()?,
            duration_nsec: reader.u32()?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.port_no);
        out.put_u32(self.queue_id);
        out.put_u64(self.tx_bytes);
        out.put_u64(self.tx_packets);
        out.put_u64(self.tx_errors);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
    }
}
