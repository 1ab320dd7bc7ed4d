//! Lifetimes of records, in ticks.

use std::time::Duration;

use crate::Class;

/// The unit of lifetimes: 2^31 ns, 2.1 s.
pub const TICK_NANOS: u64 = 1 << TICK_SHIFT;
const TICK_SHIFT: u32 = 31;

/// A record with this many ticks left or more, modulo [`EXPIRY_SPAN`], has expired. The difference between the two is the time
/// in which aging must pass over the table: 64 ticks, 137 s.
pub(crate) const LIVING_TICKS: u64 = 448;
/// The modulus of expiry times.
pub(crate) const EXPIRY_SPAN: u64 = 512;

/// The lifetimes of each class after a record's last packet: at least as requested, at most two ticks and a sixteenth more. The
/// sixteenth saves most packets a write: a packet renews the record only if less than the requested lifetime is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// For each class, the remaining ticks at which a packet need not renew.
    enough: [u16; 4],
    /// For each class, the ticks that a renewal grants.
    granted: [u16; 4],
}

/// A lifetime longer than a record can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub class: Class,
    pub lifetime: Duration,
}

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a lifetime of {:?} for {:?} connections, expected at most {:?}",
            self.lifetime,
            self.class,
            Lifetimes::LONGEST
        )
    }
}

impl std::error::Error for TooLong {}

impl Lifetimes {
    /// The longest lifetime.
    pub const LONGEST: Duration = Duration::from_secs(900);

    /// Takes lifetimes in the order of [`Class::ALL`].
    ///
    /// # Errors
    /// If one is longer than [`LONGEST`](Self::LONGEST).
    pub fn new(durations: [Duration; 4]) -> Result<Self, TooLong> {
        let mut lifetimes = Self {
            enough: [0; 4],
            granted: [0; 4],
        };
        for (index, (class, lifetime)) in Class::ALL.into_iter().zip(durations).enumerate() {
            if lifetime > Self::LONGEST {
                return Err(TooLong { class, lifetime });
            }
            // One more tick, since the current one is partly over.
            let ticks = lifetime
                .as_nanos()
                .div_ceil(u128::from(TICK_NANOS))
                .min(u128::from(LIVING_TICKS)) as u16
                + 1;
            lifetimes.enough[index] = ticks;
            lifetimes.granted[index] = ticks + ticks / 16;
        }
        Ok(lifetimes)
    }

    /// Returns the time `nanos` of the state's clock, for the calls of one batch.
    #[inline]
    #[must_use]
    pub fn at(&self, nanos: u64) -> Now {
        Now {
            tick: nanos >> TICK_SHIFT,
            lifetimes: *self,
        }
    }
}

impl Default for Lifetimes {
    /// Opening 10 s, established 300 s, closing 20 s, datagram 60 s.
    fn default() -> Self {
        let seconds = [10, 300, 20, 60];
        let ticks =
            seconds.map(|seconds: u64| (seconds * 1_000_000_000).div_ceil(TICK_NANOS) as u16 + 1);
        Self {
            enough: ticks,
            granted: ticks.map(|ticks| ticks + ticks / 16),
        }
    }
}

/// A point in time, and the lifetimes of records renewed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    tick: u64,
    lifetimes: Lifetimes,
}

impl Now {
    /// Returns the time in ticks.
    #[inline]
    #[must_use]
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// Returns the last tick of a record of this class renewed now.
    #[inline]
    pub(crate) fn expiry(&self, class: Class) -> u64 {
        self.tick + u64::from(self.lifetimes.granted[class as usize])
    }

    /// Returns the remaining ticks at which a record of this class need not be renewed.
    #[inline]
    pub(crate) fn enough(&self, class: Class) -> u64 {
        self.enough_of(class as u64)
    }

    /// Like [`enough`](Self::enough), for the class in the two lowest bits.
    #[inline]
    pub(crate) fn enough_of(&self, class: u64) -> u64 {
        u64::from(self.lifetimes.enough[(class & 3) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_at_least_as_requested_and_fit() {
        for seconds in [0, 1, 10, 20, 60, 300, 899, 900] {
            let lifetime = Duration::from_secs(seconds);
            let lifetimes = Lifetimes::new([lifetime; 4]).unwrap();
            for nanos in [0, 1, TICK_NANOS - 1, TICK_NANOS, 7 * TICK_NANOS + 5] {
                let now = lifetimes.at(nanos);
                // The last packet that did not renew the record: exactly `enough` ticks were left.
                let shortest = (now.tick() + now.enough(Class::Closing) + 1) * TICK_NANOS - nanos;
                let longest = (now.expiry(Class::Closing) + 1) * TICK_NANOS - nanos;
                assert!(u128::from(shortest) > lifetime.as_nanos());
                assert!(
                    u128::from(longest)
                        <= lifetime.as_nanos() * 17 / 16 + 3 * u128::from(TICK_NANOS)
                );
                assert!(now.expiry(Class::Closing) - now.tick() < LIVING_TICKS);
            }
        }
        let refused = Lifetimes::new([Duration::from_secs(901); 4]).unwrap_err();
        assert_eq!(refused.class, Class::Opening);
        assert!(refused.to_string().contains("901s"));
    }

    #[test]
    fn defaults_match_their_documentation() {
        let durations = [10, 300, 20, 60].map(Duration::from_secs);
        assert_eq!(Lifetimes::default(), Lifetimes::new(durations).unwrap());
    }
}
