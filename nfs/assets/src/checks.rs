//! The checks that a configuration can choose.

use serde::{Deserialize, Serialize};

/// Something to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Operating systems, by the TCP packets that open connections, answer, end, reset and continue them.
    Syn,
    SynAck,
    Fin,
    Rst,
    Ack,
    /// The operating system's traits in UDP datagrams and ICMP messages.
    UdpSystem,
    IcmpSystem,
    /// Servers and clients, by what they say first.
    TcpServer,
    TcpClient,
    UdpService,
    /// MAC addresses, by ARP and by IPv6's neighbour discovery.
    Arp,
    Neighbours,
    /// Clients of DHCP.
    Dhcp,
}

/// A set of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks(u16);

impl Checks {
    #[must_use]
    pub fn of(checks: &[Check]) -> Self {
        Self(checks.iter().fold(0, |bits, check| bits | bit(*check)))
    }

    #[inline]
    #[must_use]
    pub fn has(self, check: Check) -> bool {
        self.0 & bit(check) != 0
    }

    /// Returns the checks of PRADS without a configuration, and those that only MAC addresses and DHCP need.
    #[must_use]
    pub fn usual() -> Vec<Check> {
        let mut checks = Self::prads();
        checks.extend([Check::Arp, Check::Neighbours, Check::Dhcp]);
        checks
    }

    /// Returns the checks of PRADS without a configuration.
    #[must_use]
    pub fn prads() -> Vec<Check> {
        vec![
            Check::Syn,
            Check::SynAck,
            Check::Fin,
            Check::Rst,
            Check::TcpServer,
            Check::TcpClient,
            Check::UdpService,
        ]
    }
}

fn bit(check: Check) -> u16 {
    1 << check as u16
}
