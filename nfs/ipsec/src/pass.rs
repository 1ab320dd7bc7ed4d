//! The inputs of the decision on a packet, and the reasons for drops.

use std::net::IpAddr;

use nf_balancing::link::Link;
use nf_packet::MacAddress;

use crate::{
    keys::Rows,
    runs::{Opening, Runs, Sealing},
    setup::Setup,
    station::Station,
    waiting::{ToOpen, ToSeal},
};

/// The context of a batch.
pub struct Pass<'a> {
    pub link: Link<'a>,
    pub setup: &'a Setup,
    /// The own stations on the inner and on the outer link.
    pub stations: [Station; 2],
    /// The longest packet on the inner link.
    pub mtu: usize,
    pub outbound: &'a Rows,
    pub inbound: &'a Rows,
    /// The runs in progress, by the numbers of tunnels and by SPIs.
    pub sealing: Runs<Sealing<'a>>,
    pub opening: Runs<Opening<'a>>,
    /// The packets that wait for the ciphers.
    pub to_seal: Vec<ToSeal<'a>>,
    pub to_open: Vec<ToOpen<'a>>,
    /// The next packet must not be decided before these.
    pub is_due: bool,
}

impl Pass<'_> {
    #[inline]
    pub fn outside(&self) -> usize {
        self.setup.outside
    }

    /// Returns the MAC address of the next station toward an address behind an interface, and asks for it if it is unknown.
    pub fn next(&mut self, interface: usize, address: IpAddr) -> Option<MacAddress> {
        if self.link.network.on_link(address) == Some(interface) {
            return self.link.reach(address).ok().map(|(_, mac)| mac);
        }
        let interfaces = self.link.network.interfaces();
        let mut gateways = interfaces.get(interface)?.gateways.iter();
        let gateway = gateways.find(|way| way.next.is_ipv4() == address.is_ipv4())?;
        let (mac, next) = (gateway.mac(), gateway.next);
        if mac.is_none() {
            self.link.solicit(next, interface);
        }
        mac
    }
}
