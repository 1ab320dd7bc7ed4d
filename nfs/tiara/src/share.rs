//! Shares of traffic: ECMP over T-NICs, and RSS over software load balancers. A member that fails loses its share; all other flows stay where they are.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of shares, as of entries in a NIC's indirection table.
const SHARES: usize = 256;

/// The member of each share; None: no member is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares(Vec<Option<u8>>);

impl Shares {
    /// Gives each share to the member with the greatest weight in it (rendezvous hashing), so that another's failure changes nothing. `members`: their
    /// names, and whether they take part.
    #[must_use]
    pub fn new<'a>(members: impl IntoIterator<Item = (&'a str, bool)>) -> Self {
        let members: Vec<(&str, bool)> = members.into_iter().collect();
        let best = |share: usize| {
            let present = (0u8..)
                .zip(&members)
                .filter(|(_, (_, takes_part))| *takes_part);
            let weight = |(_, (name, _)): &(u8, &(&str, bool))| {
                xxh3_64_with_seed(name.as_bytes(), share as u64)
            };
            present.max_by_key(weight).map(|(number, _)| number)
        };
        Self((0..SHARES).map(best).collect())
    }

    /// Returns the member of a flow's share.
    #[must_use]
    #[inline]
    pub fn of(&self, share: u8) -> Option<usize> {
        self.0.get(usize::from(share)).copied()?.map(usize::from)
    }
}

/// Returns the share of a flow among T-NICs, by its RSS hash.
#[must_use]
pub fn nic_share(rss: u32) -> u8 {
    (rss >> 24) as u8
}

/// Returns the share of a flow among the software load balancers of a T-NIC.
#[must_use]
pub fn mux_share(rss: u32) -> u8 {
    (rss >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["tnic0", "tnic1", "tnic2", "tnic3"];

    fn shares(fails: Option<usize>) -> Shares {
        Shares::new(
            NAMES
                .iter()
                .enumerate()
                .map(|(number, name)| (*name, Some(number) != fails)),
        )
    }

    #[test]
    fn members_have_similar_shares() {
        let shares = shares(None);
        for member in 0..NAMES.len() {
            let count = (0..=255)
                .filter(|share| shares.of(*share) == Some(member))
                .count();
            assert!((40..=90).contains(&count), "{member}: {count}");
        }
    }

    #[test]
    fn a_failure_moves_only_the_shares_of_the_failed() {
        let before = shares(None);
        for failed in 0..NAMES.len() {
            let after = shares(Some(failed));
            for share in 0..=255 {
                match before.of(share) {
                    Some(member) if member == failed => assert_ne!(after.of(share), Some(failed)),
                    stays => assert_eq!(after.of(share), stays),
                }
            }
        }
        assert_eq!(Shares::new([("a", false)]).of(0), None);
        assert_eq!(Shares::new([]).of(0), None);
    }
}
