//! SYN cookies (RFC 4987, 3.6): the sequence number of a SYN-ACK holds all that is to be kept, so a SYN leaves no state.
//!
//! ```text
//! 31                          19 18                 7 6   5   4    3     1     0
//! +-----------------------------+--------------------+-------+------+-------+-----+
//! | SipHash-2-4 of the ends,    | SipHash-2-4 of the | scale | SACK |  MSS  | key |
//! | client's ISN, period, MSS   | ends and period    |       |      |       |     |
//! | and options                 |                    |       |      |       |     |
//! +-----------------------------+--------------------+-------+------+-------+-----+
//! ```
//!
//! With timestamps, the low 6 bits of the SYN-ACK's TSval hold the other options, as in Linux; the client echoes them: window
//! scale (4 bits, 15 means none), SACK permitted, ECN. The hash covers them, too, and bits 4 to 6 of the number are 0.
//!
//! Without timestamps (many clients have none), these bits hold SACK permitted and the window scale, rounded down to one of [`SCALES`]: windows then
//! seem smaller than they are.
//!
//! The second hash recognizes a cookie without the ISN: if the client's first segments are lost, a later one comes first, whose distance from the
//! ISN is unknown ([`Secrets::is_ours`]).
//!
//! *Lifetime.* A cookie is valid in the period of [`PERIOD`] in which it was issued and in the next: between 64 and 128 s.
//!
//! *Odds.* Of 2^32 acknowledgement numbers, 2^7 are valid for a segment without timestamps, since all options and both keys are acceptable: a
//! blind guess succeeds with a probability of 2^-25. At a million guesses per second, one succeeds about every 34 s, and
//! makes one connection whose sender sees none of its answers. Each period has its own random key, so guesses teach nothing.

use std::{
    hash::Hasher,
    net::{IpAddr, SocketAddr},
};

use bytemuck::{Pod, Zeroable};
use siphasher::sip::SipHasher24;

use crate::options::Syn;

/// The time after which a new key is used, in nanoseconds.
pub const PERIOD: u64 = 64_000_000_000;

const NANOSECONDS_PER_TICK: u64 = 1_000_000;

/// The maximum segment sizes that a cookie can express: the least that Linux uses, RFC 9293's defaults for IPv4 and IPv6, tunnels, IPv6
/// and IPv4 on Ethernet, jumbo frames.
const SIZES: [u16; 8] = [88, 536, 1220, 1340, 1400, 1440, 1460, 8940];

/// The size that a client without an MSS option can receive (RFC 9293, 3.7.1).
const DEFAULT_SIZE: [u16; 2] = [536, 1220];

const KEY_BITS: u32 = 1;
const SIZE_BITS: u32 = 3;
const SHORT_BITS: u32 = 3;
const LOW_BITS: u32 = KEY_BITS + SIZE_BITS + SHORT_BITS;
const ENDS_BITS: u32 = 12;
const ENDS_MASK: u32 = (1 << ENDS_BITS) - 1;

/// The window scales that a cookie without timestamps can express, after 0 for none: a small one, Linux's, and Windows'.
const SCALES: [u8; 3] = [2, 6, 8];
const SHORT_SACK: u32 = 1;

const SCALE_MASK: u32 = 0xf;
const NO_SCALE: u32 = 0xf;
const SACK: u32 = 0x10;
const ECN: u32 = 0x20;
const OPTIONS_MASK: u32 = 0x3f;

/// The keys of the current period and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Secrets {
    /// The keys of even and odd periods.
    keys: [[u64; 2]; 2],
    /// The period of the newer key.
    period: u64,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub client: SocketAddr,
    pub server: SocketAddr,
}

/// The numbers of a SYN-ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    pub sequence: u32,
    /// The TSval, if the client has sent timestamps.
    pub timestamp: Option<u32>,
    /// The cookie holds the client's window scale, so the SYN-ACK may have one.
    pub scales: bool,
}

/// The connection that a client's first segment after its SYN completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The sequence number of the client's SYN.
    pub client_isn: u32,
    /// The sequence number of the SYN-ACK.
    pub server_isn: u32,
    /// The largest segment that the client can receive, rounded down to one of eight sizes.
    pub mss: u16,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    pub ecn: bool,
    pub timestamps: bool,
}

impl Secrets {
    /// Creates secrets from random keys, at the time `now` in nanoseconds.
    #[must_use]
    pub const fn new(now: u64, keys: [[u64; 2]; 2]) -> Self {
        Self {
            keys,
            period: now / PERIOD,
        }
    }

    /// Returns the secrets with a new random key if a new period has begun. Call it at least every few seconds: cookies of secrets
    /// that are two periods old are refused.
    #[must_use]
    pub fn renewed(&self, now: u64, random: impl FnOnce() -> [u64; 2]) -> Option<Self> {
        let period = now / PERIOD;
        if period <= self.period {
            return None;
        }
        let mut secrets = Self { period, ..*self };
        secrets.keys[(period & 1) as usize] = random();
        Some(secrets)
    }

    /// Answers a SYN with a cookie. `ecn`: the SYN asks for ECN, and the answer agrees.
    #[must_use]
    pub fn issue(&self, ends: &Ends, sequence: u32, syn: &Syn, ecn: bool, now: u64) -> Issued {
        let offered = syn
            .mss
            .unwrap_or(DEFAULT_SIZE[usize::from(ends.client.is_ipv6())]);
        let size = SIZES.iter().rposition(|size| *size <= offered).unwrap_or(0) as u32;
        let options = syn.timestamps.map(|_| encode(syn, ecn));
        let short = options.map_or_else(|| encode_short(syn), |_| 0);
        let cookie = self.cookie(ends, sequence, self.period, (size, short), options);
        Issued {
            sequence: cookie,
            scales: syn.window_scale.is_some() && (options.is_some() || short >> 1 > 0),
            timestamp: options.map(|options| stamp(now, options)),
        }
    }

    /// Checks a client's segment with an ACK: its sequence number and acknowledgement, and its TSecr if it has timestamps.
    /// Returns None if no cookie of ours is that old, or none belongs to it.
    #[must_use]
    pub fn check(
        &self,
        ends: &Ends,
        sequence: u32,
        acknowledgement: u32,
        echo: Option<u32>,
        now: u64,
    ) -> Option<Accepted> {
        let (client_isn, server_isn) = (sequence.wrapping_sub(1), acknowledgement.wrapping_sub(1));
        let size = (server_isn >> KEY_BITS) & ((1 << SIZE_BITS) - 1);
        let mss = *SIZES.get(size as usize)?;
        let period = self.period_of(server_isn, now)?;
        let short = (server_isn >> (KEY_BITS + SIZE_BITS)) & ((1 << SHORT_BITS) - 1);
        let options = echo.map(|echo| echo & OPTIONS_MASK);
        if options.is_some() && short != 0 {
            return None;
        }
        if self.cookie(ends, client_isn, period, (size, short), options) != server_isn {
            return None;
        }
        let (window_scale, sack_permitted, ecn) = match options {
            Some(options) => decode(options),
            None => decode_short(short),
        };
        Some(Accepted {
            client_isn,
            server_isn,
            mss,
            window_scale,
            sack_permitted,
            ecn,
            timestamps: options.is_some(),
        })
    }

    fn cookie(
        &self,
        ends: &Ends,
        sequence: u32,
        period: u64,
        (size, short): (u32, u32),
        options: Option<u32>,
    ) -> u32 {
        let mut hasher = self.hasher(ends, period);
        let known = hasher.finish() as u32 & ENDS_MASK;
        // Options fit 6 bits, so 255 is none of them.
        let rest = short << 12 | size << 8 | options.unwrap_or(0xff);
        hasher.write(&sequence.to_le_bytes());
        hasher.write(&rest.to_le_bytes());
        let hash = (hasher.finish() as u32) << ENDS_BITS | known;
        let low = short << SIZE_BITS | size;
        hash << LOW_BITS | low << KEY_BITS | (period & 1) as u32
    }

    /// Tells whether an acknowledgement looks like that of a cookie of ours: one of 2^12 others does, too.
    #[must_use]
    pub fn is_ours(&self, ends: &Ends, acknowledgement: u32, now: u64) -> bool {
        let server_isn = acknowledgement.wrapping_sub(1);
        let Some(period) = self.period_of(server_isn, now) else {
            return false;
        };
        let known = self.hasher(ends, period).finish() as u32 & ENDS_MASK;
        (server_isn >> LOW_BITS) & ENDS_MASK == known
    }

    /// Returns the period in which a cookie was issued. None: it is too old.
    fn period_of(&self, server_isn: u32, now: u64) -> Option<u64> {
        let is_newer = u64::from(server_isn & 1) == self.period & 1;
        let period = self.period.wrapping_sub(u64::from(!is_newer));
        ((now / PERIOD).wrapping_sub(period) <= 1).then_some(period)
    }

    /// Returns the hash of the two ends and a period.
    fn hasher(&self, ends: &Ends, period: u64) -> SipHasher24 {
        let [first, second] = self.keys[(period & 1) as usize];
        let mut hasher = SipHasher24::new_with_keys(first, second);
        for end in [ends.client, ends.server] {
            match end.ip() {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
            hasher.write(&end.port().to_le_bytes());
        }
        hasher.write(&period.to_le_bytes());
        hasher
    }
}

fn encode(syn: &Syn, ecn: bool) -> u32 {
    let scale = syn.window_scale.map_or(NO_SCALE, u32::from) & SCALE_MASK;
    scale | if syn.sack_permitted { SACK } else { 0 } | if ecn { ECN } else { 0 }
}

fn encode_short(syn: &Syn) -> u32 {
    let offered = syn.window_scale.unwrap_or(0);
    let fitting = SCALES.iter().take_while(|scale| **scale <= offered);
    (fitting.count() as u32) << 1 | u32::from(syn.sack_permitted)
}

fn decode_short(short: u32) -> (Option<u8>, bool, bool) {
    let scale = (short >> 1).checked_sub(1);
    (
        scale.and_then(|index| SCALES.get(index as usize).copied()),
        short & SHORT_SACK != 0,
        false,
    )
}

fn decode(options: u32) -> (Option<u8>, bool, bool) {
    let scale = options & SCALE_MASK;
    (
        (scale != NO_SCALE).then_some(scale as u8),
        options & SACK != 0,
        options & ECN != 0,
    )
}

/// Returns the latest TSval of a millisecond clock, not in the future, with these options.
const fn stamp(now: u64, options: u32) -> u32 {
    let ticks = (now / NANOSECONDS_PER_TICK) as u32;
    let stamp = (ticks & !OPTIONS_MASK) | options;
    if options > ticks & OPTIONS_MASK {
        stamp.wrapping_sub(OPTIONS_MASK + 1)
    } else {
        stamp
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::Timestamps;

    const KEYS: [[u64; 2]; 2] = [[1, 2], [3, 4]];
    const SECOND: u64 = 1_000_000_000;

    fn ends() -> Ends {
        Ends {
            client: "192.0.2.7:40000".parse().unwrap(),
            server: "198.51.100.1:80".parse().unwrap(),
        }
    }

    fn full() -> Syn {
        Syn {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
        }
    }

    /// Checks the client's answer to a SYN-ACK.
    fn answer(
        secrets: &Secrets,
        ends: &Ends,
        isn: u32,
        issued: &Issued,
        now: u64,
    ) -> Option<Accepted> {
        let (sequence, acknowledgement) = (isn.wrapping_add(1), issued.sequence.wrapping_add(1));
        secrets.check(ends, sequence, acknowledgement, issued.timestamp, now)
    }

    #[test]
    fn a_cookie_lives_until_the_end_of_the_next_period() {
        let mut secrets = Secrets::new(0, KEYS);
        let issued = secrets.issue(&ends(), 1000, &full(), false, 0);
        assert_eq!(secrets.renewed(PERIOD - 1, || [9, 9]), None);
        assert!(answer(&secrets, &ends(), 1000, &issued, PERIOD - 1).is_some());
        secrets = secrets.renewed(PERIOD, || [5, 6]).unwrap();
        assert!(answer(&secrets, &ends(), 1000, &issued, PERIOD).is_some());
        assert!(answer(&secrets, &ends(), 1000, &issued, 2 * PERIOD - 1).is_some());
        let later = secrets.renewed(2 * PERIOD, || [7, 8]).unwrap();
        assert_eq!(answer(&later, &ends(), 1000, &issued, 2 * PERIOD), None);
        // Also with the keys of its time, if the caller has not renewed them, or has renewed them with the same.
        assert_eq!(answer(&secrets, &ends(), 1000, &issued, 2 * PERIOD), None);
        let same = secrets.renewed(2 * PERIOD, || KEYS[0]).unwrap();
        assert_eq!(answer(&same, &ends(), 1000, &issued, 2 * PERIOD), None);
    }

    #[test]
    fn keys_change_one_at_a_time() {
        let first = Secrets::new(0, KEYS);
        let second = first.renewed(PERIOD, || [5, 6]).unwrap();
        let old = first.issue(&ends(), 7, &full(), false, 0);
        let new = second.issue(&ends(), 7, &full(), false, PERIOD);
        assert_ne!(old.sequence & 1, new.sequence & 1);
        for issued in [old, new] {
            assert!(answer(&second, &ends(), 7, &issued, PERIOD).is_some());
        }
        // Periods without a packet: both cookies are too old.
        let late = second.renewed(5 * PERIOD, || [7, 8]).unwrap();
        for issued in [old, new] {
            assert_eq!(answer(&late, &ends(), 7, &issued, 5 * PERIOD), None);
        }
    }

    #[test]
    fn the_size_is_rounded_down_to_one_that_a_cookie_can_express() {
        let secrets = Secrets::new(0, KEYS);
        let agreed = |mss, ends: &Ends| {
            let syn = Syn {
                mss,
                ..Syn::default()
            };
            let issued = secrets.issue(ends, 3, &syn, false, 0);
            answer(&secrets, ends, 3, &issued, 0).unwrap().mss
        };
        for (offered, expected) in [
            (1460, 1460),
            (1459, 1440),
            (536, 536),
            (535, 88),
            (1, 88),
            (65_000, 8940),
        ] {
            assert_eq!(agreed(Some(offered), &ends()), expected, "{offered}");
        }
        assert_eq!(agreed(None, &ends()), 536);
        let ipv6 = Ends {
            client: "[2001:db8::1]:40000".parse().unwrap(),
            server: "[2001:db8::2]:80".parse().unwrap(),
        };
        assert_eq!(agreed(None, &ipv6), 1220);
    }

    #[test]
    fn a_cookie_fits_its_connection_only() {
        let secrets = Secrets::new(0, KEYS);
        let issued = secrets.issue(&ends(), 1000, &full(), true, 0);
        assert!(answer(&secrets, &ends(), 1000, &issued, 0).is_some());
        assert_eq!(answer(&secrets, &ends(), 1001, &issued, 0), None);
        let port = Ends {
            client: "192.0.2.7:40001".parse().unwrap(),
            ..ends()
        };
        let address = Ends {
            server: "198.51.100.2:80".parse().unwrap(),
            ..ends()
        };
        let turned = Ends {
            client: ends().server,
            server: ends().client,
        };
        for other in [port, address, turned] {
            assert_eq!(answer(&secrets, &other, 1000, &issued, 0), None);
        }
        let other = Secrets::new(0, [[1, 3], [3, 4]]);
        assert_eq!(answer(&other, &ends(), 1000, &issued, 0), None);
        // Options that the SYN did not have: a larger scale, no timestamps.
        for timestamp in [issued.timestamp.map(|stamp| stamp ^ 1), None] {
            let forged = Issued {
                timestamp,
                ..issued
            };
            assert_eq!(answer(&secrets, &ends(), 1000, &forged, 0), None);
        }
        // Another TSval with the same options is that of a repeated SYN-ACK.
        let timestamp = issued.timestamp.map(|stamp| stamp.wrapping_sub(64));
        let repeated = Issued {
            timestamp,
            ..issued
        };
        assert!(answer(&secrets, &ends(), 1000, &repeated, 0).is_some());
    }

    #[test]
    fn all_options_of_a_cookie_are_valid_guesses() {
        let secrets = Secrets::new(PERIOD, KEYS);
        let mut valid = 0;
        for (period, size, short) in [(0, 0, 0), (0, 7, 1), (1, 0, 7), (1, 5, 2)] {
            let cookie = secrets.cookie(&ends(), 1000, period, (size, short), None);
            let around = (0..128).map(|low| (cookie & !0x7f) | low);
            let found = around.filter(|guess| {
                secrets
                    .check(&ends(), 1001, guess.wrapping_add(1), None, PERIOD)
                    .is_some()
            });
            valid += found.count();
        }
        // Each cookie is valid alone: its neighbours have another size or key, and need another hash.
        assert_eq!(valid, 4);
    }

    #[test]
    fn a_cookie_is_recognized_without_the_isn() {
        let secrets = Secrets::new(0, KEYS);
        let issued = secrets.issue(&ends(), 1000, &full(), false, 0);
        let acknowledgement = issued.sequence.wrapping_add(1);
        assert!(secrets.is_ours(&ends(), acknowledgement, PERIOD));
        assert!(!secrets.is_ours(&ends(), acknowledgement, 2 * PERIOD));
        let other = Ends {
            client: "192.0.2.7:40001".parse().unwrap(),
            ..ends()
        };
        assert!(!secrets.is_ours(&other, acknowledgement, 0));
        let found = (0..1 << 16).filter(|guess| secrets.is_ours(&ends(), guess << 16, 0));
        assert!(found.count() < 64);
    }

    #[test]
    fn a_stamp_is_the_latest_with_its_options() {
        for ticks in (0..200).chain([1 << 32, (1 << 32) + 70]) {
            for options in 0..=OPTIONS_MASK {
                let stamp = stamp(ticks * NANOSECONDS_PER_TICK, options);
                assert_eq!(stamp & OPTIONS_MASK, options);
                assert!((ticks as u32).wrapping_sub(stamp) < 64, "{ticks} {options}");
            }
        }
    }

    proptest! {
        /// All that the client has offered comes back, with any clock; TSvals are not from the future.
        #[test]
        fn what_is_issued_is_accepted(
            isn: u32,
            keys: [[u64; 2]; 2],
            mss: Option<u16>,
            scale in prop::option::of(0_u8..=14),
            sack_permitted: bool,
            ecn: bool,
            has_timestamps: bool,
            now in 0..u64::MAX / 2,
            ports: (u16, u16),
            delay in 0..PERIOD,
        ) {
            let ends = Ends {
                client: (std::net::Ipv4Addr::new(10, 0, 0, 1), ports.0).into(),
                server: (std::net::Ipv4Addr::new(10, 0, 0, 2), ports.1).into(),
            };
            let timestamps = has_timestamps.then_some(Timestamps { value: 77, echo: 0 });
            let syn = Syn { mss, window_scale: scale, sack_permitted, timestamps };
            let secrets = Secrets::new(now, keys);
            let issued = secrets.issue(&ends, isn, &syn, ecn, now);
            let later = secrets.renewed(now + delay, || [8, 8]).unwrap_or(secrets);
            let accepted = answer(&later, &ends, isn, &issued, now + delay);
            prop_assert!(accepted.is_some());
            let accepted = accepted.unwrap();
            prop_assert_eq!((accepted.client_isn, accepted.server_isn), (isn, issued.sequence));
            prop_assert!(accepted.mss <= mss.unwrap_or(536).max(88));
            prop_assert_eq!(accepted.timestamps, has_timestamps);
            prop_assert_eq!(issued.scales, accepted.window_scale.is_some());
            prop_assert_eq!(issued.timestamp.is_some(), has_timestamps);
            if let Some(stamp) = issued.timestamp {
                let age = ((now / NANOSECONDS_PER_TICK) as u32).wrapping_sub(stamp);
                prop_assert!(age < 64, "{}", age);
                prop_assert_eq!(accepted.window_scale, scale);
                prop_assert_eq!((accepted.sack_permitted, accepted.ecn), (sack_permitted, ecn));
            } else {
                let rounded = SCALES.into_iter().filter(|known| *known <= scale.unwrap_or(0)).max();
                prop_assert_eq!((accepted.window_scale, accepted.sack_permitted, accepted.ecn), (rounded, sack_permitted, false));
            }
        }

        /// A random acknowledgement completes no connection (2^-25 each).
        #[test]
        fn guesses_fail(sequence: u32, acknowledgement: u32, echo: Option<u32>, now in 0..1000 * SECOND) {
            let secrets = Secrets::new(now, KEYS);
            prop_assert_eq!(secrets.check(&ends(), sequence, acknowledgement, echo, now), None);
        }
    }
}
