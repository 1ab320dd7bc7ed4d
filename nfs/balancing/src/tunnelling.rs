//! Puts packets into tunnels.

use nf_packet::{ethertype, Headers, MacAddress, Tunnel, Version};
use nf_runtime::Packet;

const ETHERNET: usize = 14;

/// Prepends a tunnel's header to the IP packet of a frame, without its padding; [`Link::send`](crate::link::Link::send) must follow. `entropy` and `from`:
/// see [`Tunnel::write`]. False: it does not fit.
#[must_use]
#[inline(always)]
pub fn encapsulate(
    packet: &mut Packet,
    headers: &Headers,
    tunnel: &Tunnel,
    entropy: u16,
    from: MacAddress,
) -> bool {
    let (network, overhead) = (usize::from(headers.network), tunnel.overhead());
    packet.truncate(headers.end as usize);
    let Some(frame) = packet.push_front(overhead) else {
        return false;
    };
    // VLAN tags move to the new front, together with the MAC addresses. Without tags, `send` writes the MAC addresses.
    if network != ETHERNET {
        frame.copy_within(overhead..overhead + network, 0);
    }
    let ethertype = match tunnel.version() {
        Version::V4 => ethertype::IPV4,
        Version::V6 => ethertype::IPV6,
    };
    frame[network - 2..network].copy_from_slice(&ethertype.to_be_bytes());
    let outer = &mut frame[network..];
    tunnel.write(outer, headers.version, entropy, from).is_ok()
}
