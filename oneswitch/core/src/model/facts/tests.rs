use super::*;
use openflow13::ActionList;

fn facts(bytes: &[u8]) -> Facts {
    let list = ActionList::from_bytes(bytes.to_vec()).unwrap();
    Facts::of_actions(list.as_actions())
}

/// A Nicira action: subtype and what follows it.
fn nx(subtype: u8, body: &[u8]) -> Vec<u8> {
    let length = 10 + body.len();
    assert_eq!(length % 8, 0);
    let mut bytes = vec![0xff, 0xff, 0, length as u8, 0, 0, 0x23, 0x20, 0, subtype];
    bytes.extend(body);
    bytes
}

const RESUBMIT_IN_PORT: [u8; 6] = [0xff, 0xf8, 1, 0, 0, 0];
const RESUBMIT_PORT_3: [u8; 6] = [0, 3, 1, 0, 0, 0];

#[test]
fn what_changes_in_port() {
    assert!(!facts(&nx(14, &RESUBMIT_IN_PORT)).moves_in_port);
    assert!(facts(&nx(14, &RESUBMIT_PORT_3)).moves_in_port);
    assert!(facts(&nx(1, &RESUBMIT_PORT_3)).moves_in_port);
    // NXAST_REG_LOAD and NXAST_REG_MOVE into NXM_OF_IN_PORT, and into NXM_NX_REG0.
    let load = |field: [u8; 4]| {
        nx(
            7,
            &[&[0, 15][..], &field, &[0, 0, 0, 0, 0, 0, 0, 2]].concat(),
        )
    };
    assert!(facts(&load([0, 0, 0, 2])).moves_in_port);
    assert!(!facts(&load([0, 1, 0, 4])).moves_in_port);
    let moves = |to: [u8; 4]| nx(6, &[&[0, 16, 0, 0, 0, 0, 0, 1, 2, 4][..], &to].concat());
    assert!(facts(&moves([0, 0, 0, 2])).moves_in_port);
    assert!(!facts(&moves([0, 1, 0, 4])).moves_in_port);
    let pop = |field: [u8; 4]| {
        nx(
            28,
            &[&[0, 0][..], &field, &[0, 16, 0, 0, 0, 0, 0, 0]].concat(),
        )
    };
    assert!(facts(&pop([0, 0, 0, 2])).moves_in_port);
    assert!(!facts(&pop([0, 1, 0, 4])).moves_in_port);
}

#[test]
fn what_is_inside_a_clone_counts() {
    let inner = nx(14, &RESUBMIT_PORT_3);
    let clone = nx(42, &[&[0; 6][..], &inner].concat());
    assert!(facts(&clone).moves_in_port);
    let inner = ActionList::new().output(port_no::NORMAL, 0);
    let clone = nx(42, &[&[0; 6][..], inner.as_bytes()].concat());
    assert_eq!(facts(&clone).stateful, Some(Stateful::Normal));
}

#[test]
fn what_keeps_state() {
    let conntrack = nx(35, &[0; 14]);
    assert_eq!(
        facts(&conntrack).stateful,
        Some(Stateful::ConnectionTracking)
    );
    let normal = ActionList::new().output(port_no::NORMAL, 0);
    assert_eq!(facts(normal.as_bytes()).stateful, Some(Stateful::Normal));
    let mut both = nx(16, &[0; 22]);
    both.extend(normal.as_bytes());
    assert_eq!(facts(&both).stateful, Some(Stateful::Learn));
    assert_eq!(
        facts(ActionList::new().output(3, 0).as_bytes()),
        Facts::default()
    );
}

#[test]
fn floods_groups_and_meters() {
    let floods = facts(ActionList::new().output(port_no::ALL, 0).as_bytes());
    assert!(floods.floods && !floods.has_group);
    let grouped = facts(ActionList::new().group(4).as_bytes());
    assert!(grouped.has_group && !grouped.floods);
    let instructions = Instructions::from_bytes(vec![0, 6, 0, 8, 0, 0, 0, 9]).unwrap();
    assert!(Facts::of_instructions(&instructions).has_meter && uses_meter(&instructions, 9));
}
