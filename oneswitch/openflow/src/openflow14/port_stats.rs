//! Statistics of ports in OpenFlow 1.4, with Intel's properties, as Open vSwitch tells
//! them (`ofputil_append_ofp14_port_stats`, lib/ofp-port.c).

use crate::error::{ErrorCode, Refusal};
use crate::header::{kind as k, HEADER_LEN};
use crate::multipart::{multipart_kind as stats, IntelPortStats, PortStats, RFC2819};
use crate::properties::{bad_content, Properties, EXPERIMENTER};
use crate::wire::{padded, patch_length, u16_at, Put, Reader};

/// `INTEL_VENDOR_ID`.
const INTEL: u32 = 0x0000_aa01;
/// `OFPPSPT14_ETHERNET`.
const ETHERNET: u16 = 0;
/// `INTEL_PORT_STATS_RFC2819` and `INTEL_PORT_STATS_CUSTOM`.
const OF_RFC2819: u32 = 1;
const CUSTOM: u32 = 2;
/// `OFPMPF_REPLY_MORE`.
const MORE: u16 = 1;
/// Bytes of a multipart message before its entries.
const MULTIPART_HEADER: usize = HEADER_LEN + 8;

/// Decodes a message of a switch's reply, and tells whether others follow.
pub fn decode_port_stats(frame: &[u8]) -> Result<(Vec<PortStats>, bool), Refusal> {
    let body = frame.get(HEADER_LEN..).unwrap_or_default();
    let is_reply = frame.get(1) == Some(&k::MULTIPART_REPLY);
    if !is_reply || u16_at(body, 0) != Some(stats::PORT_STATS) {
        let detail = "no statistics of ports";
        return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_TYPE, detail));
    }
    let mut entries = Reader::new(frame.get(MULTIPART_HEADER..).unwrap_or_default());
    let mut ports = Vec::new();
    while !entries.is_empty() {
        let length = u16_at(entries.peek(), 0).unwrap_or_default();
        // One that is too short for its fields is refused below.
        ports.push(port(entries.bytes(usize::from(length).max(2))?)?);
    }
    Ok((
        ports,
        u16_at(body, 2).is_some_and(|flags| flags & MORE != 0),
    ))
}

pub(super) fn entry(port: &PortStats) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.put_u32(port.port_no);
    out.put_u32(port.duration_sec);
    out.put_u32(port.duration_nsec);
    port.put_traffic(&mut out);
    out.put(&[0, 0, 0, 40, 0, 0, 0, 0]);
    port.put_ethernet_errors(&mut out);
    let intel = port.intel.as_deref();
    property(&mut out, OF_RFC2819, |out| {
        out.zeros(4);
        let uncounted = [u64::MAX; RFC2819];
        let counters = intel.map_or(uncounted, |intel| intel.rfc2819);
        counters.into_iter().for_each(|count| out.put_u64(count));
    });
    if let Some(intel) = intel.filter(|intel| !intel.custom.is_empty()) {
        property(&mut out, CUSTOM, |out| {
            out.zeros(2);
            out.put_u16(u16::try_from(intel.custom.len()).unwrap_or(u16::MAX));
            for (name, count) in &intel.custom {
                let name = name.get(..usize::from(u8::MAX)).unwrap_or(name);
                out.put_u8(name.len() as u8); // shortened
                out.put(name);
                out.put_u64(*count);
            }
        });
    }
    patch_length(&mut out, 0, 0);
    out
}

fn property(out: &mut Vec<u8>, kind: u32, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(EXPERIMENTER);
    out.put_u16(0);
    out.put_u32(INTEL);
    out.put_u32(kind);
    content(out);
    patch_length(out, start, 2);
    out.zeros(padded(out.len()) - out.len());
}

fn port(entry: &[u8]) -> Result<PortStats, Refusal> {
    let mut reader = Reader::new(entry);
    reader.skip(4)?;
    let (port_no, duration_sec, duration_nsec) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let mut port = PortStats {
        port_no,
        duration_sec,
        duration_nsec,
        ..PortStats::default()
    };
    port.pull_traffic(&mut reader)?;
    let mut intel = None;
    for property in Properties::new(reader.rest()) {
        let (kind, content) = property?;
        let mut reader = Reader::new(content);
        match kind {
            ETHERNET => {
                reader.skip(4)?;
                port.pull_ethernet_errors(&mut reader)?;
            }
            EXPERIMENTER if reader.u32()? == INTEL => {
                let intel: &mut IntelPortStats = intel.get_or_insert_with(Default::default);
                match reader.u32()? {
                    OF_RFC2819 => {
                        reader.skip(4)?;
                        for count in &mut intel.rfc2819 {
                            *count = reader.u64()?;
                        }
                    }
                    CUSTOM => custom(&mut reader, content, intel)?,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    port.intel = intel.map(Box::new);
    Ok(port)
}

fn custom(
    reader: &mut Reader<'_>,
    content: &[u8],
    into: &mut IntelPortStats,
) -> Result<(), Refusal> {
    reader.skip(2)?;
    let count = reader.u16()?;
    into.custom.clear();
    for _ in 0..count {
        let length = reader.u8()?;
        let name = reader.bytes(length.into())?.into();
        into.custom.push((name, reader.u64()?));
    }
    match reader.is_empty() {
        true => Ok(()),
        false => Err(bad_content(EXPERIMENTER, content)),
    }
}
