//! The tunnels in force.

use std::{
    net::IpAddr,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Mutex, OnceLock, PoisonError,
    },
};

use nf_balancing::{config::wrong, network::Network, ways::Way};
use nf_packet::Headers;
use nf_runtime::Refusal;

use crate::{
    checks::{self, Keys},
    cipher::Cipher,
    config::{self, Association, Config, Encapsulation, Limits},
    headers::Outline,
    keys::{both, inbound, Rows},
    outer::Peer,
    selecting::{Address, Selector},
    sequence::{Sequence, LAST_SHORT},
    window::Window,
};

/// The window of an association that names none.
const USUAL_WINDOW: u32 = 1024;

/// A configuration in force.
pub struct Setup {
    pub config: Config,
    pub network: Network,
    /// The index of the interface toward the peers.
    pub outside: usize,
    /// The gateway's own addresses. It has few: comparing them costs less than a hash.
    own: Vec<Address>,
    /// Those of the configuration, then the negotiated ones.
    pub tunnels: Vec<Tunnel>,
    /// The inbound associations by SPI, in order: SPI, tunnel, association.
    by_spi: Vec<(u32, usize, usize)>,
}

/// A tunnel in force.
pub struct Tunnel {
    /// Its place among the tunnels.
    pub number: usize,
    pub config: config::Tunnel,
    pub local: Address,
    pub udp: bool,
    selectors: Vec<Selector>,
    pub way: Arc<Way>,
    pub outbound: Vec<Protecting>,
    pub inbound: Vec<Opening>,
    /// When the tunnel sent its latest packet, by the state's clock.
    pub sent: AtomicU64,
    has_moved: AtomicBool,
    moved: Mutex<Peer>,
}

/// The common part of both kinds of associations.
pub struct Life {
    pub spi: u32,
    pub cipher: Cipher,
    pub extended: bool,
    soft: Limits,
    hard: Limits,
}

/// An association that protects packets.
pub struct Protecting {
    pub life: Life,
    /// None before the instance owns its state, or if that has no room for the key.
    pub sequence: OnceLock<Arc<Sequence>>,
}

/// An association that opens packets.
pub struct Opening {
    pub life: Life,
    pub size: u32,
    pub window: OnceLock<Arc<Window>>,
}

/// How much of a lifetime is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    Young,
    /// Beyond the soft limit.
    Soft,
    Over,
}

impl Age {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Young => "active",
            Self::Soft => "soft",
            Self::Over => "expired",
        }
    }
}

impl Life {
    /// Returns the age of a key by its row of the state.
    #[inline]
    #[must_use]
    pub fn age(&self, rows: &Rows, row: usize, now: u64) -> Age {
        if self.soft == Limits::default() && self.hard == Limits::default() {
            return Age::Young;
        }
        let (packets, bytes) = (rows.get(row, both::PACKETS), rows.get(row, both::BYTES));
        let age = now.saturating_sub(rows.get(row, both::SINCE));
        if self.hard.reached(packets, bytes, age) {
            Age::Over
        } else if self.soft.reached(packets, bytes, age) {
            Age::Soft
        } else {
            Age::Young
        }
    }

    /// Tells whether the key reaches no limit even with this many more packets and bytes.
    #[must_use]
    pub fn lasts(&self, rows: &Rows, row: usize, now: u64, (packets, bytes): (u64, u64)) -> bool {
        let packets = packets.saturating_add(rows.get(row, both::PACKETS));
        let bytes = bytes.saturating_add(rows.get(row, both::BYTES));
        let age = now.saturating_sub(rows.get(row, both::SINCE));
        let mut limits = [self.soft, self.hard].into_iter();
        !limits.any(|limits| limits.reached(packets, bytes, age))
    }
}

impl Protecting {
    /// Returns the last sequence number that it may use.
    #[inline]
    #[must_use]
    pub fn last(&self) -> u64 {
        if self.life.extended {
            u64::MAX
        } else {
            LAST_SHORT
        }
    }

    /// Returns its age; a key without numbers is over.
    #[inline]
    #[must_use]
    pub fn age(&self, rows: &Rows, sequence: &Sequence, now: u64) -> Age {
        if sequence.taken() >= self.last() {
            return Age::Over;
        }
        self.life.age(rows, sequence.row(), now)
    }
}

impl Setup {
    /// # Errors
    /// The first fault of the configuration or of its keys.
    pub fn new(config: Config) -> Result<Self, Refusal> {
        checks::check(&config)?;
        let mut network = Network::new(&config.interfaces, &config.neighbours);
        let mut keys = Keys::default();
        let mut tunnels = Vec::new();
        for (index, tunnel) in config.tunnels.iter().enumerate() {
            let way = way(&config, &mut network, tunnel.remote);
            tunnels.push(Tunnel::new(index, tunnel, way, &mut keys)?);
        }
        for (name, count) in [
            (
                "outbound",
                tunnels
                    .iter()
                    .map(|each| each.outbound.len())
                    .sum::<usize>(),
            ),
            (
                "inbound",
                tunnels.iter().map(|each| each.inbound.len()).sum(),
            ),
        ] {
            if count > config.keys {
                let reason = format!("{}, but the tunnels have {count} {name}", config.keys);
                return wrong("keys", reason);
            }
        }
        let mut by_spi: Vec<_> = tunnels
            .iter()
            .enumerate()
            .flat_map(|(at, tunnel)| {
                let spis = tunnel.inbound.iter().enumerate();
                spis.map(move |(number, each)| (each.life.spi, at, number))
            })
            .collect();
        by_spi.sort_unstable();
        // The outer ones first: all packets of the peers have one.
        let interfaces = config.interfaces.iter().rev();
        let prefixes = interfaces.flat_map(|each| &each.addresses);
        let own = prefixes.map(|own| own.address.into()).collect();
        Ok(Self {
            outside: config.outside(),
            config,
            network,
            own,
            tunnels,
            by_spi,
        })
    }

    /// Tells whether an address is one of the gateway's.
    #[inline]
    #[must_use]
    pub fn is_own(&self, address: Address) -> bool {
        self.own.contains(&address)
    }

    /// Returns the inbound association with an SPI, and its tunnel.
    #[inline]
    #[must_use]
    pub fn inbound(&self, spi: u32) -> Option<(&Tunnel, &Opening)> {
        let found = self.by_spi.binary_search_by_key(&spi, |each| each.0).ok()?;
        let (_, tunnel, number) = self.by_spi[found];
        let tunnel = &self.tunnels[tunnel];
        Some((tunnel, &tunnel.inbound[number]))
    }

    /// Returns the tunnel for a packet from a protected network: that of the first selector.
    #[inline(always)]
    #[must_use]
    pub fn outbound(&self, headers: &Headers, outline: &Outline) -> Option<&Tunnel> {
        let ends = (
            (outline.source, headers.source_port),
            (outline.destination, headers.destination_port),
        );
        let mut tunnels = self.tunnels.iter();
        tunnels.find(|tunnel| tunnel.selects(headers, ends.0, ends.1))
    }
}

/// Returns the way to a peer: on the outer link, or by its gateway. `check` has found one of both.
fn way(config: &Config, network: &mut Network, remote: IpAddr) -> Arc<Way> {
    let outside = config.outside();
    let interface = network.interfaces().get(outside);
    let gateway = interface.and_then(|interface| {
        let is_on_link = interface.prefixes.iter().any(|own| own.contains(remote));
        let mut gateways = interface.gateways.iter();
        let gateway = gateways.find(|each| each.next.is_ipv4() == remote.is_ipv4());
        gateway.filter(|_| !is_on_link).cloned()
    });
    gateway.unwrap_or_else(|| network.add_destination(remote))
}

impl Tunnel {
    fn new(
        number: usize,
        tunnel: &config::Tunnel,
        way: Arc<Way>,
        keys: &mut Keys,
    ) -> Result<Self, Refusal> {
        let mut life = |name: &str, at: usize, association: &Association| {
            let path = format!("tunnels[{number}].{name}[{at}]");
            Ok::<Life, Refusal>(Life {
                spi: association.spi,
                cipher: keys.load(&path, association)?,
                extended: association.esn,
                soft: association.soft.unwrap_or_default(),
                hard: association.hard.unwrap_or_default(),
            })
        };
        let mut outbound = Vec::new();
        for (at, association) in tunnel.outbound.iter().enumerate() {
            outbound.push(Protecting {
                life: life("outbound", at, association)?,
                sequence: OnceLock::new(),
            });
        }
        let mut inbound = Vec::new();
        for (at, association) in tunnel.inbound.iter().enumerate() {
            inbound.push(Opening {
                life: life("inbound", at, association)?,
                size: association.window.unwrap_or(USUAL_WINDOW),
                window: OnceLock::new(),
            });
        }
        // Keys are in the ciphers now; the copy that reports show has none.
        let mut config = tunnel.clone();
        (config.outbound, config.inbound) = (Vec::new(), Vec::new());
        Ok(Self {
            number,
            local: tunnel.local.into(),
            udp: tunnel.encapsulation == Encapsulation::Udp,
            selectors: tunnel.selectors.iter().map(Selector::from).collect(),
            way,
            outbound,
            inbound,
            sent: AtomicU64::new(0),
            has_moved: AtomicBool::new(false),
            moved: Mutex::new(Peer {
                address: tunnel.remote,
                port: tunnel.remote_port,
            }),
            config,
        })
    }

    /// Tells whether a selector covers a packet between these ends.
    #[inline(always)]
    #[must_use]
    pub fn selects(
        &self,
        headers: &Headers,
        local: (Address, u16),
        remote: (Address, u16),
    ) -> bool {
        // Not by `any`, which would become a call, for which all of this would be in memory.
        for selector in &self.selectors {
            if selector.covers(headers, local, remote) {
                return true;
            }
        }
        false
    }

    /// Returns the association that protects the next packet: the first one within its soft limit, else the first within its hard limit.
    #[inline]
    #[must_use]
    pub fn protecting(&self, rows: &Rows, now: u64) -> Option<(&Protecting, &Sequence)> {
        let mut soft = None;
        for association in &self.outbound {
            let Some(sequence) = association.sequence.get() else {
                continue;
            };
            match association.age(rows, sequence, now) {
                Age::Young => return Some((association, sequence)),
                Age::Soft if soft.is_none() => soft = Some((association, &**sequence)),
                Age::Soft | Age::Over => {}
            }
        }
        soft
    }

    /// Returns the peer as its latest packets show it.
    #[inline]
    #[must_use]
    pub fn peer(&self) -> Peer {
        if self.has_moved.load(Ordering::Acquire) {
            return *self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        }
        Peer {
            address: self.config.remote,
            port: self.config.remote_port,
        }
    }

    /// Tells whether the peer has another address or port than the configuration says.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.has_moved.load(Ordering::Acquire)
    }

    pub fn set_peer(&self, peer: Peer) {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = peer;
        self.has_moved.store(true, Ordering::Release);
    }

    /// Restores the peer that the state knows: the latest one that an inbound association has noted.
    pub fn restore_peer(&self, rows: &Rows) {
        let windows = self.inbound.iter().filter_map(|each| each.window.get());
        let latest = windows
            .map(|window| window.row())
            .filter(|row| rows.get(*row, inbound::PEER_PORT) != 0)
            .max_by_key(|row| rows.get(*row, inbound::PEER_AT));
        let Some(row) = latest.filter(|_| self.udp) else {
            return;
        };
        let words = [0, 1].map(|word| rows.get(row, inbound::PEER_ADDRESS + word));
        let address: nf_balancing::tuple::Address = bytemuck::cast(words);
        if address.ip().is_ipv4() == self.config.local.is_ipv4() {
            self.set_peer(Peer {
                address: address.ip(),
                port: rows.get(row, inbound::PEER_PORT) as u16,
            });
        }
    }
}
