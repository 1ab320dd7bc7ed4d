//! The ports whose rules a packet-out's own actions look up: its switch must have these rules.

use crate::model::facts::{is_in_port, nicira, OFPP_IN_PORT_16};
use openflow13::{actions, port_no, Action, Actions};

/// The lookups of a packet in the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// The in_port of each lookup that the actions name.
    pub ports: Vec<u32>,
    /// Some in_port comes from the packet or a register.
    pub unforeseen: bool,
}

impl Lookups {
    /// Finds the lookups of a packet-out's actions, with the message's `in_port`.
    pub fn of(list: Actions<'_>, in_port: u32) -> Self {
        let mut lookups = Self::default();
        let mut current = Some(in_port);
        actions::flatten(list, &mut |item| match item.action {
            // A group's buckets may resubmit.
            Action::Output {
                port: port_no::TABLE,
                ..
            }
            | Action::Group(_) => lookups.add(current),
            Action::SetField(field) if is_in_port(field.class, field.field) => {
                current = field.mask.is_none().then(|| number(field.value));
            }
            Action::Nicira { subtype, body } => lookups.visit(subtype, body, &mut current),
            _ => {}
        });
        lookups
    }

    fn add(&mut self, in_port: Option<u32>) {
        match in_port {
            Some(port) => self.ports.push(port),
            None => self.unforeseen = true,
        }
    }

    /// `body` follows the subtype, as in facts.rs.
    fn visit(&mut self, subtype: u16, body: &[u8], current: &mut Option<u32>) {
        match subtype {
            nicira::RESUBMIT | nicira::RESUBMIT_TABLE | nicira::RESUBMIT_TABLE_CT => {
                let port = body.get(..2).map(number);
                let is_current = port == Some(OFPP_IN_PORT_16.into());
                self.add(if is_current { *current } else { port });
            }
            _ if !nicira::writes_in_port(subtype, body) => {}
            nicira::REG_LOAD => *current = loaded(body),
            _ => *current = None,
        }
    }
}

/// Returns the value that struct nx_action_reg_load writes, if it is a whole port: ofs_nbits, dst, value.
fn loaded(body: &[u8]) -> Option<u32> {
    const WHOLE: [u32; 2] = [15, 31];
    let bits = number(body.get(..2)?);
    let value = number(body.get(10..14)?);
    WHOLE.contains(&bits).then_some(value)
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow13::ActionList;

    fn of(bytes: &[&[u8]]) -> (Vec<u32>, bool) {
        let list = ActionList::from_bytes(bytes.concat()).unwrap();
        let Lookups { ports, unforeseen } = Lookups::of(list.as_actions(), 1);
        (ports, unforeseen)
    }

    const TABLE: [u8; 16] = [0, 0, 0, 16, 0xff, 0xff, 0xff, 0xf9, 0, 0, 0, 0, 0, 0, 0, 0];
    fn nicira(subtype: u8, body: [u8; 14]) -> Vec<u8> {
        let head = [0xff, 0xff, 0, 24, 0, 0, 0x23, 0x20, 0, subtype];
        [&head[..], &body].concat()
    }

    #[test]
    fn the_port_of_each_lookup_is_told() {
        // NXAST_REG_LOAD of NXM_OF_IN_PORT.
        let set = nicira(7, [0, 15, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
        let resubmit = |port: u8| {
            let head = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 1];
            let port = if port == 0 { [0xff, 0xf8] } else { [0, port] };
            [&head[..], &port, &[0; 4]].concat()
        };
        let group = [0, 22, 0, 8, 0, 0, 0, 1];
        for (actions, ports) in [
            (vec![&TABLE[..]], vec![1]),
            (vec![&set[..]], vec![]),
            (vec![&set[..], &TABLE], vec![2]),
            (vec![&TABLE[..], &set, &TABLE, &TABLE], vec![1, 2, 2]),
            (vec![&set[..], &group], vec![2]),
            (vec![&resubmit(4)[..], &TABLE], vec![4, 1]),
            (vec![&set[..], &resubmit(0)], vec![2]),
        ] {
            assert_eq!(of(&actions), (ports, false), "{actions:?}");
        }
    }

    #[test]
    fn a_port_out_of_the_packet_cannot_be_foreseen() {
        // Part of the field, and another register.
        let part = nicira(7, [0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
        let moved = nicira(6, [0, 16, 0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 2]);
        for write in [part, moved] {
            assert_eq!(of(&[&write, &TABLE]), (vec![], true));
            assert_eq!(of(&[&write]), (vec![], false));
        }
        let other = nicira(7, [0, 15, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(of(&[&other, &TABLE]), (vec![1], false));
    }
}
