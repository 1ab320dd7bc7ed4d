use super::*;
use openflow13::group_no;
use openflow13::{decode, encode, ActionList, Buckets, Instructions, Match, Message};

fn usual() -> HiddenGroups {
    HiddenGroups::default()
}

fn flood() -> ActionList {
    ActionList::new().output(port_no::FLOOD, 0)
}

fn group() -> ActionList {
    ActionList::new().group(usual().flood())
}

/// OFPIT_WRITE_ACTIONS.
fn written(actions: &ActionList) -> Vec<u8> {
    let mut bytes = Instructions::apply(actions).as_bytes().to_vec();
    bytes[1] = 3;
    bytes
}

#[test]
fn floods_in_a_list_become_the_group_and_the_rest_stays() {
    let list = ActionList::new()
        .push_vlan(0x8100)
        .output(3, 0)
        .output(port_no::ALL, 0)
        .output(port_no::FLOOD, 0)
        .group(7);
    let wanted = ActionList::new()
        .push_vlan(0x8100)
        .output(3, 0)
        .group(usual().all())
        .group(usual().flood())
        .group(7);
    assert_eq!(
        actions_with_flood_group(list.as_bytes(), &usual()),
        wanted.as_bytes()
    );
}

#[test]
fn an_action_set_keeps_its_flood() {
    let both = [Instructions::apply(&flood()).as_bytes(), &written(&flood())].concat();
    let wanted = [Instructions::apply(&group()).as_bytes(), &written(&flood())].concat();
    assert_eq!(instructions_with_flood_group(&both, &usual()), wanted);
    // And back, as the switch spells it.
    assert_eq!(instructions_with_floods(&wanted, &both, &usual()), both);
}

#[test]
fn floods_return_to_the_instruction_that_they_came_from() {
    // FLOOD and ALL differ, so that each group shows where its output was taken from.
    let all = ActionList::new().output(port_no::ALL, 0);
    let both = [Instructions::apply(&flood()).as_bytes(), &written(&all)].concat();
    let groups = [Instructions::apply(&group()).as_bytes(), &written(&group())].concat();
    // An action set that floods keeps its output; what a switch tells is taken back as it is.
    assert_eq!(
        instructions_with_floods(&groups, &both, &usual()),
        [Instructions::apply(&flood()).as_bytes(), &written(&group())].concat()
    );
    let reversed = [&written(&all)[..], Instructions::apply(&flood()).as_bytes()].concat();
    let told = Instructions::apply(&group());
    assert_eq!(
        instructions_with_floods(told.as_bytes(), &reversed, &usual()),
        Instructions::apply(&flood()).as_bytes()
    );
}

#[test]
fn a_bucket_floods_by_the_group_only_if_that_changes_nothing_else() {
    let lone = flood();
    let beside = ActionList::new().output(port_no::FLOOD, 0).group(3);
    let twice = ActionList::new().output(port_no::FLOOD, 0).output(2, 0);
    let build = |lists: [&ActionList; 3]| {
        Buckets::build(lists.map(|l| (0, port_no::ANY, group_no::ANY, l)))
    };
    let buckets = build([&lone, &beside, &twice]);
    let wanted = build([&group(), &beside, &twice]);
    assert_eq!(
        physical_buckets(buckets.as_bytes(), &usual()),
        wanted.as_bytes()
    );
}

#[test]
fn translated_messages_are_whole_messages() {
    for vid in [None, Some(5)] {
        let matching = vid.map_or(Match::any(), |v| {
            Match::any().with_in_port(1).with_vlan_vid(v)
        });
        let flow_mod = FlowMod {
            instructions: Instructions::apply(&flood()),
            flags: 0,
            idle_timeout: 9,
            ..removal(matching)
        };
        let frame = encode(3, &Message::FlowMod(flow_mod.clone())).unwrap();
        let mut changed = flow_mod_with_flood_group(&frame, &usual());
        patch_added(&mut changed, 0, FlowMod::SEND_FLOW_REM);
        let (_, decoded) = decode(&changed).unwrap();
        let wanted = FlowMod {
            instructions: Instructions::apply(&group()),
            flags: FlowMod::SEND_FLOW_REM,
            idle_timeout: 0,
            ..flow_mod
        };
        assert_eq!(decoded, Message::FlowMod(wanted));
    }
    let buckets = |list: &ActionList| Buckets::build([(0, port_no::ANY, group_no::ANY, list)]);
    assert_eq!(
        physical_buckets(buckets(&flood()).as_bytes(), &usual()),
        buckets(&group()).as_bytes()
    );
}

fn removal(matching: Match) -> FlowMod {
    FlowMod {
        cookie: 1,
        ..FlowMod::new(FlowModCommand::Add, 0, 1, matching)
    }
}

#[test]
fn a_list_that_lies_about_its_lengths_ends_the_translation() {
    assert!(actions_with_flood_group(&[0, 0, 0, 0, 1, 2, 3, 4], &usual()).is_empty());
    assert!(actions_with_flood_group(&[0, 0, 0, 99], &usual()).is_empty());
    assert!(physical_buckets(&[0], &usual()).is_empty());
}

#[test]
fn a_packet_out_from_a_port_sets_its_in_port() {
    let out = |is_port, data| {
        let message = PacketOut {
            packet_type: 0,
            buffer_id: openflow13::NO_BUFFER,
            in_port: 5,
            actions: ActionList::new().output(7, 0),
            data: vec![0; data].into(),
        };
        physical_packet_out(message, is_port, &usual())
    };
    let changed = out(true, 60);
    assert_eq!(changed.in_port, port_no::ANY);
    let mut set = vec![0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7, 0, 15, 0, 0, 0, 2];
    set.extend(5u64.to_be_bytes());
    let output = ActionList::new().output(7, 0);
    let expected = [&set[..], output.as_bytes()].concat();
    assert_eq!(changed.actions.as_bytes(), expected);
    // From no port, and without room.
    let unchanged = out(false, 60);
    assert_eq!((unchanged.in_port, unchanged.actions), (5, output));
    let longest = 65_535 - 24 - 24 - 16;
    let frame = |data| encode(1, &Message::PacketOut(out(true, data))).map(|f| f.len());
    assert_eq!(out(true, longest).in_port, port_no::ANY);
    assert!(frame(longest).is_ok());
    assert_eq!(out(true, longest + 1).in_port, 5);
    assert!(frame(longest + 1).is_ok());
}

#[test]
fn setters_are_shown_as_written_and_the_rest_as_told() {
    let tunnel = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 2, 0, 0, 0, 0, 0, 7];
    let field = [0, 25, 0, 16, 0x80, 0, 0x4c, 8, 0, 0, 0, 0, 0, 0, 0, 7];
    let list = |actions: &[&[u8]]| {
        let list = ActionList::from_bytes(actions.concat()).unwrap();
        Instructions::apply(&list)
    };
    let output = flood();
    let group = group();
    let written = list(&[&tunnel, output.as_bytes(), &field]);
    let mut told = list(&[&field, group.as_bytes(), &field]);
    show_setters_as_written(&mut told, &written);
    assert_eq!(told, list(&[&tunnel, group.as_bytes(), &field]));
    let port = [0, 9, 0, 8, 0, 53, 0, 0];
    let of = |field: u8| [0, 25, 0, 16, 0x80, 0, field, 2, 0, 53, 0, 0, 0, 0, 0, 0];
    let (of_sctp, of_tcp) = (of(17 << 1), of(13 << 1));
    let mut told = list(&[&of_sctp, &of_tcp]);
    show_setters_as_written(&mut told, &list(&[&port, &port]));
    assert_eq!(told, list(&[&port, &of_tcp]));
    let (mut shorter, as_told) = (list(&[&field]), list(&[&field]));
    show_setters_as_written(&mut shorter, &list(&[&field, &tunnel]));
    assert_eq!(shorter, as_told);
}
