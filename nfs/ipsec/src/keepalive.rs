//! Keepalives: a silent gateway behind a NAT keeps its mapping there (RFC 3948, 4).

use std::sync::atomic::Ordering;

use nf_packet::Udp;

use crate::{
    outer::{sum_udp6, Outer, ETHERNET},
    pass::Pass,
    setup::Tunnel,
};

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
        let outer = Outer {
            local: tunnel.config.local,
            peer,
            udp: true,
        };
        let mut frame = [0; LONGEST];
        let frame = &mut frame[..outer.front() + 1];
        if let Some(content) = frame.last_mut() {
            *content = CONTENT;
        }
        let from = self.link.mac(self.outside());
        if outer.write(frame, mac, from).is_some() {
            if !tunnel.config.local.is_ipv4() {
                sum_udp6(frame);
            }
            self.link.out.emit(self.outside(), frame);
        }
    }
}
