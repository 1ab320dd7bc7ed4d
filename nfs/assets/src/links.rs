//! MAC addresses: ARP, and IPv6's neighbour discovery.

use nf_runtime::state::SlabId;

use crate::{
    inspector::Inspector,
    lines,
    register::Address,
    view::{mapped, Captured, Ip},
};

const REPLY: u16 = 2;
/// Messages of neighbour discovery (RFC 4861, 4): router solicitation to neighbour advertisement.
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=136;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Options with the link-layer address of the source, and of the target.
const SOURCE: u8 = 1;
const TARGET: u8 = 2;
/// Messages are valid only with the hop limit of a sender on the link.
const ON_LINK: u8 = 255;
const IPV6: usize = 40;

/// Notes the address of an ARP reply's sender.
pub fn arp(
    inspector: &Inspector<'_>,
    frame: &Captured<'_>,
    at: usize,
    vlan: u16,
    lines: &mut Vec<u8>,
) {
    let octets = frame.octets;
    if octets.two(at + 6) != REPLY {
        return;
    }
    let address = Address {
        octets: mapped(octets.array(at + 14)),
        version: 4,
    };
    learn(
        inspector,
        frame,
        &address,
        (octets.array(at + 8), vlan),
        "0,ARP",
        lines,
    );
}

/// Notes the address that a message of neighbour discovery tells.
pub fn neighbour(inspector: &Inspector<'_>, frame: &Captured<'_>, ip: &Ip, lines: &mut Vec<u8>) {
    let octets = frame.octets;
    let message = ip.at + IPV6;
    let kind = octets.byte(message);
    if !DISCOVERY.contains(&kind) || ip.ttl(octets) != ON_LINK {
        return;
    }
    let [source, _] = ip.addresses(octets);
    let (host, wanted, options) = match kind {
        NEIGHBOUR_ADVERTISEMENT => (octets.array(message + 8), TARGET, 24),
        ROUTER_SOLICITATION => (source, SOURCE, 8),
        ROUTER_ADVERTISEMENT => (source, SOURCE, 16),
        _ => (source, SOURCE, 24),
    };
    let end = octets.len().min(message + usize::from(ip.length(octets)));
    let mac = link_option(frame, message + options, end, wanted);
    // A station without an address yet sends from the unspecified one.
    if let Some(mac) = mac.filter(|_| host != [0; 16]) {
        let address = Address {
            octets: host,
            version: 6,
        };
        learn(inspector, frame, &address, (mac, ip.vlan), "58,ND", lines);
    }
}

/// Finds an option with an Ethernet address.
fn link_option(frame: &Captured<'_>, start: usize, end: usize, wanted: u8) -> Option<[u8; 6]> {
    let octets = frame.octets;
    let mut at = start;
    while at + 8 <= end {
        let length = 8 * usize::from(octets.byte(at + 1));
        if octets.byte(at) == wanted && length == 8 {
            return Some(octets.array(at + 2));
        }
        if length == 0 {
            return None;
        }
        at += length;
    }
    None
}

/// Notes the MAC address of a host.
fn learn(
    inspector: &Inspector<'_>,
    frame: &Captured<'_>,
    address: &Address,
    (mac, vlan): ([u8; 6], u16),
    way: &str,
    lines: &mut Vec<u8>,
) {
    let register = inspector.register;
    let known = register.find(address);
    let id: Option<SlabId> = known.or_else(|| register.see(address, vlan, frame.time));
    let Some((id, host)) = id.and_then(|id| Some((id, register.host(id)?))) else {
        return;
    };
    register.touch(id, frame.time);
    if host.mac == mac {
        return;
    }
    let vendors = &inspector.signatures.vendors;
    // The vendor of the first address stays.
    let vendor = match host.vendor {
        0 => vendors.find(mac).unwrap_or(0),
        vendor => vendor,
    };
    register.set_mac(id, mac, vendor);
    if let Some(host) = register.host(id) {
        lines::link_address(&host, vendors.name(vendor), way, lines);
    }
}
