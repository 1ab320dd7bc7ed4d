//! Sets of numbers as sorted ranges: addresses, ports, protocols.

use std::net::IpAddr;

/// A set of numbers: sorted ranges, both ends included, that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Makes a set of ranges in any order.
    pub fn new(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = (*end).max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub fn all() -> Self {
        Self(vec![(0, u128::MAX)])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn contains(&self, number: u128) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= number);
        after > 0 && number <= self.0[after - 1].1
    }

    pub fn union(&self, other: &Self) -> Self {
        Self::new([&self.0[..], &other.0[..]].concat())
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let mut common = Vec::new();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                common.push((first, last));
            }
            if one.1 < two.1 {
                left.next();
            } else {
                right.next();
            }
        }
        Self(common)
    }

    /// Returns the numbers of this set that the other does not have.
    pub fn without(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    fn complement(&self) -> Self {
        let mut gaps = Vec::new();
        let mut next = Some(0);
        for (first, last) in &self.0 {
            if let Some(start) = next.filter(|start| start < first) {
                gaps.push((start, first - 1));
            }
            next = last.checked_add(1);
        }
        gaps.extend(next.map(|start| (start, u128::MAX)));
        Self(gaps)
    }
}

/// Returns an address as a number. IPv4 addresses are mapped (RFC 4291, 2.5.5.2).
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns all mapped IPv4 addresses.
pub fn ipv4() -> Ranges {
    Ranges(vec![(0xffff << 32, (0xffff << 32) | 0xffff_ffff)])
}

/// Parses an address, or a prefix such as `10.0.0.0/8`.
///
/// # Errors
/// The reason for which it is neither.
pub fn prefix(text: &str) -> Result<Ranges, String> {
    let wrong = || {
        format!("{text:?}; expected an address, a prefix such as 10.0.0.0/8, or the name of a set")
    };
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length: u32 = match length {
        Some(length) => length.parse().map_err(|_| wrong())?,
        None => most,
    };
    if length > most {
        return Err(format!(
            "{text:?}: the length of the prefix is above {most}"
        ));
    }
    let rest = u128::MAX.checked_shr(128 - most + length).unwrap_or(0);
    // Of an IPv4 address, only the low 32 bits are free.
    let rest = rest & (u128::MAX >> (128 - most));
    let first = number(address);
    if first & rest != 0 {
        return Err(format!(
            "{text:?} has bits after its prefix; expected {}/{length}",
            canonical(first & !rest)
        ));
    }
    let all = Ranges::new(vec![(first, first | rest)]);
    // `::/0` means IPv6, although mapped addresses are in it.
    Ok(if address.is_ipv4() {
        all
    } else {
        all.without(&ipv4())
    })
}

/// Returns the address of a number.
pub fn canonical(number: u128) -> IpAddr {
    std::net::Ipv6Addr::from_bits(number).to_canonical()
}

/// Parses a port, or a range such as `8000-8100`.
///
/// # Errors
/// The reason for which it is neither.
pub fn ports(text: &str) -> Result<(u128, u128), String> {
    let wrong = || format!("{text:?}; expected a port, or a range such as 8000-8100");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err(wrong());
    }
    Ok((first.into(), last.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefixes_cover_their_addresses_and_refuse_stray_bits() {
        let Ranges(ten) = prefix("10.0.0.0/8").unwrap();
        assert_eq!(canonical(ten[0].0).to_string(), "10.0.0.0");
        assert_eq!(canonical(ten[0].1).to_string(), "10.255.255.255");
        assert_eq!(prefix("0.0.0.0/0").unwrap(), ipv4());
        assert_eq!(prefix("::/0").unwrap(), Ranges::all().without(&ipv4()));
        let Ranges(two) = prefix("fd00::/127").unwrap();
        assert_eq!(two[0].1 - two[0].0, 1);
        assert_eq!(
            prefix("192.0.2.1").unwrap(),
            prefix("192.0.2.1/32").unwrap()
        );
        for wrong in ["10.0.0.1/8", "10.0.0.0/33", "x", "10.0.0.0/-1", ""] {
            assert!(prefix(wrong).is_err(), "{wrong}");
        }
        assert_eq!(ports("8000-8100"), Ok((8000, 8100)));
        for wrong in ["8100-8000", "70000", "-", ""] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }

    fn small() -> impl Strategy<Value = Ranges> {
        proptest::collection::vec((0_u128..30, 0_u128..30), 0..5).prop_map(Ranges::new)
    }

    proptest! {
        #[test]
        fn sets_behave_like_sets(one in small(), two in small()) {
            for number in (0..32).chain([u128::MAX]) {
                let (left, right) = (one.contains(number), two.contains(number));
                prop_assert_eq!(one.union(&two).contains(number), left || right);
                prop_assert_eq!(one.intersection(&two).contains(number), left && right);
                prop_assert_eq!(one.without(&two).contains(number), left && !right);
                prop_assert_eq!(one.complement().contains(number), !left);
            }
            prop_assert!(one.without(&one).is_empty());
            prop_assert!(Ranges::all().without(&Ranges::all()).is_empty());
        }
    }
}
