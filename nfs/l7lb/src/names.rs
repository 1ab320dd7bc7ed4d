//! Names of what entries of the access log mention.

use std::{collections::HashMap, net::IpAddr};

use crate::config::Config;

/// The names of one configuration.
#[derive(Default)]
pub struct Names {
    listeners: HashMap<(IpAddr, u16), String>,
    /// By row.
    routes: HashMap<u16, String>,
    /// Pools and backends by row.
    backends: HashMap<u16, (String, String)>,
}

impl Names {
    /// Collects the names of a configuration. `routes`, `backends`: rows, listener by listener and pool by pool.
    pub fn new(config: &Config, routes: &[Vec<u16>], backends: &[Vec<u16>]) -> Self {
        let mut names = Self::default();
        for (listener, rows) in config.listeners.iter().zip(routes) {
            let end = (listener.address, listener.port);
            names.listeners.insert(end, listener.name.clone());
            let routes = listener.routes.iter().map(|route| route.name.clone());
            names.routes.extend(rows.iter().copied().zip(routes));
        }
        for (pool, rows) in config.pools.iter().zip(backends) {
            let both = pool.backends.iter();
            let both = both.map(|backend| (pool.name.clone(), backend.name.clone()));
            names.backends.extend(rows.iter().copied().zip(both));
        }
        names
    }

    pub fn listener(&self, end: (IpAddr, u16)) -> Option<&str> {
        self.listeners.get(&end).map(String::as_str)
    }

    pub fn route(&self, row: u16) -> Option<&str> {
        self.routes.get(&row).map(String::as_str)
    }

    pub fn backend(&self, row: u16) -> Option<(&str, &str)> {
        let (pool, name) = self.backends.get(&row)?;
        Some((pool, name))
    }
}
