//! Building, parsing and patching by callers.
#![allow(clippy::unwrap_used, clippy::panic)]

use openflow13::*;

#[test]
fn actions_are_built_as_on_the_wire() {
    let list = ActionList::new()
        .push_vlan(0x8100)
        .set_vlan_vid(5)
        .output(3, 0)
        .pop_vlan()
        .group(7);
    let bytes = [
        vec![0, 17, 0, 8, 0x81, 0, 0, 0],
        vec![0, 25, 0, 16, 0x80, 0, 12, 2, 0x10, 5, 0, 0, 0, 0, 0, 0],
        vec![0, 0, 0, 16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![0, 18, 0, 8, 0, 0, 0, 0],
        vec![0, 22, 0, 8, 0, 0, 0, 7],
    ]
    .concat();
    assert_eq!(list.as_bytes(), bytes);
    assert_eq!(ActionList::from_bytes(bytes).unwrap(), list);
    let kinds: Vec<Action> = list.as_actions().iter().map(|item| item.action).collect();
    assert!(matches!(
        kinds[..],
        [
            Action::PushVlan(0x8100),
            Action::SetField(OxmField {
                value: [0x10, 5],
                ..
            }),
            Action::Output {
                port: 3,
                max_len: 0
            },
            Action::PopVlan,
            Action::Group(7),
        ]
    ));
}

/// clone(output:1, ct(commit, exec(group:2)))
fn nested() -> Vec<u8> {
    let group = ActionList::new().group(2);
    let mut ct = vec![255, 255, 0, 32, 0, 0, 0x23, 0x20, 0, 35, 0, 1];
    ct.extend([0; 12]);
    ct.extend(group.as_bytes());
    let mut clone = vec![255, 255, 0, 64, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0];
    clone.extend(ActionList::new().output(1, 0).as_bytes());
    clone.extend(ct);
    clone
}

#[test]
fn nested_actions_are_visited_and_can_be_patched() {
    let list = ActionList::new().output(9, 0);
    let list = ActionList::from_bytes([list.as_bytes(), &nested()].concat()).unwrap();
    let mut instructions = Instructions::apply(&list);
    let (mut outputs, mut groups) = (Vec::new(), Vec::new());
    instructions.for_each_action(&mut |item| match item.action {
        Action::Output { port, .. } => outputs.push((port, item.offset)),
        Action::Group(id) => groups.push(id),
        _ => {}
    });
    assert_eq!(outputs, [(9, 8), (1, 40)]);
    assert_eq!(groups, [2]);
    for (_, offset) in outputs {
        instructions.as_mut_bytes()[offset + 4..offset + 8].copy_from_slice(&77u32.to_be_bytes());
    }
    let mut patched = Vec::new();
    instructions.for_each_action(&mut |item| {
        if let Action::Output { port, .. } = item.action {
            patched.push(port);
        }
    });
    assert_eq!(patched, [77, 77]);
}

#[test]
fn deep_nesting_needs_no_deep_stack() {
    let mut list = Vec::new();
    for _ in 0..4000 {
        let mut clone = vec![255, 255, 0, 0, 0, 0, 0x23, 0x20, 0, 42, 0, 0, 0, 0, 0, 0];
        clone.extend(&list);
        let length = (clone.len() as u16).to_be_bytes();
        clone[2..4].copy_from_slice(&length);
        list = clone;
    }
    let list = ActionList::from_bytes(list).unwrap();
    let mut count = 0;
    actions::flatten(list.as_actions(), &mut |_| count += 1);
    assert_eq!(count, 4000);
}

#[test]
fn buckets_tell_where_their_actions_are() {
    let actions = ActionList::new().output(4, 0);
    let buckets = Buckets::build([
        (1, port_no::ANY, group_no::ANY, &actions),
        (2, 5, group_no::ANY, &actions),
    ]);
    let seen: Vec<_> = buckets
        .iter()
        .flat_map(|bucket| {
            let weight = bucket.weight;
            bucket.actions.iter().map(move |item| (weight, item.offset))
        })
        .collect();
    assert_eq!(seen, [(1, 16), (2, 48)]);
}

#[test]
fn instructions_are_read_in_order() {
    let list = Instructions::from_bytes(
        [
            vec![0, 5, 0, 8, 0, 0, 0, 0],
            vec![
                0, 2, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 255,
            ],
            vec![0, 6, 0, 8, 0, 0, 0, 3],
            vec![0, 1, 0, 8, 4, 0, 0, 0],
        ]
        .concat(),
    )
    .unwrap();
    let list: Vec<_> = list.iter().collect();
    assert!(matches!(
        list[..],
        [
            Instruction::ClearActions,
            Instruction::WriteMetadata {
                metadata: 9,
                mask: 255
            },
            Instruction::Meter(3),
            Instruction::GotoTable(4),
        ]
    ));
}

#[test]
fn matches_are_built_and_read() {
    let matching = Match::any().with_in_port(0xffff_fffe).with_vlan_vid(7);
    assert_eq!(matching.in_port(), Some(port_no::LOCAL));
    assert_eq!(matching.wire_len(), 24);
    assert_eq!(matching.fields().count(), 2);
    let key = matching.canonical().unwrap();
    assert_eq!(key.in_port(), Some(port_no::LOCAL));
    assert!(!key.is_empty());
    // NXM_OF_IN_PORT = 0xfffe, NXM_OF_VLAN_TCI = 0x1007/0x1fff.
    let nxm = Match::from_oxm(vec![
        0, 0, 0, 2, 0xff, 0xfe, 0, 0, 9, 4, 0x10, 7, 0x1f, 0xff,
    ])
    .unwrap();
    assert_eq!(nxm.in_port(), Some(port_no::LOCAL));
    assert_eq!(nxm.canonical().unwrap(), key);
    assert_eq!(Match::any().in_port(), None);
    assert!(Match::any().canonical().unwrap().is_empty());
    assert!(Match::any().canonical().unwrap().covers(&key));
}

#[test]
fn a_match_on_a_layer_is_a_match_on_ethernet() {
    let key = |oxm: &[u8]| Match::checked(oxm).unwrap().canonical().unwrap();
    let packet_type = [0x80, 0, 88, 4, 0, 0, 0, 0];
    let ip = [0x80, 0, 10, 2, 8, 0];
    let both = [&packet_type[..], &ip].concat();
    assert_eq!(key(&both), key(&ip));
    assert!(key(&packet_type).covers(&key(&ip)));
    let metadata = [0x80, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1];
    assert!(!key(&packet_type).covers(&key(&metadata)));
    assert!(key(&packet_type).overlaps(&key(&metadata)));
}

#[test]
fn tunnel_options_match_on_presence() {
    let key = |oxm: &[u8]| Match::checked(oxm).unwrap().canonical().unwrap();
    // tun_metadata0, four bytes: present; equal to 5; equal to 5, masked; 6.
    let present = key(&[0, 1, 81, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    let five = key(&[0, 1, 80, 4, 0, 0, 0, 5]);
    let also_five = key(&[0, 1, 81, 8, 0, 0, 0, 5, 255, 255, 255, 255]);
    let six = key(&[0, 1, 80, 4, 0, 0, 0, 6]);
    let other = key(&[0, 1, 82, 4, 0, 0, 0, 6]);
    assert!(!present.is_empty());
    assert_eq!(five, also_five);
    assert!(present.covers(&five) && !five.covers(&present));
    assert!(!five.overlaps(&six) && five.overlaps(&present) && five.overlaps(&other));
}

#[test]
fn hellos_negotiate() {
    let ours = 1 << 4;
    let bitmap = |versions: &[u8]| Hello::new(versions.iter().map(|v| 1 << v).sum());
    assert_eq!(bitmap(&[1, 4]).negotiate(ours), Some(4));
    assert_eq!(bitmap(&[1, 5]).negotiate(ours), None);
    let old = |version| Hello {
        version,
        bitmap: None,
    };
    assert_eq!(old(6).negotiate(ours), Some(4));
    assert_eq!(old(1).negotiate(ours), None);
    assert_eq!(old(6).negotiate(1 << 4 | 1 << 5), Some(5));
}

#[test]
fn bundles() {
    let inner = encode(5, &Message::BarrierRequest).unwrap();
    let frame = bundle::encode_add(3, &inner).unwrap();
    let (header, message) = decode(&frame).unwrap();
    let Message::Experimenter(message) = message else {
        panic!("no experimenter message")
    };
    let decoded = bundle::decode(header.xid, &message).unwrap().unwrap();
    assert_eq!(
        decoded,
        bundle::Bundle::Add(bundle::Add {
            bundle_id: 3,
            flags: 3,
            inner: &inner
        })
    );
    let error = bundle::decode(6, &message).unwrap().unwrap_err();
    assert_eq!(error.error, ErrorCode::ONF_BUNDLE_MSG_BAD_XID);
    for (frame, control_type) in [
        (bundle::encode_open(1, 3), bundle::ControlType::OpenRequest),
        (
            bundle::encode_commit(1, 3),
            bundle::ControlType::CommitRequest,
        ),
        (
            bundle::encode_discard(1, 3),
            bundle::ControlType::DiscardRequest,
        ),
    ] {
        let (_, Message::Experimenter(message)) = decode(&frame).unwrap() else {
            panic!("no experimenter message")
        };
        let control = bundle::Control {
            bundle_id: 3,
            control_type,
            flags: 3,
        };
        assert_eq!(
            bundle::decode(1, &message),
            Some(Ok(bundle::Bundle::Control(control)))
        );
    }
    let other = Experimenter {
        vendor: NX_VENDOR,
        subtype: 18,
        body: Box::default(),
    };
    assert_eq!(bundle::decode(1, &other), None);
}

#[test]
fn names() {
    let port = Port {
        name: Port::name_bytes("eth0"),
        ..Port::default()
    };
    assert_eq!(port.name_str(), "eth0");
    assert_eq!(Port::name_bytes("0123456789abcdefXYZ")[14..], [b'e', 0]);
    assert_eq!(
        ErrorCode::BAD_MATCH_DUP_FIELD.to_string(),
        "BAD_MATCH_DUP_FIELD"
    );
    assert_eq!(ErrorCode::ONF_DUP_INST.experimenter(), Some(ONF_VENDOR));
    assert_eq!(
        ErrorCode::NX_BAD_CONJUNCTION.experimenter(),
        Some(NX_VENDOR)
    );
    assert_eq!(ErrorCode::BAD_MATCH_DUP_FIELD.experimenter(), None);
}

#[test]
fn matches_are_shown_as_operators_read_them() {
    let basic = |field: u8, value: &[u8]| [&[0x80, 0, field, value.len() as u8], value].concat();
    let fields = [
        basic(3 << 1, &[2, 0, 0, 0, 0, 0xff]),
        basic(11 << 1 | 1, &[10, 0, 0, 0, 255, 0, 0, 0]),
        basic(27 << 1, &1u128.to_be_bytes()),
        vec![0, 1, 0, 4, 0, 0, 0, 9],
        vec![0, 1, 106 << 1, 2, 0, 7],
    ];
    let shown = Match::from_oxm(fields.concat()).unwrap().with_vlan_vid(12);
    let text = "eth_dst=02:00:00:00:00:ff,nw_src=10.0.0.0/255.0.0.0,ipv6_dst=::1,reg0=0x9,oxm(0x0001,106)=0x7,vlan_vid=0x100c";
    assert_eq!(shown.to_string(), text);
}
