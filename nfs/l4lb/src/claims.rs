//! What a station says about its own address, and whether to believe it.
//!
//! Anybody on a link can send ARP and neighbour discovery in the name of another. A MAC address that is known is therefore replaced only where its
//! owner does not object: it is asked, at its old MAC address, and what it answers within [`PATIENCE`] decides. A message to all stations, as hosts
//! send after they moved, is believed at once and given up if the former owner answers; after an owner has objected, those wait as well.

use crate::state::Neighbour;

const SECOND: u64 = 1_000_000_000;
/// How long an owner has to object.
pub const PATIENCE: u64 = 2 * SECOND;
/// After an objection, messages to all are not believed at once for this long.
const WARY: u64 = 60 * SECOND;

/// How a station told its MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// To all stations, unasked.
    Announced,
    /// To us, asked or not.
    Told,
}

/// What follows from a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The neighbour's MAC address is another one now.
    pub changed: bool,
    /// The station to be asked whether it still has the address.
    pub ask: Option<u64>,
}

impl Neighbour {
    /// A station says that it has this address.
    pub fn hear(&mut self, mac: u64, manner: Manner, now: u64) -> Heard {
        let settled = self.settle(now);
        let heard = self.weigh(mac, manner, now);
        Heard {
            changed: settled || heard.changed,
            ..heard
        }
    }

    fn weigh(&mut self, mac: u64, manner: Manner, now: u64) -> Heard {
        let in_doubt = self.former != 0 && now.saturating_sub(self.announced) < PATIENCE;
        if self.mac == 0 {
            return self.become_known(mac, now);
        }
        if mac == self.mac {
            self.confirmed = now;
            if self.claim != 0 {
                self.claim = 0;
                self.objected = now;
            }
            return Heard::default();
        }
        if in_doubt && mac == self.former {
            self.objected = now;
            return self.become_known(mac, now);
        }
        let wary = self.objected != 0 && now.saturating_sub(self.objected) < WARY;
        if manner == Manner::Announced && !in_doubt && !wary {
            let former = self.mac;
            self.become_known(mac, now);
            self.former = former;
            self.announced = now;
            return Heard {
                changed: true,
                ask: self.may_ask(now).then_some(former),
            };
        }
        if self.claim != 0 {
            // One at a time: a second claim must not put off the decision on the first.
            return Heard::default();
        }
        self.claim = mac;
        self.claimed = now;
        Heard {
            changed: false,
            ask: self.may_ask(now).then_some(self.mac),
        }
    }

    fn become_known(&mut self, mac: u64, now: u64) -> Heard {
        self.mac = mac;
        self.confirmed = now;
        (self.claim, self.former) = (0, 0);
        Heard {
            changed: true,
            ask: None,
        }
    }

    /// Believes a claim that nobody objected to in time. Did the MAC address change?
    pub fn settle(&mut self, now: u64) -> bool {
        let undisputed = self.claim != 0 && now.saturating_sub(self.claimed) >= PATIENCE;
        undisputed && self.become_known(self.claim, now).changed
    }

    /// The owner that has not answered yet, to be asked again. None: there is nothing to clear up.
    #[must_use]
    pub fn doubted(&self, now: u64) -> Option<u64> {
        if self.claim != 0 {
            return Some(self.mac);
        }
        let in_doubt = self.former != 0 && now.saturating_sub(self.announced) < PATIENCE;
        in_doubt.then_some(self.former)
    }

    /// May the address be asked for? At most once a second; notes that it is.
    pub fn may_ask(&mut self, now: u64) -> bool {
        let due = self.asked == 0 || now.saturating_sub(self.asked) >= SECOND;
        if due {
            self.asked = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    const OWNER: u64 = 0x0200_0000_0001;
    const OTHER: u64 = 0x0200_0000_0002;
    const THIRD: u64 = 0x0200_0000_0003;
    const NOTHING: Heard = Heard {
        changed: false,
        ask: None,
    };

    fn known() -> Neighbour {
        let mut neighbour = Neighbour::zeroed();
        assert!(neighbour.hear(OWNER, Manner::Told, SECOND).changed);
        neighbour
    }

    const fn asks(mac: u64) -> Heard {
        Heard {
            changed: false,
            ask: Some(mac),
        }
    }

    #[test]
    fn what_is_told_is_believed_when_the_owner_does_not_object() {
        let mut neighbour = known();
        let now = 10 * SECOND;
        assert_eq!(neighbour.hear(OTHER, Manner::Told, now), asks(OWNER));
        assert_eq!(neighbour.doubted(now), Some(OWNER));
        assert_eq!(neighbour.hear(OTHER, Manner::Told, now + 1), NOTHING);
        assert!(!neighbour.settle(now + PATIENCE - 1));
        assert_eq!(neighbour.mac, OWNER);
        assert!(neighbour.settle(now + PATIENCE));
        assert_eq!(
            (neighbour.mac, neighbour.doubted(now + PATIENCE)),
            (OTHER, None)
        );
        assert_eq!(neighbour.confirmed, now + PATIENCE);
    }

    #[test]
    fn an_owner_who_answers_keeps_its_address() {
        let mut neighbour = known();
        let now = 10 * SECOND;
        neighbour.hear(OTHER, Manner::Told, now);
        // A third one does not put the decision off.
        assert_eq!(neighbour.hear(THIRD, Manner::Told, now + 1), NOTHING);
        assert_eq!(neighbour.hear(OWNER, Manner::Told, now + 2), NOTHING);
        assert!(!neighbour.settle(now + 2 * PATIENCE));
        assert_eq!((neighbour.mac, neighbour.claim), (OWNER, 0));
        // From now on announcements have to wait as well.
        let later = now + 2 + WARY - 1;
        assert_eq!(neighbour.hear(OTHER, Manner::Announced, later), asks(OWNER));
        assert_eq!(neighbour.mac, OWNER);
    }

    #[test]
    fn an_announcement_is_believed_at_once_and_given_up_when_the_former_owner_objects() {
        let mut neighbour = known();
        let now = 10 * SECOND;
        let believed = Heard {
            changed: true,
            ask: Some(OWNER),
        };
        assert_eq!(neighbour.hear(OTHER, Manner::Announced, now), believed);
        assert_eq!(
            (neighbour.mac, neighbour.doubted(now)),
            (OTHER, Some(OWNER))
        );
        // A second announcement does not make the owner forgotten.
        assert!(!neighbour.hear(THIRD, Manner::Announced, now + 1).changed);
        assert!(neighbour.hear(OWNER, Manner::Told, now + 2).changed);
        assert_eq!((neighbour.mac, neighbour.doubted(now + 3)), (OWNER, None));
        assert!(
            !neighbour
                .hear(OTHER, Manner::Announced, now + SECOND)
                .changed
        );
        // Where nobody objects, it stays, and the former owner has to wait as anybody has.
        let mut neighbour = known();
        neighbour.hear(OTHER, Manner::Announced, now);
        assert_eq!(neighbour.doubted(now + PATIENCE), None);
        assert_eq!(
            neighbour.hear(OWNER, Manner::Told, now + PATIENCE),
            asks(OTHER)
        );
        assert_eq!(neighbour.mac, OTHER);
        // Long after an objection, announcements are believed at once again.
        neighbour.hear(OTHER, Manner::Told, now + PATIENCE + 1);
        assert!(
            neighbour
                .hear(THIRD, Manner::Announced, now + PATIENCE + 1 + WARY)
                .changed
        );
    }

    #[test]
    fn an_address_is_asked_for_once_a_second() {
        let mut neighbour = known();
        assert!(neighbour.may_ask(SECOND) && !neighbour.may_ask(2 * SECOND - 1));
        assert_eq!(neighbour.hear(OTHER, Manner::Told, 2 * SECOND - 1), NOTHING);
        assert_eq!(neighbour.doubted(2 * SECOND - 1), Some(OWNER));
        assert!(neighbour.may_ask(2 * SECOND));
    }
}
