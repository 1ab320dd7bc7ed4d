//! Claims: decides whether to believe a station about its own address.
//!
//! Any station on a link can forge ARP and neighbour discovery. A known MAC address is therefore replaced only if its owner does not object: the
//! function asks it at its old MAC address and waits [`PATIENCE`] for an answer. An announcement to all stations, as hosts send after a move,
//! is believed at once and reverted if the former owner answers; after an objection, announcements wait as well.

use crate::tables::Neighbour;

const SECOND: u64 = 1_000_000_000;
/// The shortest time between two questions for a next hop.
const QUICK: u64 = SECOND / 10;
/// The time in which an owner can object.
pub const PATIENCE: u64 = 2 * SECOND;
/// The time after an objection in which announcements are not believed at once.
const WARY: u64 = 60 * SECOND;

/// The way in which a station told its MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// To all stations, unasked.
    Announced,
    /// To the function, asked or not.
    Told,
}

/// The consequences of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The neighbour's MAC address has changed.
    pub changed: bool,
    /// The station to ask whether it still has the address.
    pub ask: Option<u64>,
}

impl Neighbour {
    /// Hears a station claim this address.
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
            // One claim at a time: a second must not delay the decision on the first.
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

    /// Accepts a claim without a timely objection. Returns whether the MAC address changed.
    pub fn settle(&mut self, now: u64) -> bool {
        let undisputed = self.claim != 0 && now.saturating_sub(self.claimed) >= PATIENCE;
        undisputed && self.become_known(self.claim, now).changed
    }

    /// Returns the owner that has not answered yet and must be asked again. None: nothing is in doubt.
    #[must_use]
    pub fn doubted(&self, now: u64) -> Option<u64> {
        if self.claim != 0 {
            return Some(self.mac);
        }
        let in_doubt = self.former != 0 && now.saturating_sub(self.announced) < PATIENCE;
        in_doubt.then_some(self.former)
    }

    /// Allows one question a second, and notes it.
    pub fn may_ask(&mut self, now: u64) -> bool {
        self.may_ask_after(SECOND, now)
    }

    /// Allows a question for a next hop, and notes it: one a second, and more often in the first while no station has answered. A
    /// function asks when it starts, which may be just before its port, or its neighbour's, is connected.
    pub fn may_seek(&mut self, now: u64) -> bool {
        if self.mac != 0 {
            return self.may_ask(now);
        }
        if self.asked == 0 {
            self.claimed = now;
        }
        let pause = now.saturating_sub(self.claimed) / 2;
        self.may_ask_after(pause.clamp(QUICK, SECOND), now)
    }

    fn may_ask_after(&mut self, pause: u64, now: u64) -> bool {
        let due = self.asked == 0 || now.saturating_sub(self.asked) >= pause;
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
    fn a_claim_is_believed_when_the_owner_does_not_object() {
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
    fn an_owner_that_answers_keeps_its_address() {
        let mut neighbour = known();
        let now = 10 * SECOND;
        neighbour.hear(OTHER, Manner::Told, now);
        // A third station does not delay the decision.
        assert_eq!(neighbour.hear(THIRD, Manner::Told, now + 1), NOTHING);
        assert_eq!(neighbour.hear(OWNER, Manner::Told, now + 2), NOTHING);
        assert!(!neighbour.settle(now + 2 * PATIENCE));
        assert_eq!((neighbour.mac, neighbour.claim), (OWNER, 0));
        // Announcements now have to wait as well.
        let later = now + 2 + WARY - 1;
        assert_eq!(neighbour.hear(OTHER, Manner::Announced, later), asks(OWNER));
        assert_eq!(neighbour.mac, OWNER);
    }

    #[test]
    fn an_announcement_is_believed_at_once_and_reverted_when_the_former_owner_objects() {
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
        // A second announcement does not displace the owner.
        assert!(!neighbour.hear(THIRD, Manner::Announced, now + 1).changed);
        assert!(neighbour.hear(OWNER, Manner::Told, now + 2).changed);
        assert_eq!((neighbour.mac, neighbour.doubted(now + 3)), (OWNER, None));
        assert!(
            !neighbour
                .hear(OTHER, Manner::Announced, now + SECOND)
                .changed
        );
        // Without an objection the new owner stays, and the former one must claim the address like any other.
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
    fn an_address_is_requested_at_most_once_a_second() {
        let mut neighbour = known();
        assert!(neighbour.may_ask(SECOND) && !neighbour.may_ask(2 * SECOND - 1));
        assert_eq!(neighbour.hear(OTHER, Manner::Told, 2 * SECOND - 1), NOTHING);
        assert_eq!(neighbour.doubted(2 * SECOND - 1), Some(OWNER));
        assert!(neighbour.may_ask(2 * SECOND));
    }

    #[test]
    fn an_unknown_next_hop_is_sought_ever_more_rarely_until_once_a_second() {
        let mut neighbour = Neighbour::zeroed();
        let start = 7 * SECOND;
        let asked: Vec<u64> = (0..100)
            .map(|tenth| tenth * QUICK)
            .filter(|after| neighbour.may_seek(start + after))
            .map(|after| after / QUICK)
            .collect();
        assert_eq!(asked[..6], [0, 1, 2, 4, 8, 16]);
        assert!(asked[5..].windows(2).all(|pair| pair[1] - pair[0] == 10));

        neighbour.hear(OWNER, Manner::Told, start + 10 * SECOND);
        assert_eq!(
            (neighbour.claim, neighbour.settle(start + 20 * SECOND)),
            (0, false)
        );
    }
}
