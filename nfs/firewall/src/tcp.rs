//! The states of connections.

use nf_packet::{protocol, tcp_flags, Tcp};
use nf_runtime::state::ByteQueue;

use crate::{
    flows::{connection, counted, flag, Hot},
    inspection::Inspection,
    pass::{Pass, Seen},
};

impl<I: Inspection> Pass<'_, I> {
    /// Follows a connection's state by one of its packets.
    #[inline]
    pub fn track(&self, hot: &mut Hot, slot: u32, seen: &Seen, frame: &[u8]) {
        const ENDS: u8 = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST;
        let is_answer = seen.sighting.sender != hot.client;
        if seen.headers.protocol == protocol::TCP {
            if hot.connection != connection::UNANSWERED && seen.headers.tcp_flags & ENDS == 0 {
                return;
            }
            self.track_tcp(hot, slot, seen, frame);
        } else if is_answer && hot.connection == connection::UNANSWERED {
            self.answered(hot, connection::DATAGRAMS);
        }
    }

    fn track_tcp(&self, hot: &mut Hot, slot: u32, seen: &Seen, frame: &[u8]) {
        let Ok(tcp) = Tcp::new_checked(seen.headers.segment(frame)) else {
            return;
        };
        let (flags, sender) = (tcp.flags(), seen.sighting.sender);
        let is_answer = sender != hot.client;
        if flags & tcp_flags::RST != 0 {
            return self.answered(hot, connection::CLOSING);
        }
        if hot.connection == connection::UNANSWERED {
            let both = tcp_flags::SYN | tcp_flags::ACK;
            if is_answer && flags & both == both {
                let mut cold = self.state.flows.cold(slot);
                let end = usize::from(sender & 1);
                if cold.counted[end] == counted::NOTHING {
                    cold.next[end] = tcp.sequence().wrapping_add(1);
                    cold.counted[end] = counted::BYTES;
                    self.state.flows.put_cold(slot, &cold);
                }
                hot.flags |= flag::ANSWERED;
            } else if is_answer && flags & tcp_flags::ACK != 0 {
                // The connection is older than this function's state.
                self.answered(hot, connection::ESTABLISHED);
            } else if !is_answer
                && hot.flags & flag::ANSWERED != 0
                && flags & both == tcp_flags::ACK
            {
                // Only a client that has got the server's number can acknowledge it.
                let cold = self.state.flows.cold(slot);
                let server = usize::from(1 - hot.client.min(1));
                let ahead = tcp.acknowledgement().wrapping_sub(cold.next[server]) as i32;
                if ahead >= 0 {
                    self.answered(hot, connection::ESTABLISHED);
                }
            }
        }
        if flags & tcp_flags::FIN != 0 {
            hot.flags |= flag::FIN << (sender & 1);
            if hot.flags & (flag::FIN * 3) == flag::FIN * 3 {
                self.answered(hot, connection::CLOSING);
            }
        }
    }

    /// Tells whether a segment says the same as the inspected one that it retransmits. The receiver may not have got that one: its TTL was too low, for example.
    pub fn agrees(&self, hot: &mut Hot, slot: u32, seen: &Seen, frame: &[u8]) -> bool {
        let Ok(tcp) = Tcp::new_checked(seen.headers.segment(frame)) else {
            return true;
        };
        let cold = self.state.flows.cold(slot);
        let sender = seen.sighting.sender & 1;
        let other = 1 - sender;
        if tcp.flags() & tcp_flags::ACK != 0 && hot.flags & (flag::GUARDED << other) != 0 {
            let ahead = tcp
                .acknowledgement()
                .wrapping_sub(cold.next[usize::from(other)]) as i32;
            if ahead >= 0 {
                // The receiver has got everything, and ignores what is sent again.
                hot.flags &= !(flag::GUARDED << other);
            }
        }
        let number = first_byte(&tcp);
        let behind = cold.next[usize::from(sender)].wrapping_sub(number);
        // Beyond the longest prefix, it is new.
        hot.flags & (flag::GUARDED << sender) == 0
            || !(1..=ByteQueue::MAX_BYTES as u32).contains(&behind)
            || self
                .state
                .prefixes
                .agrees(&cold, sender, number, tcp.payload())
    }
}

/// Returns the sequence number of a segment's first byte of payload: SYN takes one.
pub fn first_byte<T: AsRef<[u8]>>(tcp: &Tcp<T>) -> u32 {
    let syn = u32::from(tcp.flags() & tcp_flags::SYN != 0);
    tcp.sequence().wrapping_add(syn)
}
