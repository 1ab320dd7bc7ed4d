//! Selectors and addresses in the form in which they are compared with each packet: as numbers.

use std::net::IpAddr;

use nf_balancing::config::Prefix;
use nf_packet::{Fragment, Headers, Version};

use crate::config;

/// An IP address as a number with its version: no IPv6 address equals one of IPv4, not even a mapped one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    version: Version,
    /// The high and the low half. A number of 128 bits would be copied as a whole, and a copy waits for both halves to be written.
    halves: [u64; 2],
}

const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

impl From<IpAddr> for Address {
    #[inline]
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self {
                version: Version::V4,
                halves: [0, address.to_bits().into()],
            },
            IpAddr::V6(address) => Self {
                version: Version::V6,
                halves: halves(address.to_bits()),
            },
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        match address.version {
            Version::V4 => Self::V4((address.halves[1] as u32).into()),
            Version::V6 => Self::V6(address.bits().into()),
        }
    }
}

impl Address {
    #[inline]
    #[must_use]
    pub fn v4(octets: [u8; 4]) -> Self {
        Self {
            version: Version::V4,
            halves: [0, u32::from_be_bytes(octets).into()],
        }
    }

    #[inline]
    #[must_use]
    pub fn v6(octets: [u8; 16]) -> Self {
        Self {
            version: Version::V6,
            halves: halves(u128::from_be_bytes(octets)),
        }
    }

    fn bits(self) -> u128 {
        u128::from(self.halves[0]) << 64 | u128::from(self.halves[1])
    }

    #[inline]
    #[must_use]
    pub fn is_multicast(self) -> bool {
        match self.version {
            Version::V4 => self.halves[1] >> 28 == 0xe,
            Version::V6 => self.halves[0] >> 56 == 0xff,
        }
    }
}

/// The addresses with a prefix.
struct Network {
    prefix: Address,
    mask: [u64; 2],
}

impl From<Prefix> for Network {
    fn from(prefix: Prefix) -> Self {
        let width = if prefix.address.is_ipv4() { 32 } else { 128 };
        let host = width - u32::from(prefix.length).min(width);
        Self {
            prefix: prefix.address.into(),
            mask: halves(u128::MAX.checked_shl(host).unwrap_or(0)),
        }
    }
}

impl Network {
    #[inline]
    fn contains(&self, address: Address) -> bool {
        let differ =
            |half: usize| (self.prefix.halves[half] ^ address.halves[half]) & self.mask[half];
        self.prefix.version == address.version && differ(0) | differ(1) == 0
    }
}

/// The packets that a tunnel carries.
pub struct Selector {
    local: Network,
    remote: Network,
    protocol: Option<u8>,
    /// The first and the last port at both ends.
    ports: Option<[[u16; 2]; 2]>,
}

impl From<&config::Selector> for Selector {
    fn from(selector: &config::Selector) -> Self {
        let ports = [selector.local_ports, selector.remote_ports];
        let has_ports = ports.iter().any(Option::is_some);
        Self {
            local: selector.local.into(),
            remote: selector.remote.into(),
            protocol: selector.protocol,
            ports: has_ports.then(|| ports.map(|each| each.unwrap_or([0, u16::MAX]))),
        }
    }
}

impl Selector {
    /// Tells whether it covers a packet between these ends. A fragment without ports belongs to no selector with ports.
    #[inline(always)]
    #[must_use]
    pub fn covers(&self, headers: &Headers, local: (Address, u16), remote: (Address, u16)) -> bool {
        self.local.contains(local.0)
            && self.remote.contains(remote.0)
            && self
                .protocol
                .is_none_or(|protocol| protocol == headers.protocol)
            && self.ports.is_none_or(|ports| {
                let has = |[first, last]: [u16; 2], port: u16| (first..=last).contains(&port);
                headers.fragment != Fragment::Later
                    && has(ports[0], local.1)
                    && has(ports[1], remote.1)
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_mapped_address_is_not_one_of_ipv4() {
        let network = Network::from(prefix("10.1.0.0/16"));
        let all = Network::from(prefix("0.0.0.0/0"));
        let contains = |network: &Network, text: &str| {
            network.contains(text.parse::<IpAddr>().unwrap().into())
        };
        assert!(contains(&network, "10.1.255.3") && contains(&all, "255.1.2.3"));
        for other in ["10.2.0.0", "::ffff:10.1.255.3", "::10.1.255.3"] {
            assert!(!contains(&network, other), "{other}");
        }
        assert!(!contains(&all, "::ffff:10.1.255.3"));
        assert!(contains(
            &Network::from(prefix("::/0")),
            "::ffff:10.1.255.3"
        ));
    }

    #[test]
    fn addresses_are_the_same_in_both_forms() {
        for text in [
            "10.1.2.3",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "ff02::1",
            "fe80::1",
            "::ffff:224.0.0.1",
        ] {
            let address: IpAddr = text.parse().unwrap();
            let number = Address::from(address);
            assert_eq!(IpAddr::from(number), address);
            assert_eq!(number.is_multicast(), address.is_multicast(), "{text}");
            let of_octets = match address {
                IpAddr::V4(address) => Address::v4(address.octets()),
                IpAddr::V6(address) => Address::v6(address.octets()),
            };
            assert_eq!(of_octets, number);
        }
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn networks_contain_what_prefixes_contain(own in address(), length in 0_u8..=128, bit in 0_u32..128, other in address()) {
            let length = if own.is_ipv4() { length.min(32) } else { length };
            let prefix = Prefix { address: own, length };
            let network = Network::from(prefix);
            let near = match own {
                IpAddr::V4(own) => IpAddr::V4((own.to_bits() ^ 1 << (bit % 32)).into()),
                IpAddr::V6(own) => IpAddr::V6((own.to_bits() ^ 1 << bit).into()),
            };
            for address in [own, near, other] {
                prop_assert_eq!(network.contains(address.into()), prefix.contains(address));
            }
        }
    }
}
