//! Actions that need a match on the protocol, except over OpenFlow 1.0: there
//! they do nothing to other packets (`inconsistent_match` in lib/ofp-actions.c).

use crate::action::{nicira_action, Action, ActionItem, ActionList, Actions};
use crate::flow::FlowModCommand;
use crate::instruction::{Instruction, Instructions};
use crate::oxm::Match;
use crate::port::port_no;
use crate::wire::{padded, patch_length, u16_at, Put};
use crate::{Oversize, NX_VENDOR};

use super::actions::for_switch;
use super::frames::message;
use super::nicira::subtype;

const APPLY_ACTIONS: u16 = 4;
const INSTRUCTION_HEADER: usize = 8;
/// `OFPT_VENDOR`.
const VENDOR: u8 = 4;
/// `NXM_NX_COOKIE`.
const COOKIE: [u8; 4] = [0, 1, 30 << 1, 8];

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: [u16; 2] = [0x8847, 0x8848];
const NSH: u16 = 0x894f;
const TCP: u8 = 6;
/// TCP, UDP and SCTP.
const TRANSPORT: [u8; 3] = [TCP, 17, 132];
/// The bit of a match on fragments that says that it is not the first.
const LATER_FRAGMENT: u8 = 2;

/// Subtypes of Nicira's actions that need a protocol, or change it.
mod nicira {
    pub const FIN_TIMEOUT: u16 = 19;
    pub const DEC_TTL_CNT_IDS: u16 = 21;
    pub const ENCAP: u16 = 46;
    pub const DECAP: u16 = 47;
    pub const DEC_NSH_TTL: u16 = 48;
}

/// The facts about the packets of a rule while its actions are executed.
#[derive(Clone, Copy, Default)]
struct Known {
    /// 0: nothing.
    eth_type: u16,
    ip_proto: u8,
    is_later: bool,
    /// Whether a header was added or removed that Open vSwitch cannot see through.
    is_opaque: bool,
    /// Of a packet-out: its IP protocol is not known here.
    is_packet: bool,
    /// Whether a packet may have been changed by rules, or is not understood.
    is_unknown: bool,
}

impl Known {
    fn of(matching: &Match) -> Self {
        let mut known = Self::default();
        for field in matching.fields() {
            let byte = field.value.first().copied().unwrap_or_default();
            match (field.class, field.field) {
                (0x8000, 5) | (0, 3) => known.eth_type = u16_at(field.value, 0).unwrap_or_default(),
                (0x8000, 10) | (0, 6) => known.ip_proto = byte,
                (1, 26) => known.is_later = byte & LATER_FRAGMENT != 0,
                _ => {}
            }
        }
        known
    }

    /// Returns what is known of a packet. It depends on a setting whether Open vSwitch parses a second tag (`vlan-limit`), and what is behind it.
    fn of_packet(data: &[u8]) -> Self {
        const TAGS: [u16; 2] = [0x8100, 0x88a8];
        const LEAST: u16 = 0x0600;
        let type_at = |at| u16_at(data, at).unwrap_or_default();
        let is_tag = |eth_type| TAGS.contains(&eth_type);
        let [outer, inner, innermost] = [12, 16, 20].map(type_at);
        let (eth_type, is_hidden) = match (is_tag(outer), is_tag(inner)) {
            (false, _) => (outer, false),
            (true, false) => (inner, false),
            (true, true) => (innermost, true),
        };
        let has_actions = [IPV4, IPV6, MPLS[0], MPLS[1], NSH].contains(&eth_type);
        Self {
            eth_type,
            is_packet: true,
            is_unknown: eth_type < LEAST || is_hidden && has_actions,
            ..Self::default()
        }
    }

    fn is_ip(&self) -> bool {
        !self.is_opaque && matches!(self.eth_type, IPV4 | IPV6)
    }

    fn is_mpls(&self) -> bool {
        !self.is_opaque && MPLS.contains(&self.eth_type)
    }

    /// Tells whether an action of kind `kind` needs no more than is known (`ofpact_check__`).
    fn suffices(&self, kind: u16, item: &ActionItem<'_>) -> bool {
        let is_transport = self.is_packet || TRANSPORT.contains(&self.ip_proto) && !self.is_later;
        let is_tcp = self.ip_proto == TCP || self.is_packet && self.is_ip();
        match (item.action, kind) {
            _ if self.is_unknown => true,
            (Action::PushMpls(_), _) => !self.is_opaque,
            (Action::PopMpls(_) | Action::SetMplsTtl(_) | Action::DecMplsTtl, _) => self.is_mpls(),
            (Action::SetNwTtl(_) | Action::DecNwTtl, _) => self.is_ip(),
            // OpenFlow 1.1's set_nw_src and set_nw_dst, set_nw_tos and set_nw_ecn, set_tp_src and set_tp_dst.
            (Action::Other { .. }, 5 | 6) => self.is_ip() && self.eth_type == IPV4,
            (Action::Other { .. }, 7 | 8) => self.is_ip(),
            (Action::Other { .. }, 9 | 10) => self.is_ip() && is_transport,
            // set_mpls_label and set_mpls_tc.
            (Action::Other { .. }, 13 | 14) => self.is_mpls(),
            (Action::Nicira { subtype, .. }, _) => match subtype {
                nicira::FIN_TIMEOUT => is_tcp,
                nicira::DEC_TTL_CNT_IDS => self.is_ip(),
                nicira::DEC_NSH_TTL => self.eth_type == NSH,
                _ => true,
            },
            _ => true,
        }
    }

    fn follow(&mut self, action: &Action<'_>) {
        match action {
            Action::PushMpls(eth_type) => (self.eth_type, self.ip_proto) = (*eth_type, 0),
            Action::PopMpls(eth_type) => self.eth_type = *eth_type,
            Action::Nicira {
                subtype: nicira::ENCAP | nicira::DECAP,
                ..
            } => self.is_opaque = true,
            Action::Nicira {
                subtype:
                    nicira_action::RESUBMIT
                    | nicira_action::RESUBMIT_TABLE
                    | nicira_action::RESUBMIT_TABLE_CT,
                ..
            }
            | Action::Output {
                port: port_no::TABLE,
                ..
            } => self.is_unknown = self.is_packet,
            _ => {}
        }
    }

    /// Copies the actions that need no more; tells whether these are all.
    fn copy(mut self, list: Actions<'_>, out: &mut Vec<u8>) -> bool {
        let mut is_whole = true;
        for item in list.iter() {
            if !self.suffices(u16_at(item.raw, 0).unwrap_or_default(), &item) {
                is_whole = false;
                continue;
            }
            let is_clone = matches!(item.action, Action::Nicira { subtype, .. } if subtype == nicira_action::CLONE);
            match item.nested().filter(|_| is_clone) {
                Some(nested) => {
                    let start = out.len();
                    let header = item.raw.len() - nested.as_bytes().len();
                    out.put(item.raw.get(..header).unwrap_or_default());
                    is_whole &= self.copy(nested, out);
                    patch_length(out, start, 2);
                }
                None => out.put(item.raw),
            }
            self.follow(&item.action);
        }
        is_whole
    }
}

/// Tells whether an action, which may be followed by others, needs no look at its match.
fn may_need_protocol(action: &Action<'_>) -> bool {
    match action {
        Action::Nicira { subtype, .. } => matches!(
            *subtype,
            nicira::FIN_TIMEOUT | nicira::DEC_TTL_CNT_IDS | nicira::DEC_NSH_TTL
        ),
        Action::Other { .. }
        | Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::SetNwTtl(_)
        | Action::DecNwTtl => true,
        _ => false,
    }
}

/// Returns the instructions without the applied actions that OpenFlow 1.3
/// refuses in a rule with this match; `None`: it takes them all.
pub fn without_inconsistent(matching: &Match, instructions: &Instructions) -> Option<Instructions> {
    let mut may_need = false;
    instructions.for_each_action(&mut |item| may_need |= may_need_protocol(&item.action));
    if !may_need {
        return None;
    }
    let known = Known::of(matching);
    let (mut out, mut is_whole) = (Vec::new(), true);
    let mut rest = instructions.as_bytes();
    for instruction in instructions.iter() {
        let length = usize::from(u16_at(rest, 2)?);
        let (raw, others) = rest.split_at_checked(length)?;
        rest = others;
        let Instruction::ApplyActions(list) = instruction else {
            out.put(raw);
            continue;
        };
        let start = out.len();
        out.put_u16(APPLY_ACTIONS);
        out.zeros(6);
        is_whole &= known.copy(list, &mut out);
        match out.len() - start {
            INSTRUCTION_HEADER => out.truncate(start),
            _ => patch_length(&mut out, start, 2),
        }
    }
    (!is_whole).then(|| Instructions::trusted(out))
}

/// Returns the actions of a packet-out without those that OpenFlow 1.3 refuses
/// and that would do nothing to the packet; `None`: there are none.
pub(super) fn without_idle(data: &[u8], actions: &ActionList) -> Option<ActionList> {
    let mut out = Vec::new();
    let is_whole = Known::of_packet(data).copy(actions.as_actions(), &mut out);
    (!is_whole).then(|| ActionList::from_bytes(out).ok())?
}

/// Lets the upper byte of commands name a table (`NXT_FLOW_MOD_TABLE_ID`).
pub fn encode_table_ids(xid: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u32(NX_VENDOR);
    body.put_u32(subtype::FLOW_MOD_TABLE_ID);
    body.put(&[1, 0, 0, 0, 0, 0, 0, 0]);
    message(VENDOR, xid, &body)
}

/// A rule that gets other actions, if it still has its cookie.
#[derive(Clone, Debug)]
pub struct Rewrite<'a> {
    /// The rule's table.
    pub table_id: u8,
    /// The rule's priority.
    pub priority: u16,
    /// The rule's match.
    pub matching: &'a Match,
    /// The rule's cookie.
    pub cookie: u64,
    /// Those of its instructions that OpenFlow 1.0 has.
    pub instructions: &'a Instructions,
}

/// Encodes `NXT_FLOW_MOD`.
///
/// # Errors
/// It is too long for a message.
pub fn encode_rewrite(xid: u32, rewrite: &Rewrite<'_>) -> Result<Vec<u8>, Oversize> {
    let mut nxm = COOKIE.to_vec();
    nxm.put_u64(rewrite.cookie);
    // Spelled as over OpenFlow 1.3: in NXM, no tag is another match.
    nxm.extend(rewrite.matching.as_oxm());
    let mut body = Vec::new();
    body.put_u32(NX_VENDOR);
    body.put_u32(subtype::FLOW_MOD);
    // No other cookie, and no timeouts.
    body.put_u64(u64::MAX);
    body.put(&[
        rewrite.table_id,
        FlowModCommand::ModifyStrict as u8,
        0,
        0,
        0,
        0,
    ]);
    body.put_u16(rewrite.priority);
    // No buffer and no port; no flags.
    body.put(&[0xff; 6]);
    body.put_u16(0);
    body.put_u16(u16::try_from(nxm.len()).unwrap_or(u16::MAX));
    body.zeros(6);
    body.put(&nxm);
    body.zeros(padded(nxm.len()) - nxm.len());
    body.put(&for_switch(rewrite.instructions));
    let length = crate::header::HEADER_LEN + body.len();
    match u16::try_from(length) {
        Ok(_) => Ok(message(VENDOR, xid, &body)),
        Err(_) => Err(Oversize { length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openflow10::{decode, Formats, Request};

    const TCP_MATCH: [u8; 11] = [0x80, 0, 10, 2, 8, 0, 0x80, 0, 20, 1, 6];
    const SET_NW_SRC: [u8; 8] = [0, 5, 0, 8, 10, 0, 0, 1];
    const SET_TP_DST: [u8; 8] = [0, 10, 0, 8, 0, 80, 0, 0];
    const DEC_TTL: [u8; 8] = [0, 24, 0, 8, 0, 0, 0, 0];
    const OUTPUT: [u8; 16] = [0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    const PUSH_MPLS: [u8; 8] = [0, 19, 0, 8, 0x88, 0x47, 0, 0];
    const POP_MPLS: [u8; 8] = [0, 20, 0, 8, 8, 0, 0, 0];

    fn apply(lists: &[&[u8]]) -> Instructions {
        Instructions::apply(&ActionList::from_bytes(lists.concat()).unwrap())
    }

    fn of(oxm: &[u8]) -> Match {
        Match::from_oxm(oxm.to_vec()).unwrap()
    }

    fn clone_of(nested: &[u8]) -> Vec<u8> {
        let length = 16 + nested.len() as u8;
        let mut action = vec![0xff, 0xff, 0, length, 0, 0, 0x23, 0x20, 0, 42];
        action.extend([0; 6]);
        action.extend(nested);
        action
    }

    #[test]
    fn actions_stay_that_their_match_allows() {
        let all = apply(&[&SET_NW_SRC, &SET_TP_DST, &DEC_TTL, &OUTPUT]);
        let left = |matching: &[u8], list: &Instructions| without_inconsistent(&of(matching), list);
        assert_eq!(left(&TCP_MATCH, &all), None);
        let ip = &TCP_MATCH[..6];
        assert_eq!(
            left(ip, &all),
            Some(apply(&[&SET_NW_SRC, &DEC_TTL, &OUTPUT]))
        );
        assert_eq!(
            left(&[0x80, 0, 10, 2, 0x86, 0xdd], &all),
            Some(apply(&[&DEC_TTL, &OUTPUT]))
        );
        assert_eq!(left(&[], &all), Some(apply(&[&OUTPUT])));
        assert_eq!(left(&[], &apply(&[&DEC_TTL])), Some(Instructions::none()));
        let later = [ip, &[0x80, 0, 20, 1, 6], &[0, 1, 52, 1, 3]].concat();
        assert_eq!(
            left(&later, &apply(&[&SET_TP_DST])),
            Some(Instructions::none())
        );
    }

    #[test]
    fn labels_and_clones_change_what_is_known() {
        let left = |lists: &[&[u8]]| without_inconsistent(&of(&TCP_MATCH), &apply(lists));
        assert_eq!(left(&[&PUSH_MPLS, &POP_MPLS, &SET_NW_SRC]), None);
        assert_eq!(left(&[&PUSH_MPLS, &DEC_TTL]), Some(apply(&[&PUSH_MPLS])));
        assert_eq!(
            left(&[&PUSH_MPLS, &POP_MPLS, &SET_TP_DST]),
            Some(apply(&[&PUSH_MPLS, &POP_MPLS])),
            "the protocol is forgotten"
        );
        assert_eq!(left(&[&POP_MPLS, &OUTPUT]), Some(apply(&[&OUTPUT])));
        // Facts from inside a clone are forgotten behind it.
        let both = [&PUSH_MPLS[..], &DEC_TTL].concat();
        let wanted = clone_of(&PUSH_MPLS);
        assert_eq!(
            left(&[&clone_of(&both), &DEC_TTL]),
            Some(apply(&[&wanted, &DEC_TTL]))
        );
    }

    #[test]
    fn a_packet_out_loses_what_does_nothing() {
        let packet = |types: &[u16]| {
            let mut data = vec![2; 12];
            for eth_type in types {
                data.extend(eth_type.to_be_bytes());
                data.extend([0; 2]);
            }
            data
        };
        let list = |lists: &[&[u8]]| ActionList::from_bytes(lists.concat()).unwrap();
        let all = list(&[&SET_NW_SRC, &SET_TP_DST, &OUTPUT]);
        let arp = [0x0806];
        assert_eq!(without_idle(&packet(&arp), &all), Some(list(&[&OUTPUT])));
        for tagged in [&[0x8100, 0x0806][..], &[0x88a8, 0x8100, 0x0806]] {
            assert_eq!(without_idle(&packet(tagged), &all), Some(list(&[&OUTPUT])));
        }
        for kept in [&[IPV4][..], &[0x8100, IPV4], &[0x8100, 0x8100, IPV4], &[5]] {
            assert_eq!(without_idle(&packet(kept), &all), None, "{kept:x?}");
        }
        let mut table = OUTPUT;
        table[4..8].copy_from_slice(&port_no::TABLE.to_be_bytes());
        let behind = list(&[&SET_NW_SRC, &table, &SET_NW_SRC]);
        let wanted = list(&[&table, &SET_NW_SRC]);
        assert_eq!(without_idle(&packet(&arp), &behind), Some(wanted));
    }

    #[test]
    fn a_rewrite_has_the_actions_that_the_rule_has() {
        // set_vlan_vid and strip_vlan of a controller of OpenFlow 1.0.
        let tag = |bits: [u8; 2], value: [u8; 2]| {
            let mut load = vec![0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, 7];
            load.extend(bits);
            load.extend([0, 0, 8, 2, 0, 0, 0, 0, 0, 0]);
            load.extend(value);
            load
        };
        let (id, presence) = (tag([0, 12], [0x10, 5]), tag([3, 0], [0, 1]));
        let pop = [0, 18, 0, 8, 0, 0, 0, 0];
        let strip = [0, 3, 0, 8, 0, 0, 0, 0];
        let list = for_switch(&apply(&[&id, &presence, &pop]));
        assert_eq!(list, [&id, &presence, &strip[..]].concat());
    }

    #[test]
    fn a_rewrite_reads_as_a_strict_modification() {
        let rewrite = Rewrite {
            table_id: 3,
            priority: 7,
            matching: &of(&TCP_MATCH),
            cookie: 9,
            instructions: &apply(&[&SET_NW_SRC, &SET_TP_DST, &OUTPUT]),
        };
        let frame = encode_rewrite(5, &rewrite).unwrap();
        let formats = Formats {
            table_id: true,
            ..Formats::default()
        };
        let (read, _) = decode(&frame, &formats).unwrap();
        let Request::Modify(modify) = read else {
            panic!("{read:?}");
        };
        assert_eq!(modify.new_cookie, None);
        let flow_mod = modify.flow_mod;
        assert_eq!(flow_mod.command, FlowModCommand::ModifyStrict);
        assert_eq!((flow_mod.table_id, flow_mod.priority), (3, 7));
        assert_eq!((flow_mod.cookie, flow_mod.cookie_mask), (9, u64::MAX));
        assert_eq!(&flow_mod.instructions, rewrite.instructions);
        assert_eq!(
            flow_mod.matching.canonical().unwrap(),
            rewrite.matching.canonical().unwrap()
        );
        let (read, _) = decode(&encode_table_ids(1), &Formats::default()).unwrap();
        assert_eq!(read, Request::Formats(formats));
    }
}
