//! Segmentation in software, for outputs that take only complete frames. It does what a network card does with `Offloads`.

use crate::{
    checksum::{self, fold, sum},
    frame::{Frame, Network, Offloads, PartialChecksum, Segments},
};

/// The error of a frame whose offloads do not fit its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// The offsets of fields in a TCP header.
const SEQUENCE: usize = 4;
const HEADER_LENGTH: usize = 12;
const FLAGS: usize = 13;

/// Passes a frame to `each` as it appears on the wire: itself, with its checksum, or as segments, in order. `buffer` is the memory for it.
///
/// # Errors
/// If the offloads do not fit the frame's headers; `each` was not called.
pub fn finish(
    frame: Frame<'_>,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Result<(), Unfit> {
    match frame.offloads {
        Offloads::None => each(frame.bytes),
        Offloads::Checksum(PartialChecksum { start, field }) => {
            buffer.clear();
            buffer.extend_from_slice(frame.bytes);
            if !checksum::complete(buffer, start.into(), field.into()) {
                return Err(Unfit);
            }
            each(buffer);
        }
        Offloads::Segments(checksum, segments) => {
            let plan = Plan::of(frame.bytes, checksum, segments).ok_or(Unfit)?;
            let size = usize::from(segments.size.get());
            let payload = &frame.bytes[plan.payload..];
            let count = payload.len().div_ceil(size).max(1);
            for index in 0..count {
                let from = index * size;
                let part = &payload[from..payload.len().min(from + size)];
                plan.write(buffer, frame.bytes, part, index, index + 1 == count);
                each(buffer);
            }
        }
    }
    Ok(())
}

/// The positions of headers in a frame of several segments.
struct Plan {
    network: Network,
    ip: usize,
    tcp: usize,
    payload: usize,
    size: usize,
    /// The sum of the pseudo-header without the length.
    pseudo: u64,
}

impl Plan {
    /// Returns None if the headers are not those of the offloads.
    fn of(frame: &[u8], checksum: PartialChecksum, segments: Segments) -> Option<Self> {
        let (ethertype, ip) = checksum::network(frame)?;
        let (expected, shortest) = match segments.network {
            Network::Ipv4 => (0x0800, 20),
            Network::Ipv6 => (0x86dd, 40),
        };
        let tcp = usize::from(checksum.start);
        if ethertype != expected || checksum.field != PartialChecksum::TCP || tcp < ip + shortest {
            return None;
        }
        if segments.network == Network::Ipv4 && ip + usize::from(frame.get(ip)? & 0xf) * 4 != tcp {
            return None;
        }
        let header = usize::from(frame.get(tcp + HEADER_LENGTH)? >> 4) * 4;
        let payload = tcp + header;
        if header < 20 || payload > frame.len() {
            return None;
        }
        let field = tcp + usize::from(PartialChecksum::TCP);
        let field = u16::from_be_bytes([frame[field], frame[field + 1]]);
        // The field covers the length of the whole: subtracting it is adding its complement (RFC 1624).
        let length = fold((frame.len() - tcp) as u64);
        Some(Self {
            network: segments.network,
            ip,
            tcp,
            payload,
            size: segments.size.get().into(),
            pseudo: u64::from(field) + u64::from(!length),
        })
    }

    /// Writes the segment with this index, whose payload is `part`.
    fn write(&self, out: &mut Vec<u8>, frame: &[u8], part: &[u8], index: usize, is_last: bool) {
        out.clear();
        out.extend_from_slice(&frame[..self.payload]);
        out.extend_from_slice(part);
        let length = out.len();
        let ip = &mut out[self.ip..self.tcp];
        match self.network {
            Network::Ipv4 => {
                let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
                ip[2..4].copy_from_slice(&((length - self.ip) as u16).to_be_bytes());
                ip[4..6].copy_from_slice(&id.to_be_bytes());
                ip[10..12].fill(0);
                let sum = !fold(sum(ip));
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Network::Ipv6 => {
                let payload = (length - self.ip - 40) as u16;
                ip[4..6].copy_from_slice(&payload.to_be_bytes());
            }
        }
        let tcp = &mut out[self.tcp..];
        let first = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let sequence = first.wrapping_add((index * self.size) as u32);
        tcp[SEQUENCE..SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
        if !is_last {
            tcp[FLAGS] &= !(FIN | PSH);
        }
        if index > 0 {
            tcp[FLAGS] &= !CWR;
        }
        let pseudo = fold(self.pseudo + tcp.len() as u64);
        let field = usize::from(PartialChecksum::TCP);
        tcp[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        // The field is inside the header.
        let _ = checksum::complete(out, self.tcp, field);
    }
}

#[cfg(test)]
mod tests;
