//! Nicira's messages about groups: those of OpenFlow 1.5, with actions of OpenFlow 1.0
//! (lib/ofp-group.c, include/openvswitch/ofp-msgs.h).

use crate::error::{ErrorCode, Refusal};
use crate::extension::REQUEST_FORWARD;
use crate::field::class;
use crate::group::{group_no, GroupMod};
use crate::header::{kind, Header, HEADER_LEN};
use crate::message::Message;
use crate::multipart::{Entry, MultipartReply, MultipartRequest};
use crate::openflow15::groups::{self, Spelling};
use crate::session::Experimenter;
use crate::wire::Reader;
use crate::ONF_VENDOR;

use super::frames::message;
use super::matching::nxm_name;
use super::notices::start;
use super::{actions, StatsForm, ALL_ACTIONS};

/// `nxt` numbers: those of a group-mod, and of a notification of another controller's.
pub(super) const GROUP_MOD: u32 = 31;
pub(super) const FORWARDED: u32 = 132;

/// `nxst` numbers.
const GROUP: u32 = 7;
const GROUP_DESC: u32 = 8;
const GROUP_FEATURES: u32 = 9;

/// Bytes of `ofp15_group_mod`.
const LEAST: usize = 16;

const SPELLING: Spelling = Spelling {
    read: |list| {
        if list.len() % 8 != 0 {
            let detail = "actions not padded to 8 bytes";
            return Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail));
        }
        actions::to_bucket(list)
    },
    write: actions::of_bucket,
    write_selection: |selection| selection.renamed(name10),
};

/// Returns the name of a field over OpenFlow 1.0 (`nxm_field_by_mf_id`), given that over 1.5.
fn name10((of, field, vendor): (u16, u8, Option<u32>)) -> (u16, u8, Option<u32>) {
    match (of, field) {
        // Those of NXM have other values.
        (class::OPENFLOW_BASIC, 0 | 8) => (of, field, vendor),
        (class::OPENFLOW_BASIC, 43) => (class::EXPERIMENTER, field, Some(ONF_VENDOR)),
        (class::OPENFLOW_BASIC, _) => {
            nxm_name(field).map_or((of, field, vendor), |(of, field)| (of, field, None))
        }
        _ => (of, field, vendor),
    }
}

/// Decodes a group-mod behind the vendor's header.
pub(super) fn decode(body: &[u8]) -> Result<Message, Refusal> {
    match body.len().checked_sub(LEAST) {
        Some(more) if more % 8 == 0 => groups::decode(body, SPELLING).map(Message::GroupMod),
        _ => {
            let detail = format!("group-mod with {} bytes", body.len());
            Err(Refusal::new(ErrorCode::BAD_REQUEST_BAD_LEN, detail))
        }
    }
}

/// Encodes the notification of another controller's group-mod; `None`: it is something that
/// OpenFlow 1.0 lacks, like a meter-mod (`connmgr_send_requestforward`).
pub(super) fn forwarded(notification: &Experimenter) -> Option<Vec<u8>> {
    let numbers = (notification.vendor, notification.subtype);
    if numbers != (ONF_VENDOR, REQUEST_FORWARD) {
        return None;
    }
    let request = Header::parse(&notification.body)?;
    if request.kind != kind::GROUP_MOD {
        return None;
    }
    let group = GroupMod::decode_written(notification.body.get(HEADER_LEN..)?)?;
    let mut inner = start(GROUP_MOD);
    inner.extend(groups::encode(&group, SPELLING));
    let mut body = start(FORWARDED);
    body.extend(message(kind::EXPERIMENTER, request.xid, &inner));
    Some(message(kind::EXPERIMENTER, 0, &body))
}

/// Decodes a request for statistics of groups, and the form of the reply; `None`: other
/// statistics.
pub(super) fn stats_request(
    number: u32,
    reader: &mut Reader<'_>,
) -> Option<Result<(MultipartRequest, StatsForm), Refusal>> {
    let mut subject = || {
        reader.skip(4)?;
        let group = reader.u32()?;
        reader.skip(4)?;
        Ok(group)
    };
    let with = |request| (request, StatsForm::Nicira);
    Some(match number {
        GROUP => subject().map(|group| with(MultipartRequest::Group { group })),
        GROUP_DESC => subject().map(|group| (MultipartRequest::GroupDesc, StatsForm::Only(group))),
        GROUP_FEATURES => match reader.skip(4) {
            Ok(()) => Ok(with(MultipartRequest::GroupFeatures)),
            Err(short) => Err(short.into()),
        },
        _ => return None,
    })
}

/// Returns the number of a reply about groups, and its entries; `None`: another one.
pub(super) fn stats(reply: &MultipartReply, form: StatsForm) -> Option<(u32, Vec<Vec<u8>>)> {
    let is_wanted = |id| match form {
        StatsForm::Only(only) => only == id || only == group_no::ALL,
        _ => true,
    };
    Some(match reply {
        MultipartReply::Group(list) => {
            let entry = |stats: &_| {
                let mut out = Vec::new();
                Entry::put(stats, &mut out);
                out
            };
            (GROUP, list.iter().map(entry).collect())
        }
        MultipartReply::GroupDesc(list) => {
            let wanted = list.iter().filter(|group| is_wanted(group.group_id));
            let entries = wanted.map(|group| groups::describe(group, SPELLING));
            (GROUP_DESC, entries.collect())
        }
        MultipartReply::GroupFeatures(features) => {
            let actions = features.actions.map(|bits| match bits {
                0 => 0,
                _ => ALL_ACTIONS,
            });
            let mut out = Vec::new();
            crate::multipart::GroupFeatures {
                actions,
                ..*features
            }
            .put(&mut out);
            (GROUP_FEATURES, vec![out])
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::actions::{of_bucket, to_13, to_bucket};
    use super::super::enqueue::without_idle_enqueues;
    use super::*;
    use crate::action::Actions;
    use crate::group::{group_type, GroupModCommand};
    use crate::multipart::{GroupDesc, GroupFeatures};
    use crate::selection::Selection;
    use crate::{encode, extension};

    /// The addition of select group 5, with bucket 7 of weight 2 that outputs to port 2.
    const ADDITION: [u8; 40] = [
        0, 0, 1, 0, 0, 0, 0, 5, 0, 24, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 24, 0, 8, 0, 0, 0, 7, 0, 0,
        0, 8, 0, 2, 0, 9, 0, 0, 0, 8, 0, 2, 0, 0,
    ];

    fn read(body: &[u8]) -> GroupMod {
        match decode(body) {
            Ok(Message::GroupMod(group)) => group,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_group_mod_is_forwarded_as_it_was_sent() {
        let group = read(&ADDITION);
        assert_eq!((group.group_type, group.group_id), (group_type::SELECT, 5));
        let bucket = group.buckets.iter().next().unwrap();
        assert_eq!((bucket.id, bucket.weight), (7, 2));
        assert_eq!(bucket.actions.as_bytes()[..8], [0, 0, 0, 16, 0, 0, 0, 2]);
        let request = encode(9, &Message::GroupMod(group)).unwrap();
        let Message::Experimenter(notification) = extension::request_forward(&request) else {
            panic!();
        };
        let told = forwarded(&notification).unwrap();
        assert_eq!(told[8..16], [0, 0, 0x23, 0x20, 0, 0, 0, 132]);
        assert_eq!(told[16..24], [1, 4, 0, 56, 0, 0, 0, 9]);
        assert_eq!(told[24..32], [0, 0, 0x23, 0x20, 0, 0, 0, 31]);
        assert_eq!(told[32..], ADDITION);
    }

    #[test]
    fn a_deletion_keeps_its_type_and_buckets() {
        let mut body = ADDITION;
        body[1] = 2;
        let group = read(&body);
        assert_eq!(group.command, GroupModCommand::Delete);
        assert_eq!(group.group_type, group_type::SELECT);
        assert!(!group.buckets.is_empty() && !group.needs_openflow15());
        let inside = encode(9, &Message::GroupMod(group.clone())).unwrap();
        let again = crate::decode(&inside).unwrap().1;
        assert_eq!(again, Message::GroupMod(group));
        let to_switches = crate::group_mod_before_15(&inside);
        assert_eq!(to_switches[8..], [0, 2, 1, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn replies_have_the_groups_that_were_asked_for() {
        let describe = |group_id| GroupDesc {
            group_type: group_type::SELECT,
            group_id,
            buckets: read(&ADDITION).buckets,
            selection: Some(Selection::hash()),
        };
        let reply = MultipartReply::GroupDesc(vec![describe(5), describe(6)]);
        let (number, entries) = stats(&reply, StatsForm::Only(6)).unwrap();
        assert_eq!((number, entries.len()), (8, 1));
        assert_eq!(entries[0][16..40], ADDITION[16..]);
        let (_, entries) = stats(&reply, StatsForm::Only(group_no::ALL)).unwrap();
        assert_eq!(entries.len(), 2);
        let reply = MultipartReply::GroupFeatures(GroupFeatures {
            types: 15,
            capabilities: 7,
            max_groups: [1; 4],
            actions: [0x9801, 0, 0, 0],
        });
        let (number, entries) = stats(&reply, StatsForm::Nicira).unwrap();
        assert_eq!((number, entries[0].len()), (9, 40));
        assert_eq!(entries[0][24..32], [0, 0, 0xf, 0xff, 0, 0, 0, 0]);
    }

    #[test]
    fn fields_have_their_names_of_nxm() {
        let basic = |field| (class::OPENFLOW_BASIC, field, None);
        assert_eq!(name10(basic(11)), (class::NXM_0, 7, None));
        assert_eq!(name10(basic(8)), basic(8));
        let output = (class::EXPERIMENTER, 43, Some(ONF_VENDOR));
        assert_eq!(name10(basic(43)), output);
        assert_eq!(
            decode(&ADDITION[..36]).unwrap_err().error,
            ErrorCode::BAD_REQUEST_BAD_LEN
        );
    }

    /// enqueue:2:3, output:5
    const ENQUEUED: [u8; 24] = [
        0, 11, 0, 16, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 8, 0, 5, 0xff, 0xff,
    ];

    #[test]
    fn an_enqueue_of_a_bucket_is_read_back_and_does_nothing() {
        let bucket = to_bucket(&ENQUEUED).unwrap();
        let actions = Actions::trusted(&bucket, 0);
        assert_eq!(of_bucket(actions), ENQUEUED);
        let done = without_idle_enqueues(&bucket);
        assert_eq!(done, to_13(&ENQUEUED[16..]).unwrap());
    }

    #[test]
    fn three_actions_of_a_bucket_are_no_enqueue() {
        let written = to_13(&ENQUEUED).unwrap();
        let actions = Actions::trusted(&written, 0);
        assert_eq!(without_idle_enqueues(&written), written);
        let told = of_bucket(actions);
        assert_eq!(to_13(&told).unwrap(), written);
        assert_ne!(told, ENQUEUED);
    }
}
