//! The RS table: a row for each real server (Tiara, section 3.2.2). Software load balancers number the rows.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use nf_balancing::{check, network::Network};
use nf_packet::{MacAddress, Tunnel, TunnelKind};
use nf_runtime::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use super::sides::INSIDE;
use crate::metadata::is_index;

/// The most rows: ten times what the paper expects.
const MOST: usize = 1 << 20;
/// The greatest identifier of a VXLAN network: it has 24 bits.
const MOST_NETWORK: u32 = 0xff_ffff;

/// A row, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub index: u32,
    /// Its address in its network.
    pub address: IpAddr,
    /// The tunnel endpoint in front of it.
    pub vtep: IpAddr,
    pub vni: u32,
    /// The MAC address of its interface in its network.
    pub mac: String,
}

/// A row, as packets need it.
pub struct Row {
    pub address: IpAddr,
    pub tunnel: Tunnel,
    written: Server,
}

/// The rows by number.
#[derive(Default)]
pub struct Servers(RwLock<HashMap<u32, Row>>);

impl Servers {
    /// Returns the rows for a batch; changes wait.
    pub fn read(&self) -> RwLockReadGuard<'_, HashMap<u32, Row>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes rows, over others with their numbers: all of them or, if one is wrong, none.
    ///
    /// # Errors
    /// The first fault found.
    pub fn put(&self, network: &Network, servers: &[Server]) -> Result<(), Refusal> {
        let rows: Vec<Row> = servers
            .iter()
            .enumerate()
            .map(|(at, server)| row(network, &format!("servers[{at}]"), server))
            .collect::<Result<_, _>>()?;
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let new = rows
            .iter()
            .filter(|row| !all.contains_key(&row.written.index));
        if all.len() + new.count() > MOST {
            return Err(Refusal::new(
                "servers-full",
                format!("the RS table has {MOST} rows at most; drop some first"),
            ));
        }
        all.extend(rows.into_iter().map(|row| (row.written.index, row)));
        Ok(())
    }

    /// Removes rows; those that do not exist are none of the caller's mistakes.
    pub fn drop(&self, indices: &[u32]) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for index in indices {
            all.remove(index);
        }
    }

    /// Lists all rows, by number.
    pub fn list(&self) -> Value {
        let all = self.read();
        let mut rows: Vec<&Server> = all.values().map(|row| &row.written).collect();
        rows.sort_unstable_by_key(|row| row.index);
        json!(rows)
    }
}

fn row(network: &Network, path: &str, server: &Server) -> Result<Row, Refusal> {
    let wrong =
        |name: &str, reason: String| Refusal::configuration(&format!("{path}.{name}"), reason);
    if !is_index(server.index) {
        return Err(wrong(
            "index",
            format!(
                "{:#x} has another meaning in the header; choose another number",
                server.index
            ),
        ));
    }
    if server.vni > MOST_NETWORK {
        return Err(wrong(
            "vni",
            format!("{}, expected 0 to {MOST_NETWORK}", server.vni),
        ));
    }
    check::station(&format!("{path}.mac"), &server.mac)?;
    let station: MacAddress = server.mac.parse().map_err(|reason| wrong("mac", reason))?;
    let version = check::version(server.vtep);
    let Some(own) = network.own_address(INSIDE, server.vtep) else {
        return Err(wrong(
            "vtep",
            format!(
                "{} is {version}, but interfaces[{INSIDE}] has no such address",
                server.vtep
            ),
        ));
    };
    let kind = TunnelKind::Vxlan {
        network: server.vni,
        station,
    };
    let tunnel =
        Tunnel::new(own, server.vtep, kind).map_err(|fault| wrong("vtep", fault.to_string()))?;
    Ok(Row {
        address: server.address,
        tunnel,
        written: server.clone(),
    })
}
