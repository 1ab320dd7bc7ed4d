//! The path MTU that routers tell between the gateways (RFC 4301, 8.2.1).

use nf_packet::{dissect_quoted, icmp4, icmp6, protocol, Headers, Icmp, Udp, Version};
use nf_runtime::Packet;

use crate::{keys::outbound, outer::ESP, pass::Pass, reason};

/// The least path MTU that is believed: such a message is not authentic.
const LEAST_IPV4: usize = 576;
const LEAST_IPV6: usize = 1280;

impl Pass<'_> {
    /// Notes what an ICMP error says about the path of one of our packets.
    pub(crate) fn note_path_mtu(&mut self, packet: &mut Packet, headers: &Headers) {
        let told = self.told(packet.bytes(), headers);
        // The packets that follow are measured against the new MTU.
        self.sealing.end_all();
        packet.drop_for(told.map_or(reason::NOT_FOR_GATEWAY, |()| reason::PATH_MTU));
    }

    fn told(&self, frame: &[u8], headers: &Headers) -> Option<()> {
        let message = Icmp::new_checked(headers.segment(frame)).ok()?;
        let mtu = match (headers.version, message.kind(), message.code()) {
            (Version::V4, icmp4::UNREACHABLE, icmp4::FRAGMENTATION_NEEDED) => {
                (message.argument() as usize & 0xffff).max(LEAST_IPV4)
            }
            (Version::V6, icmp6::PACKET_TOO_BIG, _) => {
                (message.argument() as usize).max(LEAST_IPV6)
            }
            _ => return None,
        };
        let quoted = message.body();
        let inner = dissect_quoted(quoted).ok()?;
        let peer = inner.destination(quoted);
        // A quoted packet ends where the router cut it.
        let start = usize::from(inner.transport);
        let at = match inner.protocol {
            ESP => start,
            protocol::UDP => start + Udp::HEADER,
            _ => return None,
        };
        let spi = u32::from_be_bytes(*quoted.get(at..)?.first_chunk()?);
        let mut tunnels = self.setup.tunnels.iter();
        let sequence = tunnels.find_map(|tunnel| {
            let mut associations = tunnel.outbound.iter();
            let own = associations.find(|each| each.life.spi == spi)?;
            let is_ours = tunnel.peer().address == peer && mtu < tunnel.way.mtu;
            own.sequence.get().filter(|_| is_ours)
        })?;
        self.outbound.set(
            sequence.row(),
            outbound::PATH_MTU_AT,
            self.link.context.now(),
        );
        self.outbound
            .set(sequence.row(), outbound::PATH_MTU, mtu as u64);
        Some(())
    }
}
