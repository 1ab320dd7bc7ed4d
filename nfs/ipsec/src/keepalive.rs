//! Keepalives: a silent gateway behind a NAT keeps its mapping there (RFC 3948, 4).

use std::sync::atomic::Ordering;

use nf_packet::{ethertype, Udp};

use crate::{
    outer::{self, Outer},
    pass::Pass,
    setup::Tunnel,
};

const ETHERNET: usize = 14;
const CONTENT: u8 = 0xff;
const LONGEST: usize = ETHERNET + 40 + Udp::HEADER + 1;

impl Pass<'_> {
    /// Sends keepalives on the tunnels that were silent for long enough.
    pub(crate) fn keep_alive(&mut self) {
        let (setup, now) = (self.setup, self.link.context.now());
        for tunnel in &setup.tunnels {
            let Some(interval) = tunnel.config.keepalive else {
                continue;
            };
            if now.saturating_sub(tunnel.sent.load(Ordering::Relaxed)) >= interval.nanos() {
                tunnel.sent.store(now, Ordering::Relaxed);
                self.send_keepalive(tunnel);
            }
        }
    }

    fn send_keepalive(&mut self, tunnel: &Tunnel) {
        let peer = tunnel.peer();
        // Without a MAC address, asking for it is the first packet.
        let Some(mac) = self.toward(tunnel, peer) else {
            return;
        };
        let mut frame = [0; LONGEST];
        let is_ipv4 = peer.address.is_ipv4();
        let length = ETHERNET + outer::length(is_ipv4, true) + 1;
        let frame = &mut frame[..length];
        let ethertype = match is_ipv4 {
            true => ethertype::IPV4,
            false => ethertype::IPV6,
        };
        frame[..6].copy_from_slice(&mac.0);
        frame[6..12].copy_from_slice(&self.link.mac(self.outside()).0);
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame[length - 1] = CONTENT;
        let outer = Outer {
            local: tunnel.config.local,
            peer,
            udp: true,
            class: 0,
            dont_fragment: true,
            identification: 0,
        };
        if outer.write(&mut frame[ETHERNET..]).is_some() {
            self.link.out.emit(self.outside(), frame);
        }
    }
}
