use super::*;

const XID: u32 = 7;
const ERROR: ErrorCode = ErrorCode::BAD_REQUEST_EPERM;

fn of_controller(id: u64) -> Purpose {
    Purpose::Controller(ControllerQuestion {
        origin: Origin {
            controller: ControllerId(id),
            xid: XID,
            place: 0,
        },
        frame: Box::default(),
        slot: 0,
        request: MultipartRequest::Desc,
        since: 0,
        existing: Existing::default(),
        behind: 0,
        reserved: 150,
        epoch: 0,
        offloaded: None,
        shown: Shown::Nothing,
    })
}

/// Asks `virt` of switches 0 and 1; returns the request's xid.
fn ask(switches: &mut Switches, purpose: Purpose) -> u32 {
    let before: Vec<u32> = switches.reads.keys().copied().collect();
    let both = [0, 1].into_iter().collect();
    switches.read(purpose, Bridge::Virt, both, MultipartRequest::Desc);
    let mut asked = switches.reads.keys().copied();
    asked.find(|xid| !before.contains(xid)).unwrap()
}

fn keep_part(switches: &mut Switches, xid: u32, switch: SwitchIndex) {
    switches.keep_part(xid, switch, MultipartReply::Flow(Vec::new()));
}

#[test]
fn parts_for_a_disconnected_controller_are_dropped() {
    let mut switches = Switches::new(Vec::new());
    let purposes = [of_controller(1), of_controller(2), Purpose::Inventory];
    let asked = purposes.map(|purpose| ask(&mut switches, purpose));
    for xid in asked {
        keep_part(&mut switches, xid, 0);
    }
    switches.forget_answers_for(ControllerId(1));
    let kept = asked.map(|xid| switches.reads[&xid].parts.len());
    assert_eq!(kept, [0, 1, 1]);
}

#[test]
fn parts_for_a_disconnected_bridge_are_dropped() {
    let mut switches = Switches::new(Vec::new());
    let xid = ask(&mut switches, of_controller(1));
    keep_part(&mut switches, xid, 0);
    keep_part(&mut switches, xid, 1);
    assert_eq!(switches.forget_reads(0, Bridge::Edge), []);
    assert_eq!(switches.forget_reads(2, Bridge::Virt), []);
    assert_eq!(switches.reads[&xid].parts.len(), 2);
    assert_eq!(switches.forget_reads(0, Bridge::Virt), [xid]);
    assert!(switches.read_answered(xid, 0).is_none());
    let answer = switches.read_answered(xid, 1).unwrap();
    let from: Vec<_> = answer.parts.iter().map(|(from, _)| *from).collect();
    assert_eq!((from, answer.missed), (vec![1], SwitchSet::of(0)));
    assert_eq!(switches.open_questions(), 0);
}

#[test]
fn a_controller_pays_for_what_exceeds_its_reservation() {
    let mut switches = Switches::new(Vec::new());
    let xid = ask(&mut switches, of_controller(1));
    let header = Header {
        version: 4,
        kind: openflow13::kind::MULTIPART_REPLY,
        length: 100,
        xid,
    };
    assert!(switches.part_arrives(0, Bridge::Edge, header).is_none());
    assert!(switches.part_arrives(2, Bridge::Virt, header).is_none());
    for more in [0, 50, 100] {
        let payer = switches.part_arrives(0, Bridge::Virt, header);
        let is_right = matches!(payer, Some(Payer::Controller(ControllerId(1), n)) if n == more);
        assert!(is_right, "{payer:?} instead of {more}");
    }
    switches.read_answered(xid, 0);
    assert!(switches.part_arrives(0, Bridge::Virt, header).is_none());
    let xid = ask(&mut switches, Purpose::Inventory);
    let payer = switches.part_arrives(0, Bridge::Virt, Header { xid, ..header });
    assert!(matches!(payer, Some(Payer::Us)));
}

#[test]
fn the_first_refusal_of_a_request_is_told_when_all_have_answered() {
    let mut switches = Switches::new(Vec::new());
    let xid = ask(&mut switches, of_controller(1));
    let failed = switches.read_failed(0, Bridge::Edge, xid, ERROR);
    assert!(failed.is_none() && switches.reads[&xid].error.is_none());
    let failed = switches.read_failed(0, Bridge::Virt, xid, ERROR);
    assert!(failed.is_none());
    let later = ErrorCode::BAD_REQUEST_BAD_TYPE;
    let answer = switches.read_failed(1, Bridge::Virt, xid, later).unwrap();
    assert_eq!((answer.error, answer.last), (Some(ERROR), 1));
    assert_eq!(answer.missed, [0, 1].into_iter().collect());
    assert!(!switches.is_question(xid));
}

#[test]
fn a_long_request_is_split_between_its_entries() {
    let entry =
        |length: u16| [&length.to_be_bytes()[..], &vec![1; usize::from(length) - 2]].concat();
    let entries = [entry(40_000), entry(20_000), entry(30_000), entry(64)];
    let list = entries.concat();
    let parts: Vec<_> = in_messages(MultipartRequest::TableFeatures(list.into())).collect();
    let bodies = [&entries[..2], &entries[2..]].map(|part| part.concat().into());
    let [first, second] = bodies.map(MultipartRequest::TableFeatures);
    assert_eq!(
        parts,
        [
            Multipart {
                more: true,
                body: first
            },
            Multipart::last(second)
        ]
    );
    let short: Vec<_> = in_messages(MultipartRequest::Desc).collect();
    assert_eq!(short, [Multipart::last(MultipartRequest::Desc)]);
}
