//! The fingerprint of a packet: from its headers, and as text.

use std::fmt::Write;

use crate::{
    octets::Octets,
    signatures::{option, quirk, Fingerprint, MAX_OPTIONS},
    view::{Captured, Ip},
};

/// Flags of TCP.
pub mod flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

/// The length of a TCP header without options.
const TCP: usize = 20;
/// Sizes from here on have an asterisk.
const BIG: u16 = 100;

/// The way in which an operating system was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Syn = 1,
    SynAck,
    Fin,
    Rst,
    Ack,
    Udp,
    Icmp,
    Dhcp,
}

impl Way {
    /// Returns the protocol and the name in PRADS' lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Syn => "6,SYN",
            Self::SynAck => "6,SYNACK",
            Self::Fin => "6,FIN",
            Self::Rst => "6,RST",
            Self::Ack => "6,ACK",
            Self::Udp => "17,UDP",
            Self::Icmp => "1,ICMP",
            Self::Dhcp => "17,DHCP",
        }
    }

    /// Returns the way with a number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        let all = [
            Self::Syn,
            Self::SynAck,
            Self::Fin,
            Self::Rst,
            Self::Ack,
            Self::Udp,
            Self::Icmp,
            Self::Dhcp,
        ];
        all.into_iter().find(|way| *way as u8 == number)
    }
}

/// Returns the fingerprint of a TCP packet. None: its IP header is not whole.
#[must_use]
pub fn of_tcp(frame: &Captured<'_>, ip: &Ip, way: Way) -> Option<Fingerprint> {
    let octets = frame.octets;
    let length = ip.length(octets);
    let (mut fingerprint, end) = if ip.is_v6 {
        let end = frame.end().min(ip.at + 40 + usize::from(length));
        let label = octets.four(ip.at) & 0x000f_ffff;
        let fingerprint = Fingerprint {
            quirks: if label == 0 {
                quirk::ZERO_ID
            } else {
                quirk::FLOW_LABEL
            },
            dont_fragment: true,
            ..Fingerprint::default()
        };
        (whole(ip.at + 40, end).then_some(fingerprint)?, end)
    } else {
        of_ip(frame, ip)?
    };
    fingerprint.ttl = ip.ttl(octets);
    fingerprint.size = if way == Way::Ack { 0 } else { length };
    let tcp = ip.transport(octets);
    fingerprint.window = octets.two(tcp + 14);
    fingerprint.quirks |= quirks_of(octets, tcp, way);
    let options = 4 * usize::from(octets.byte(tcp + 12) >> 4);
    if tcp + options < end && way != Way::Ack {
        fingerprint.quirks |= quirk::DATA;
    }
    let options = options.saturating_sub(TCP);
    parse_options(octets, tcp + TCP, options, frame.end(), &mut fingerprint);
    Some(fingerprint)
}

fn whole(needed: usize, end: usize) -> bool {
    needed <= end
}

/// Returns what an IPv4 header shows, and where the packet ends. None: the header is not whole.
fn of_ip(frame: &Captured<'_>, ip: &Ip) -> Option<(Fingerprint, usize)> {
    let octets = frame.octets;
    let end = frame.end().min(ip.at + usize::from(ip.length(octets)));
    let words = ip.words(octets);
    if !whole(ip.at + 20, end) || words < 5 {
        return None;
    }
    let mut fingerprint = Fingerprint {
        dont_fragment: octets.two(ip.at + 6) & 0x4000 != 0,
        ..Fingerprint::default()
    };
    if words > 5 {
        fingerprint.quirks |= quirk::IP_OPTIONS;
    }
    if octets.two(ip.at + 4) == 0 {
        fingerprint.quirks |= quirk::ZERO_ID;
    }
    Some((fingerprint, end))
}

fn quirks_of(octets: Octets<'_>, tcp: usize, way: Way) -> u32 {
    let flags = octets.byte(tcp + 13);
    let (sequence, acknowledgement) = (octets.four(tcp + 4), octets.four(tcp + 8));
    let push = if way == Way::Ack { flag::PSH } else { 0 };
    let usual = flag::SYN | flag::ACK | flag::RST | flag::ECE | flag::CWR | push;
    let is_ack = flags & flag::ACK != 0;
    [
        (way == Way::Rst && is_ack, quirk::RST_ACK),
        (way == Way::Fin && is_ack, quirk::FIN_ACK),
        (sequence == acknowledgement, quirk::SEQUENCE_IS_ACK),
        (sequence == 0, quirk::SEQUENCE_0),
        (flags & !usual != 0, quirk::FLAGS),
        (acknowledgement != 0, quirk::ACK),
        (octets.two(tcp + 18) != 0, quirk::URGENT),
        (octets.byte(tcp + 12) & 15 != 0, quirk::RESERVED),
    ]
    .into_iter()
    .fold(
        0,
        |quirks, (holds, quirk)| if holds { quirks | quirk } else { quirks },
    )
}

/// Parses TCP options, `length` bytes from `at` on. Options that are not whole before `end` are a quirk.
fn parse_options(
    octets: Octets<'_>,
    at: usize,
    length: usize,
    end: usize,
    fingerprint: &mut Fingerprint,
) {
    let (mut at, mut left) = (at, length as isize);
    let mut count = 0;
    let mut is_broken = false;
    while left > 0 {
        let kind = octets.byte(at);
        let is_there = at < octets.len();
        (at, left) = (at + 1, left - 1);
        let rest = rest_of_option(octets, kind, at, end).filter(|_| is_there);
        let Some(rest) = rest else {
            is_broken = true;
            break;
        };
        fingerprint.options[count] = kind;
        note_option(octets, kind, at, left > 0, fingerprint);
        (at, left) = (at + rest, left - rest as isize);
        count += 1;
        if count >= MAX_OPTIONS - 1 || (left > 0 && at >= end) {
            is_broken = true;
            break;
        }
    }
    fingerprint.option_count = count as u8;
    if is_broken {
        fingerprint.quirks |= quirk::BROKEN;
    }
}

/// Returns the length of an option after its kind. None: it is not whole, or its length is wrong.
fn rest_of_option(octets: Octets<'_>, kind: u8, at: usize, end: usize) -> Option<usize> {
    let within = |length: usize| (at + length <= end).then_some(length);
    match kind {
        option::END | option::NOP => Some(0),
        option::SACK_PERMITTED => Some(1),
        option::SEGMENT_SIZE => within(3),
        option::WINDOW_SCALE => within(2),
        option::TIMESTAMP => within(9),
        _ => {
            within(1)?;
            let rest = usize::from(octets.byte(at)).checked_sub(1)?;
            (rest <= 32).then_some(rest)
        }
    }
}

fn note_option(octets: Octets<'_>, kind: u8, at: usize, more: bool, fingerprint: &mut Fingerprint) {
    match kind {
        option::END if more => fingerprint.quirks |= quirk::PAST,
        option::SEGMENT_SIZE => fingerprint.segment_size = octets.two(at + 1),
        option::WINDOW_SCALE => fingerprint.window_scale = octets.byte(at + 1).into(),
        option::TIMESTAMP => {
            fingerprint.stamp = octets.four(at + 1);
            if octets.four(at + 5) != 0 {
                fingerprint.quirks |= quirk::SECOND_STAMP;
            }
        }
        _ => {}
    }
}

/// Returns the text of a TCP fingerprint: `window:ttl:df:size:options:quirks`.
#[must_use]
pub fn text(fingerprint: &Fingerprint) -> String {
    let mut out = window_text(fingerprint.window, fingerprint.segment_size);
    let (ttl, flag) = (fingerprint.ttl, u8::from(fingerprint.dont_fragment));
    let _ = match fingerprint.size {
        size @ BIG.. => write!(out, ":{ttl}:{flag}:*({size}):"),
        size => write!(out, ":{ttl}:{flag}:{size}:"),
    };
    let options = options_text(fingerprint);
    out.push_str(&options);
    // A single letter is followed by a period, as none is.
    if options.len() < 2 {
        out.push('.');
    }
    out.push(':');
    out.push_str(&letters(fingerprint.quirks));
    out
}

fn window_text(window: u16, segment_size: u16) -> String {
    let (window, size) = (u32::from(window), u32::from(segment_size));
    let units = [
        ("S", size, 0),
        ("S", 1460, 0),
        ("T", size, 40),
        ("T", 1500, 0),
    ];
    let found = units
        .into_iter()
        .find(|(_, unit, headers)| window != 0 && *unit != 0 && window % (unit + headers) == 0);
    match found {
        Some((letter, unit, headers)) => format!("{letter}{}", window / (unit + headers)),
        None if window == 12345 => "*(12345)".into(),
        None => window.to_string(),
    }
}

fn options_text(fingerprint: &Fingerprint) -> String {
    let count = usize::from(fingerprint.option_count).min(MAX_OPTIONS);
    let each = fingerprint.options[..count].iter().map(|kind| match *kind {
        option::NOP => "N".into(),
        option::END => "E".into(),
        option::SACK_PERMITTED => "S".into(),
        option::WINDOW_SCALE => format!("W{}", fingerprint.window_scale),
        option::SEGMENT_SIZE => format!("M{}", fingerprint.segment_size),
        option::TIMESTAMP if fingerprint.stamp == 0 => "T0".into(),
        option::TIMESTAMP => "T".into(),
        kind => format!("?{kind}"),
    });
    each.collect::<Vec<String>>().join(",")
}

fn letters(quirks: u32) -> String {
    if quirks == 0 {
        return ".".into();
    }
    let present = quirk::LETTERS.iter().filter(|(bit, _)| quirks & bit != 0);
    present.map(|(_, letter)| char::from(*letter)).collect()
}

/// Returns the text of what a UDP datagram's IPv4 header shows. None: the header is not whole.
#[must_use]
pub fn of_udp(frame: &Captured<'_>, ip: &Ip) -> Option<String> {
    let Traits {
        head,
        fragment,
        quirks,
    } = traits_of(frame, ip)?;
    let service = frame.octets.byte(ip.at + 1);
    Some(format!("20:{head}:{fragment}:{service}:{quirks}"))
}

/// Returns the text of what an ICMP message's headers show. None: the IP header is not whole. PRADS puts the low bits of an address in its own memory in front;
/// here it is 0.
#[must_use]
pub fn of_icmp(frame: &Captured<'_>, ip: &Ip) -> Option<String> {
    let traits = traits_of(frame, ip)?;
    let octets = frame.octets;
    let icmp = ip.transport(octets);
    let (kind, code) = (octets.byte(icmp), octets.byte(icmp + 1));
    let length = ip.length(octets);
    let Traits {
        head,
        fragment,
        quirks,
    } = traits;
    Some(format!(
        "0:{kind}:{code}:{head}:{length}:{fragment}:{quirks}"
    ))
}

/// The traits of an IPv4 header, as text.
struct Traits {
    /// The rounded TTL, the flag *don't fragment*, and the length of options.
    head: String,
    /// The field of flags and offset, with its bytes exchanged.
    fragment: u16,
    quirks: String,
}

fn traits_of(frame: &Captured<'_>, ip: &Ip) -> Option<Traits> {
    let (fingerprint, _) = of_ip(frame, ip)?;
    let octets = frame.octets;
    let options = 4 * (ip.words(octets) - 5);
    let ttl = rounded(ip.ttl(octets));
    Some(Traits {
        head: format!("{ttl}:{}:{options}", u8::from(fingerprint.dont_fragment)),
        fragment: octets.two(ip.at + 6).swap_bytes(),
        quirks: letters(fingerprint.quirks | quirk::IP_OPTIONS),
    })
}

/// Returns the TTL with which a packet probably started.
#[must_use]
pub fn rounded(ttl: u8) -> u8 {
    match ttl {
        129.. => 255,
        65.. => 128,
        33.. => 64,
        _ => 32,
    }
}
