//! Checks the addresses of listeners and backends.

use nf_balancing::check::Addresses;
use nf_runtime::Refusal;

use crate::config::Config;

/// # Errors
/// The first address that no host can have, that belongs to two hosts, or that no interface reaches.
pub fn check(config: &Config) -> Result<(), Refusal> {
    let listeners = config.listeners.iter();
    let vips = listeners.map(|each| (each.address, each.name.as_str()));
    let known = Addresses::new(&config.interfaces, vips)?;
    known.others(&config.neighbours)?;
    for (index, listener) in config.listeners.iter().enumerate() {
        known.is_vip(&format!("listeners[{index}].address"), listener.address)?;
    }
    for (index, pool) in config.pools.iter().enumerate() {
        for (number, backend) in pool.backends.iter().enumerate() {
            let path = format!("pools[{index}].backends[{number}].address");
            known.is_another_host(&path, backend.address)?;
            known.is_reached(&path, backend.address)?;
        }
    }
    Ok(())
}
