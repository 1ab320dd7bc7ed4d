//! The ONF's flow monitors, as we use them on a switch: it tells of rules that
//! others change (`onf_flow_monitor_request`, `onf_flow_update_header`).

use crate::error::Refusal;
use crate::flow_monitor::{
    self, decode_entries, flags, Event, Form, MonitorCommand, MonitorRequest, MonitorRequests,
    ONF_STATS,
};
use crate::group::group_no;
use crate::message::Message;
use crate::multipart::MultipartRequest;
use crate::oxm::Match;
use crate::session::Experimenter;
use crate::{port::port_no, ALL_TABLES, ONF_VENDOR};

/// A report of a switch, in order with its other messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Our own message with this xid has changed rules.
    Own(u32),
    /// A rule has changed without a message of ours.
    Rule(FlowUpdate),
}

/// A rule that has changed without a message of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowUpdate {
    /// Its table.
    pub table_id: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Its match.
    pub matching: Match,
    /// The reason of its removal, as in a flow_removed; `None`: it is there.
    pub removed: Option<u8>,
}

/// Returns the request to tell of all rules that others change from now on.
pub fn watch(monitor: u32) -> MultipartRequest {
    let request = MonitorRequest {
        id: monitor,
        command: MonitorCommand::Add,
        flags: flags::ADD | flags::REMOVED | flags::MODIFY,
        out_port: port_no::ANY,
        out_group: group_no::ANY,
        table_id: ALL_TABLES,
        matching: Match::any(),
    };
    let mut entry = Vec::new();
    request.put(Form::Onf, &mut entry);
    MultipartRequest::FlowMonitor(MonitorRequests {
        form: Form::Onf,
        parts: vec![entry.into()],
    })
}

/// Returns the message that ends [`watch`].
pub fn unwatch(monitor: u32) -> Message {
    Message::Experimenter(Experimenter {
        vendor: ONF_VENDOR,
        subtype: ONF_STATS,
        body: monitor.to_be_bytes().into(),
    })
}

/// Returns the changes that a switch tells of; `None`: it is another message.
///
/// # Errors
/// The fault in a body that cannot be read.
pub fn updates(reply: &Experimenter) -> Option<Result<Vec<Update>, Refusal>> {
    let is_update = (reply.vendor, reply.subtype) == (ONF_VENDOR, ONF_STATS);
    is_update.then(|| decode(&reply.body))
}

fn decode(body: &[u8]) -> Result<Vec<Update>, Refusal> {
    let entries = decode_entries(Form::Onf, body)?.into_iter();
    let converted = entries.map(|entry| match entry {
        flow_monitor::Update::Abbreviated(xid) => Update::Own(xid),
        flow_monitor::Update::Full(update) => Update::Rule(FlowUpdate {
            table_id: update.table_id,
            priority: update.priority,
            cookie: update.cookie,
            matching: update.matching,
            removed: (update.event == Event::Removed).then_some(update.reason),
        }),
    });
    Ok(converted.collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    /// The reports of Open vSwitch 3.1 about a rule that was learned in table 1, and about a change of ours.
    const TOLD: [u8; 48] = [
        0, 40, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 60, 0, 14, 1, 0, 0, 0, 0, 0, 0, 0, 0, 7, //
        0, 1, 0, 14, 0x80, 0, 6, 6, 2, 0, 0, 0, 0, 1, 0, 0, // eth_dst
        0, 8, 0, 3, 0, 0, 0, 9,
    ];

    #[test]
    fn a_learned_rule_and_our_own_change_are_read() {
        let reply = |body: &[u8]| Experimenter {
            vendor: ONF_VENDOR,
            subtype: ONF_STATS,
            body: body.into(),
        };
        let told = updates(&reply(&TOLD)).unwrap().unwrap();
        let [Update::Rule(learned), Update::Own(9)] = &*told else {
            panic!("{told:?}");
        };
        assert_eq!((learned.table_id, learned.priority), (1, 0x8000));
        assert_eq!((learned.cookie, learned.removed), (7, None));
        assert_eq!(learned.matching.as_oxm(), &TOLD[28..38]);
        assert!(updates(&reply(&TOLD[..30])).unwrap().is_err());
        assert!(updates(&reply(&[])).unwrap().unwrap().is_empty());
    }

    #[test]
    fn a_removal_has_its_reason() {
        let mut removed = TOLD;
        removed[3] = 1;
        removed[5] = 2;
        let reply = Experimenter {
            vendor: ONF_VENDOR,
            subtype: ONF_STATS,
            body: removed.into(),
        };
        let told = updates(&reply).unwrap().unwrap();
        assert!(matches!(&told[0], Update::Rule(rule) if rule.removed == Some(2)));
    }

    #[test]
    fn another_vendors_statistics_are_none() {
        let reply = Experimenter {
            vendor: 1,
            subtype: ONF_STATS,
            body: Box::default(),
        };
        assert!(updates(&reply).is_none());
    }
}
