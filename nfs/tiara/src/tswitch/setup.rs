//! The setup in force: the configuration, and its consequences.

use nf_balancing::network::Network;
use nf_packet::MacAddress;
use nf_runtime::Refusal;

use super::{
    config::{check, Config},
    stations::Stations,
};

/// The setup in force.
pub struct Setup {
    pub config: Config,
    pub network: Network,
    pub stations: Stations,
    /// The source of inner frames.
    pub mac: MacAddress,
}

impl Setup {
    /// # Errors
    /// The first fault of the configuration.
    pub fn new(config: Config) -> Result<Self, Refusal> {
        check(&config)?;
        let mut network = Network::new(&config.interfaces, &config.neighbours);
        let stations = Stations::new(&config, &mut network);
        for vip in &config.vips {
            network.add_vip(*vip);
        }
        Ok(Self {
            mac: config.mac.parse().unwrap_or_default(),
            stations,
            network,
            config,
        })
    }
}
