//! PRADS' log lines.

use std::{
    io::Write,
    net::{Ipv4Addr, Ipv6Addr},
};

use crate::{
    fingerprint::{rounded, Way},
    register::{kind, Address, Finding, Host},
};

/// Returns an address as text, in the way of the C library.
#[must_use]
pub fn address(address: &Address) -> String {
    let v6 = Ipv6Addr::from(address.octets);
    let [.., a, b, c, d] = address.octets;
    let v4 = Ipv4Addr::new(a, b, c, d);
    match v6.segments() {
        _ if address.version == 4 => v4.to_string(),
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => format!("::{v4}"),
        _ => v6.to_string(),
    }
}

/// Returns a MAC address as text.
#[must_use]
pub fn mac(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02X}")).join(":")
}

/// Writes the line of a finding.
pub fn finding(host: &Host, finding: &Finding, text: &[u8], out: &mut Vec<u8>) {
    let (address, vlan, port) = (address(&host.address), host.vlan, finding.port);
    let _ = match (finding.kind, Way::numbered(finding.way)) {
        (kind::SYSTEM, Some(way)) => write!(out, "{address},{vlan},{port},{},[", way.name()),
        _ => {
            let role = if finding.is_server != 0 {
                "SERVER"
            } else {
                "CLIENT"
            };
            write!(out, "{address},{vlan},{port},{},{role},[", finding.way)
        }
    };
    out.extend_from_slice(text);
    let distance = rounded(finding.ttl) - finding.ttl;
    let _ = writeln!(out, "],{distance},{}", finding.last_seen);
}

/// Writes the line of a MAC address; `way` is how it was learnt, with its protocol.
pub fn link_address(host: &Host, vendor: Option<&[u8]>, way: &str, out: &mut Vec<u8>) {
    let (address, vlan, mac) = (address(&host.address), host.vlan, mac(host.mac));
    let _ = write!(out, "{address},{vlan},0,{way},[{mac}");
    if let Some(vendor) = vendor {
        out.extend_from_slice(b",(");
        out.extend_from_slice(vendor);
        out.push(b')');
    }
    let _ = writeln!(out, "],0,{}", host.last_seen);
}
