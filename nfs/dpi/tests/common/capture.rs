//! Packets of capture files as ndpiReader takes them: a port of `ndpi_workflow_process_packet` and `get_ndpi_flow_info` of nDPI 4.2's example/reader_util.c, with its
//! option -t. It decides what counts as a flow, so that the numbers of flows are ndpiReader's.

use std::{collections::HashMap, fs::File, io::BufReader, path::Path, time::Duration};

use pcap_file::{
    pcap::PcapReader,
    pcapng::{Block, PcapNgReader},
    TsResolution,
};

const NULL: u32 = 0;
const ETHERNET: u32 = 1;
const PPP: u32 = 9;
const RAW: [u32; 3] = [12, 14, 101];
const PPP_SERIAL: u32 = 50;
const C_HDLC: u32 = 104;
const LINUX_SLL: u32 = 113;
const RADIOTAP: u32 = 127;
const IPV4: u32 = 228;
const IPV6: u32 = 229;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet of a flow.
pub struct Captured {
    /// In the order of the flows' first packets, from 0 on.
    pub flow: u64,
    pub time_ms: u64,
    /// From the IP header on, with what the frame has behind it.
    pub bytes: Vec<u8>,
}

/// Returns the packets that ndpiReader looks at, and the number of flows. None: libpcap or ndpiReader does not read such a file.
pub fn read(path: &Path) -> Option<(Vec<Captured>, u64)> {
    let mut flows: HashMap<Key, u64> = HashMap::new();
    let (mut packets, mut last) = (Vec::new(), 0);
    for (link, time, frame) in frames(path)? {
        // ndpiReader repairs times that go back.
        last = last.max(time.as_millis() as u64);
        let Some((vlan, offset)) = locate(&frame, link) else {
            continue;
        };
        let Some(key) = key(&frame[offset..], vlan) else {
            continue;
        };
        let next = flows.len() as u64;
        packets.push(Captured {
            flow: *flows.entry(key).or_insert(next),
            time_ms: last,
            bytes: frame[offset..].to_vec(),
        });
    }
    Some((packets, flows.len() as u64))
}

fn frames(path: &Path) -> Option<Vec<(u32, Duration, Vec<u8>)>> {
    let open = || File::open(path).ok().map(BufReader::new);
    let mut frames = Vec::new();
    if let Ok(mut reader) = PcapReader::new(open()?) {
        let header = reader.header();
        let link = u32::from(header.datalink) & 0xffff;
        let unit = match header.ts_resolution {
            TsResolution::MicroSecond => 1000,
            TsResolution::NanoSecond => 1,
        };
        // As they are: some have lengths and times that the crate's other packets must not have.
        while let Some(Ok(packet)) = reader.next_raw_packet() {
            let fraction = Duration::from_nanos(u64::from(packet.ts_frac) * unit);
            let time = Duration::from_secs(u64::from(packet.ts_sec)) + fraction;
            frames.push((link, time, packet.data.into_owned()));
        }
        return Some(frames);
    }
    let mut reader = PcapNgReader::new(open()?).ok()?;
    let mut links: Vec<(u32, u64)> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.ok()? {
            Block::InterfaceDescription(interface) => {
                links.push((u32::from(interface.linktype), resolution(&interface)));
            }
            Block::EnhancedPacket(packet) => {
                let (link, per_second) = links[packet.interface_id as usize];
                // The crate takes every number for nanoseconds.
                let ticks = u64::try_from(packet.timestamp.as_nanos()).ok()?;
                let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(per_second);
                let time = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
                frames.push((link, time, packet.data.into_owned()));
            }
            _ => {}
        }
    }
    Some(frames)
}

/// The ticks of an interface's clock in a second.
fn resolution(
    interface: &pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock<'_>,
) -> u64 {
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption::IfTsResol;
    let found = interface.options.iter().find_map(|option| match option {
        IfTsResol(value) => Some(*value),
        _ => None,
    });
    match found {
        Some(value) if value & 0x80 != 0 => 1 << (value & 0x7f),
        Some(value) => 10_u64.pow(u32::from(value)),
        None => 1_000_000,
    }
}

/// A frame; what lies behind its end is 0.
struct Frame<'a>(&'a [u8]);

impl Frame<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    fn has(&self, end: usize) -> bool {
        self.0.len() >= end
    }
}

/// Finds the innermost IP header, and the VLAN.
fn locate(frame: &[u8], mut link: u32) -> Option<(u16, usize)> {
    let frame = Frame(frame);
    let (mut start, mut vlan) = (0, 0);
    if RAW.contains(&link) {
        link = RAW[0];
    }
    loop {
        if !frame.has(start + 28) {
            return None;
        }
        let (kind, offset) = behind_link(&frame, link, start)?;
        let (kind, offset) = behind_tags(&frame, kind, offset, &mut vlan)?;
        match inner_ip(&frame, kind, offset)? {
            Inner::Ip(offset) => return Some((vlan, offset)),
            Inner::Ethernet(offset) => start = offset,
        }
    }
}

/// Returns the EtherType and where it ends.
fn behind_link(frame: &Frame<'_>, link: u32, start: usize) -> Option<(u16, usize)> {
    match link {
        NULL => {
            let family = [0, 1, 2, 3].map(|at| frame.byte(start + at));
            let ipv4 = u32::from_be_bytes(family) == 2;
            Some((if ipv4 { 0x800 } else { 0x86dd }, start + 4))
        }
        PPP_SERIAL => Some((frame.word(start + 2), start + 4)),
        C_HDLC | PPP if matches!(frame.byte(0), 0x0f | 0x8f) => {
            Some((frame.word(start + 2), start + 4))
        }
        C_HDLC | PPP => Some((frame.word(start), start + 2)),
        IPV4 => Some((0x800, 0)),
        IPV6 => Some((0x86dd, 0)),
        ETHERNET => {
            let (kind, offset) = (frame.word(start + 12), start + 14);
            match kind {
                1..=1500 if frame.byte(offset) == 0xaa || frame.byte(offset + 1) == 0xaa => {
                    // Not turned round there.
                    Some((frame.word(offset + 6).swap_bytes(), offset + 8))
                }
                1..=1500 if frame.byte(offset) == 0x42 || frame.byte(offset + 1) == 0x42 => None,
                0..=1535 => Some((0, offset)),
                _ => Some((kind, offset)),
            }
        }
        LINUX_SLL => Some((frame.word(start + 14), start + 16)),
        RADIOTAP => behind_radio(frame, start),
        _ if link == RAW[0] => Some((0, 0)),
        _ => None,
    }
}

fn behind_radio(frame: &Frame<'_>, start: usize) -> Option<(u16, usize)> {
    let length = usize::from(frame.word(start + 2).swap_bytes());
    if frame.byte(start + 16) & 0x50 == 0x50 || !frame.has(start + length + 24) {
        return None;
    }
    let control = frame.word(start + length).swap_bytes();
    if (control >> 2) & 3 != 2 {
        return Some((0, 0)); // not data: the frame itself is taken for IP
    }
    let one_way = (control & 0x100 != 0) != (control & 0x200 != 0);
    let wifi = if one_way { 26 } else { 0 };
    let offset = start + length + wifi;
    if !frame.has(offset + 8) {
        return None;
    }
    let kind = if frame.byte(offset) == 0xaa {
        frame.word(offset + 6)
    } else {
        0
    };
    Some((kind, offset + 8))
}

fn behind_tags(
    frame: &Frame<'_>,
    mut kind: u16,
    mut offset: usize,
    vlan: &mut u16,
) -> Option<(u16, usize)> {
    loop {
        match kind {
            0x8100 => {
                if !frame.has(offset + 5) {
                    return None;
                }
                while kind == 0x8100 && frame.has(offset + 5) {
                    *vlan = frame.word(offset) & 0xfff;
                    (kind, offset) = (frame.word(offset + 2), offset + 4);
                }
            }
            0x8847 | 0x8848 => {
                let mut bottom = frame.byte(offset + 2) & 1 != 0;
                (kind, offset) = (0x800, offset + 4);
                while !bottom && frame.has(offset + 5) {
                    bottom = frame.byte(offset + 2) & 1 != 0;
                    offset += 4;
                }
            }
            0x8864 => (kind, offset) = (0x800, offset + 8),
            _ => return Some((kind, offset)),
        }
    }
}

enum Inner {
    Ip(usize),
    Ethernet(usize),
}

fn inner_ip(frame: &Frame<'_>, kind: u16, mut offset: usize) -> Option<Inner> {
    let mut fragment = 0;
    let (protocol, header) = loop {
        if !frame.has(offset + 20) {
            return None;
        }
        if kind == 0x800 {
            fragment = frame.word(offset + 6);
        }
        match frame.byte(offset) >> 4 {
            4 => {
                let header = usize::from(frame.byte(offset) & 15) * 4;
                let protocol = frame.byte(offset + 9);
                if matches!(protocol, 4 | 41) {
                    offset += header;
                    if header > 0 {
                        continue;
                    }
                }
                if fragment & 0x1fff != 0 {
                    return None;
                }
                break (protocol, header);
            }
            6 => {
                let length = usize::from(frame.word(offset + 4));
                if !frame.has(offset + 40 + length) {
                    return None;
                }
                let (protocol, at, left) = behind_ipv6(&frame.0[offset..])?;
                if matches!(protocol, 4 | 41) {
                    offset += at;
                    continue;
                }
                // The length of the rest, not its beginning.
                break (protocol, left);
            }
            _ => return None,
        }
    };
    if protocol != UDP {
        return Some(Inner::Ip(offset));
    }
    tunnel(frame, offset, offset + header)
}

/// Looks into GTP, TZSP and CAPWAP.
fn tunnel(frame: &Frame<'_>, outer: usize, udp: usize) -> Option<Inner> {
    if !frame.has(udp + 8) {
        return None;
    }
    let ports = [frame.word(udp), frame.word(udp + 2)];
    let start = udp + 8;
    if ports.contains(&2152) && frame.0.len() > start + 8 {
        let flags = frame.byte(start);
        if flags >> 5 == 1 && frame.byte(start + 1) == 0xff {
            return gtp(frame, outer, start, flags);
        }
    } else if ports.contains(&0x9090) {
        return tzsp(frame, outer, start);
    } else if ports.contains(&5247) && start + 1 < frame.0.len() && frame.byte(start) & 15 == 0 {
        let inner = start + usize::from((frame.byte(start + 1) & 0xf8) >> 1);
        if inner + 32 < frame.0.len() {
            let kind = frame.word(inner + 24 + 6);
            return inner_ip(frame, kind, inner + 32);
        }
    }
    Some(Inner::Ip(outer))
}

fn gtp(frame: &Frame<'_>, outer: usize, start: usize, flags: u8) -> Option<Inner> {
    let mut at = start + 8 + if flags & 7 != 0 { 4 } else { 0 };
    let mut bad = false;
    while flags & 4 != 0 && at < frame.0.len() {
        let length = usize::from(frame.byte(at)) << 2;
        at += length;
        bad = at >= frame.0.len() || length == 0;
        if bad || frame.byte(at - 1) == 0 {
            break;
        }
    }
    if at >= frame.0.len() || bad {
        return Some(Inner::Ip(outer));
    }
    let header = match frame.byte(at) >> 4 {
        4 => 20,
        6 => 40,
        _ => return None,
    };
    frame.has(at + header).then_some(Inner::Ip(at))
}

fn tzsp(frame: &Frame<'_>, outer: usize, start: usize) -> Option<Inner> {
    if !frame.has(start + 4) {
        return None;
    }
    if (
        frame.byte(start),
        frame.byte(start + 1),
        frame.word(start + 2),
    ) != (1, 0, 1)
    {
        return Some(Inner::Ip(outer));
    }
    let at = start + 4;
    if at >= frame.0.len() {
        return Some(Inner::Ip(outer));
    }
    // It looks at one tag only.
    let length = match frame.byte(at) {
        0 | 1 => 1,
        _ => usize::from(frame.byte(at + 1)),
    };
    (at + length < frame.0.len()).then_some(Inner::Ethernet(at + length))
}

/// Returns the protocol behind the extension headers, where it begins, and its length: `ndpi_handle_ipv6_extension_headers`.
fn behind_ipv6(packet: &[u8]) -> Option<(u8, usize, usize)> {
    let packet = Frame(packet);
    let mut all = packet.0.len().checked_sub(40)? & 0xffff;
    let mut left = usize::from(packet.word(4));
    let (mut next, mut at) = (packet.byte(6), 40);
    while all > 1 && matches!(next, 0 | 43 | 44 | 60 | 135 | 59) {
        match next {
            59 => return None,
            44 => {
                if left < 8 || all < 5 || packet.word(at + 2) >> 3 != 0 {
                    return None;
                }
                (next, all, left, at) = (packet.byte(at), all - 5, left - 8, at + 8);
            }
            _ => {
                let length = usize::from(packet.byte(at + 1)) * 8 + 8;
                if left < 2 || length > all || left < length {
                    return None;
                }
                (next, all, left, at) = (packet.byte(at), all - length, left - length, at + length);
            }
        }
    }
    Some((next, left, at)).map(|(next, left, at)| (next, at, left))
}

/// VLAN, protocol, and the two ends in ascending order.
type Key = (u16, u8, [(u32, u16); 2]);

fn key(packet: &[u8], vlan: u16) -> Option<Key> {
    let frame = Frame(packet);
    let address = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| frame.byte(at + byte)));
    let size = packet.len() & 0xffff;
    let (protocol, at, length, ends) = if frame.byte(0) >> 4 == 4 {
        let header = usize::from(frame.byte(0) & 15) * 4;
        let total = usize::from(frame.word(2));
        if size < 20 || header > size || size < total {
            return None;
        }
        let length = total.wrapping_sub(header) & 0xffff;
        (frame.byte(9), header, length, [address(12), address(16)])
    } else {
        if size < 40 {
            return None;
        }
        let (protocol, at, length) = behind_ipv6(packet)?;
        // IPv6 addresses are kept as a sum of their last two words.
        let sum = |start: usize| address(start + 8).wrapping_add(address(start + 12));
        (protocol, at, length, [sum(8), sum(24)])
    };
    if at > size || size < at + length {
        return None;
    }
    let has_ports = protocol == TCP && length >= 20 || protocol == UDP && length >= 8;
    let port = |offset: usize| {
        if has_ports {
            frame.word(at + offset)
        } else {
            0
        }
    };
    let mut ends = [(ends[0], port(0)), (ends[1], port(2))];
    ends.sort_unstable();
    Some((vlan, protocol, ends))
}
