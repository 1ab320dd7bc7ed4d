//! Keys and hash of the maps that find VIPs and backends.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    net::IpAddr,
};

/// A map by service.
pub type Services<T> = HashMap<Service, T, BuildHasherDefault<ServiceHasher>>;

/// An address, port and protocol as two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    address: u128,
    port_and_protocol: u32,
}

impl Service {
    #[must_use]
    #[inline]
    pub fn new(address: IpAddr, port: u16, protocol: u8) -> Self {
        let address = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) | 0xffff << 32,
            IpAddr::V6(address) => address.to_bits(),
        };
        Self {
            address,
            port_and_protocol: u32::from(port) << 8 | u32::from(protocol),
        }
    }
}

impl std::hash::Hash for Service {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64((self.address >> 64) as u64 ^ u64::from(self.port_and_protocol) << 32);
        state.write_u64(self.address as u64 ^ u64::from(self.port_and_protocol));
    }
}

/// A hasher that multiplies and folds. Only configured addresses are in the maps, so no packet can cause collisions.
#[derive(Default)]
pub struct ServiceHasher(u64);

impl Hasher for ServiceHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_differ_in_address_port_and_protocol() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut services = Services::default();
        let keys = [
            (ip("192.0.2.1"), 80, 6),
            (ip("192.0.2.1"), 80, 17),
            (ip("192.0.2.1"), 81, 6),
            (ip("192.0.2.2"), 80, 6),
            (ip("::c000:201"), 80, 6),
        ];
        for (index, (address, port, protocol)) in keys.into_iter().enumerate() {
            services.insert(Service::new(address, port, protocol), index);
        }
        for (index, (address, port, protocol)) in keys.into_iter().enumerate() {
            assert_eq!(
                services.get(&Service::new(address, port, protocol)),
                Some(&index)
            );
        }
        assert_eq!(services.get(&Service::new(ip("192.0.2.3"), 80, 6)), None);
        // An IPv4 address and its mapped form are one address.
        let mapped = Service::new(ip("::ffff:192.0.2.1"), 80, 6);
        assert_eq!(services.get(&mapped), Some(&0));
    }
}
