//! Rules that push more tags than an addition may.
//!
//! Open vSwitch checks actions against the match of their message (`ofpacts_check()`, lib/ofp-actions.c). So a wide modification can give two
//! more tags to a rule that matches a tag, and an addition of the same rule is refused: BAD_TAG.

use openflow13::{Action, Experimenter, FlowMod, FlowModCommand, Instructions, Message, NX_VENDOR};

/// The number of tags that Open vSwitch keeps of a packet (`FLOW_MAX_VLAN_HEADERS`).
const TAGS: usize = 2;
/// `NXT_FLOW_MOD`, which is the only modification that changes a cookie.
const FLOW_MOD: u32 = 13;
/// `NXM_NX_COOKIE`.
const COOKIE: [u8; 4] = [0, 1, 30 << 1, 8];
/// The cookie of a rule between both messages. It was drawn by chance, so that it selects no rule of a controller.
const BETWEEN: u64 = 0x9d1f_63c8_5b07_e24a;

/// Returns the messages that replace the addition of such a rule: an addition without instructions, and a modification that selects it by its
/// cookie, and sets instructions and cookie. `None`: switches take the addition.
pub fn in_two_steps(message: &FlowMod) -> Option<[Message; 2]> {
    let is_ordinary = message.command != FlowModCommand::Add || pushes(message) < TAGS;
    // A modification cannot set the cookie of all ones.
    if is_ordinary || message.cookie == u64::MAX || !message.matching.canonical().ok()?.has_tag() {
        return None;
    }
    let addition = FlowMod {
        cookie: BETWEEN,
        instructions: Instructions::default(),
        ..message.clone()
    };
    Some([
        Message::FlowMod(addition),
        Message::Experimenter(modification(message)),
    ])
}

fn pushes(message: &FlowMod) -> usize {
    let mut found = 0;
    message.instructions.for_each_action(&mut |item| {
        found += usize::from(matches!(item.action, Action::PushVlan(_)))
    });
    found
}

/// Builds `struct nx_flow_mod` (include/openflow/nicira-ext.h).
fn modification(message: &FlowMod) -> Experimenter {
    let mut body = message.cookie.to_be_bytes().to_vec();
    body.extend([message.table_id, FlowModCommand::Modify as u8]);
    // No timeouts and no priority; no buffer and no port, which are all ones; no flags.
    body.extend([0; 6]);
    body.extend([0xff; 6]);
    body.extend([0; 2]);
    // The length of the match, which is padded to a multiple of 8 bytes.
    body.extend([0, 12]);
    body.extend([0; 6]);
    body.extend(COOKIE);
    body.extend(BETWEEN.to_be_bytes());
    body.extend([0; 4]);
    body.extend(message.instructions.as_bytes());
    Experimenter {
        vendor: NX_VENDOR,
        subtype: FLOW_MOD,
        body: body.into(),
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
}
