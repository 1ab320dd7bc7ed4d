//! A reply to a controller, sent message by message as its connection has room.

use openflow13::{openflow15, FlowStats, FlowStatsMessages};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::iter::Peekable;

/// The messages of a reply, encoded one at a time.
pub trait Messages: Iterator<Item = Vec<u8>> + Debug + Send {}

impl<M: Iterator<Item = Vec<u8>> + Debug + Send> Messages for M {}

/// A reply of one or more OpenFlow messages.
#[derive(Debug)]
pub enum Reply {
    Encoded(VecDeque<Vec<u8>>),
    /// Lists of rules, by far the longest replies, are encoded only when they leave.
    Long {
        messages: Peekable<Box<dyn Messages>>,
        /// Estimate of the remaining bytes.
        left: usize,
    },
}

impl Default for Reply {
    /// Creates a reply without messages.
    fn default() -> Self {
        Self::Encoded(VecDeque::new())
    }
}

impl From<Vec<u8>> for Reply {
    fn from(message: Vec<u8>) -> Self {
        Self::Encoded([message].into())
    }
}

impl From<Vec<Vec<u8>>> for Reply {
    fn from(messages: Vec<Vec<u8>>) -> Self {
        Self::Encoded(messages.into())
    }
}

impl Reply {
    pub fn flows(xid: u32, flows: Vec<FlowStats>) -> Self {
        let left = flows.iter().map(size_of_flow).sum();
        Self::long(FlowStatsMessages::new(xid, flows), left)
    }

    /// Creates a reply of messages with an estimate of their bytes.
    pub fn long(messages: impl Messages + 'static, left: usize) -> Self {
        let messages: Box<dyn Messages> = Box::new(messages);
        let messages = messages.peekable();
        Self::Long { messages, left }
    }

    /// Returns the reply for a peer of OpenFlow 1.5, if its messages have to be translated together.
    pub fn in_openflow15(self) -> Self {
        let Self::Encoded(mut messages) = self else {
            return self;
        };
        match openflow15::encode_table_features(messages.make_contiguous()) {
            Some(translated) => translated.into(),
            None => Self::Encoded(messages),
        }
    }

    /// Estimates its bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Encoded(messages) => messages.iter().map(Vec::len).sum(),
            Self::Long { left, .. } => *left,
        }
    }

    /// Returns the next message; empty if none remains.
    pub fn next_message(&mut self) -> Vec<u8> {
        match self {
            Self::Encoded(messages) => messages.pop_front().unwrap_or_default(),
            Self::Long { messages, left } => {
                let message = messages.next().unwrap_or_default();
                *left = left.saturating_sub(message.len());
                message
            }
        }
    }

    pub fn is_over(&mut self) -> bool {
        match self {
            Self::Encoded(messages) => messages.is_empty(),
            Self::Long { messages, .. } => messages.peek().is_none(),
        }
    }
}

/// Estimates a flow's bytes in memory; at least those of its message.
fn size_of_flow(flow: &FlowStats) -> usize {
    let lists = flow.matching.as_oxm().len() + flow.instructions.as_bytes().len();
    std::mem::size_of::<FlowStats>() + lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::{Instructions, Match};

    fn flow(cookie: u64) -> FlowStats {
        FlowStats {
            table_id: 0,
            duration_sec: 0,
            duration_nsec: 0,
            priority: 1,
            idle_timeout: 0,
            hard_timeout: 0,
            flags: 0,
            importance: 0,
            idle_age: 0,
            cookie,
            packet_count: 0,
            byte_count: 0,
            matching: Match::any().with_in_port(1),
            instructions: Instructions::default(),
        }
    }

    #[test]
    fn a_flow_counts_with_its_lists() {
        // A match of 8 bytes, and instructions of 24.
        let actions = openflow13::ActionList::new().output(2, 0);
        let flow = FlowStats {
            instructions: Instructions::apply(&actions),
            ..flow(1)
        };
        assert_eq!(size_of_flow(&flow), std::mem::size_of::<FlowStats>() + 32);
    }

    #[test]
    fn a_long_reply_is_handed_out_message_by_message_and_shrinks() {
        let mut reply = Reply::flows(7, (0..3_000).map(flow).collect());
        let mut sizes = vec![reply.size()];
        let mut bytes = 0;
        while !reply.is_over() {
            bytes += reply.next_message().len();
            sizes.push(reply.size());
        }
        assert!(sizes[0] >= bytes && sizes.len() > 3, "{sizes:?}, {bytes}");
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
        assert!(reply.next_message().is_empty());
    }

    #[test]
    fn a_reply_without_messages_is_over() {
        assert!(Reply::default().is_over());
        assert!(
            !Reply::flows(1, Vec::new()).is_over(),
            "an empty list is a message"
        );
        assert_eq!(Reply::from(vec![1, 2, 3]).size(), 3);
    }
}
