//! Rules that no addition can make: Nicira's modifications make them.
//!
//! Open vSwitch checks actions against the match and the table of their message (`ofpacts_check()`, lib/ofp-actions.c). So a wide modification
//! can give two more tags to a rule that matches a tag, and an addition of the same rule is refused: BAD_TAG. One of all tables can give a rule
//! a goto to its own table or an earlier one (`check_GOTO_TABLE()`), and an addition is refused: BAD_TABLE_ID.

use crate::model::tables::ALL_TABLES;
use openflow13::{
    Action, Experimenter, FlowMod, FlowModCommand, Instruction, Instructions, Message, NX_VENDOR,
};

/// The number of tags that Open vSwitch keeps of a packet (`FLOW_MAX_VLAN_HEADERS`).
const TAGS: usize = 2;
/// `NXT_FLOW_MOD`, which is the only modification that changes a cookie.
const FLOW_MOD: u32 = 13;
/// `NXM_NX_COOKIE`.
const COOKIE: [u8; 4] = [0, 1, 30 << 1, 8];
const MASKED_COOKIE: [u8; 4] = [0, 1, 30 << 1 | 1, 16];
/// The new cookie of rules that keep theirs.
const KEPT: u64 = u64::MAX;
/// The cookie of a rule between both messages. It was drawn by chance, so that it selects no rule of a controller.
const BETWEEN: u64 = 0x9d1f_63c8_5b07_e24a;

/// Returns the messages that replace the addition of such a rule: an addition without instructions, and a modification that selects it by its
/// cookie, and sets instructions and cookie. `None`: switches take the addition.
pub fn in_two_steps(message: &FlowMod) -> Option<[Message; 2]> {
    let is_addition = message.command == FlowModCommand::Add;
    // A modification cannot set the cookie of all ones.
    if !is_addition || message.cookie == u64::MAX {
        return None;
    }
    let has_too_many =
        pushes(message) >= TAGS && message.matching.canonical().is_ok_and(|m| m.has_tag());
    if !has_too_many && !goes_back(message) {
        return None;
    }
    let addition = FlowMod {
        cookie: BETWEEN,
        instructions: Instructions::default(),
        ..message.clone()
    };
    Some([
        Message::FlowMod(addition),
        Message::Experimenter(completion(message)),
    ])
}

/// Tells whether a message for one table goes to this table, or to an earlier one.
pub fn goes_back(message: &FlowMod) -> bool {
    message
        .instructions
        .iter()
        .any(|each| matches!(each, Instruction::GotoTable(table) if table <= message.table_id))
}

/// Returns the modification of all tables that does what a message does to a rule with the cookie `of`, or to each that it selects. It adds a
/// rule if there is none and the message adds one.
pub fn in_all_tables(message: &FlowMod, of: Option<u64>) -> Experimenter {
    let is_addition = message.command == FlowModCommand::Add;
    let selected = match of {
        Some(cookie) => Some((cookie, u64::MAX)),
        None if is_addition || message.cookie_mask == 0 => None,
        None => Some((message.cookie, message.cookie_mask)),
    };
    let mut matching = Vec::new();
    if let Some((cookie, mask)) = selected {
        matching.extend(MASKED_COOKIE);
        matching.extend(cookie.to_be_bytes());
        matching.extend(mask.to_be_bytes());
    }
    matching.extend(message.matching.as_oxm());
    let modification = match message.command {
        FlowModCommand::Add => Modification {
            command: FlowModCommand::ModifyStrict,
            cookie: message.cookie,
            matching: &matching,
        },
        command => Modification {
            command,
            cookie: KEPT,
            matching: &matching,
        },
    };
    modification.of(message, ALL_TABLES)
}

fn pushes(message: &FlowMod) -> usize {
    let mut found = 0;
    message.instructions.for_each_action(&mut |item| {
        found += usize::from(matches!(item.action, Action::PushVlan(_)))
    });
    found
}

/// Returns the second message for a rule.
fn completion(message: &FlowMod) -> Experimenter {
    let modification = Modification {
        command: FlowModCommand::Modify,
        cookie: message.cookie,
        matching: &[&COOKIE[..], &BETWEEN.to_be_bytes()].concat(),
    };
    let table = match goes_back(message) {
        true => ALL_TABLES,
        false => message.table_id,
    };
    let only_instructions = FlowMod {
        idle_timeout: 0,
        hard_timeout: 0,
        flags: 0,
        ..message.clone()
    };
    modification.of(&only_instructions, table)
}

/// The parts of a modification that differ from those of the message that it stands for.
struct Modification<'a> {
    command: FlowModCommand,
    /// The new cookie.
    cookie: u64,
    /// The match, in the form of Nicira's extension.
    matching: &'a [u8],
}

impl Modification<'_> {
    /// Builds `struct nx_flow_mod` (include/openflow/nicira-ext.h).
    fn of(&self, message: &FlowMod, table: u8) -> Experimenter {
        let mut body = self.cookie.to_be_bytes().to_vec();
        body.extend([table, self.command as u8]);
        body.extend(message.idle_timeout.to_be_bytes());
        body.extend(message.hard_timeout.to_be_bytes());
        body.extend(message.priority.to_be_bytes());
        // No buffer and no port.
        body.extend([0xff; 6]);
        body.extend(message.flags.to_be_bytes());
        body.extend((self.matching.len() as u16).to_be_bytes());
        body.extend([0; 6]);
        body.extend(self.matching);
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend(message.instructions.as_bytes());
        Experimenter {
            vendor: NX_VENDOR,
            subtype: FLOW_MOD,
            body: body.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::{ActionList, Match};

    fn addition(matching: Match, tags: usize) -> FlowMod {
        let list = (0..tags).fold(ActionList::new(), |list, _| list.push_vlan(0x8100));
        FlowMod {
            cookie: 7,
            instructions: Instructions::apply(&list),
            ..FlowMod::new(FlowModCommand::Add, 3, 9, matching)
        }
    }

    #[test]
    fn only_a_third_tag_needs_two_steps() {
        let tagged = Match::any().with_vlan_vid(5);
        assert_eq!(in_two_steps(&addition(tagged.clone(), 1)), None);
        assert_eq!(in_two_steps(&addition(Match::any(), 2)), None);
        let wanted = addition(tagged, 2);
        let Some([Message::FlowMod(first), Message::Experimenter(second)]) = in_two_steps(&wanted)
        else {
            panic!("not in two steps");
        };
        assert_eq!((first.cookie, first.priority), (BETWEEN, 9));
        assert_eq!(first.instructions, Instructions::default());
        assert_eq!(second.body[..10], [0, 0, 0, 0, 0, 0, 0, 7, 3, 1]);
        assert!(second.body.ends_with(wanted.instructions.as_bytes()));
    }

    /// A rule of table 3 that goes to `table`.
    fn going(table: u8, command: FlowModCommand) -> FlowMod {
        FlowMod {
            cookie: 7,
            instructions: Instructions::from_bytes(vec![0, 1, 0, 8, table, 0, 0, 0]).unwrap(),
            ..FlowMod::new(command, 3, 9, Match::any().with_vlan_vid(5))
        }
    }

    #[test]
    fn a_rule_that_goes_back_is_completed_in_all_tables() {
        assert_eq!(in_two_steps(&going(4, FlowModCommand::Add)), None);
        for table in [0, 3] {
            let wanted = going(table, FlowModCommand::Add);
            let Some([_, Message::Experimenter(second)]) = in_two_steps(&wanted) else {
                panic!("not in two steps");
            };
            assert_eq!(second.body[..10], [0, 0, 0, 0, 0, 0, 0, 7, 0xff, 1]);
            assert_eq!(second.body[32..36], COOKIE);
        }
    }

    #[test]
    fn a_modification_for_one_table_becomes_one_for_all() {
        let modified = FlowMod {
            cookie_mask: 0xf,
            ..going(3, FlowModCommand::Modify)
        };
        let kept = in_all_tables(&modified, None).body;
        assert_eq!(kept[..10], [&[0xff; 9][..], &[1]].concat());
        assert_eq!(
            kept[32..52],
            [&MASKED_COOKIE[..], &[0; 7], &[7], &[0; 7], &[0xf]].concat()
        );
        let added = going(3, FlowModCommand::Add);
        let whole = in_all_tables(&added, Some(6)).body;
        assert_eq!(whole[..10], [0, 0, 0, 0, 0, 0, 0, 7, 0xff, 2]);
        assert_eq!(whole[43], 6);
        let without = in_all_tables(&added, None).body;
        assert_eq!(without[25] + 20, whole[25]);
    }
}
