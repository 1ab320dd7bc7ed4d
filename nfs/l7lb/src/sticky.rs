//! Sticky sessions: the backend that a request's cookie or header names.

use std::collections::HashMap;

use nf_balancing::maglev::{Candidate, Maglev};
use nf_http::{cookie, Head};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{backends::key, config};

/// The hashes tried before the first backend that is up.
const TRIES: u64 = 8;
/// The length of a backend's id.
const DIGITS: usize = 16;

/// How the requests of one pool find the backend of those before them.
pub enum Sticky {
    Cookie {
        name: String,
        /// Rows by the ids that cookies contain.
        rows: HashMap<u64, u16>,
    },
    Header {
        name: String,
        table: Maglev,
        /// Rows by their positions in the table.
        rows: Vec<u16>,
    },
}

impl Sticky {
    /// Prepares a pool whose backends have these rows. None: it has no sticky sessions.
    pub fn new(pool: &config::Pool, rows: &[u16]) -> Option<Self> {
        let sticky = pool.sticky.as_ref()?;
        let backends = pool.backends.iter();
        if let Some(name) = &sticky.cookie {
            let ids = backends.map(|backend| key(&pool.name, &backend.name));
            return Some(Self::Cookie {
                name: name.clone(),
                rows: ids.zip(rows.iter().copied()).collect(),
            });
        }
        let candidates: Vec<Candidate> = backends
            .map(|backend| Candidate {
                identity: format!("{}/{}", pool.name, backend.name),
                weight: backend.weight,
            })
            .collect();
        Some(Self::Header {
            name: sticky.header.clone()?,
            table: Maglev::new(&candidates),
            rows: rows.to_vec(),
        })
    }

    /// Returns the backend of a request. None: the request names none, or one that is down.
    pub fn row(&self, head: &Head<'_>, is_down: impl Fn(u16) -> bool) -> Option<u16> {
        match self {
            Self::Cookie { name, rows } => {
                let id = parse(cookie(head, name)?)?;
                rows.get(&id).copied().filter(|row| !is_down(*row))
            }
            Self::Header { name, table, rows } => {
                let value = head.find(name)?.value;
                // Only the clients of a backend that is down get another one.
                let hashes = (0..TRIES).map(|seed| xxh3_64_with_seed(value, seed));
                let mut chosen = hashes.filter_map(|hash| {
                    let position = table.choose(hash)?;
                    rows.get(usize::from(position)).copied()
                });
                let up = |row: &u16| !is_down(*row);
                chosen.find(up)
            }
        }
    }

    /// Returns the name of the cookie that answers set.
    pub fn cookie(&self) -> Option<&str> {
        match self {
            Self::Cookie { name, .. } => Some(name),
            Self::Header { .. } => None,
        }
    }
}

/// Reads a backend's id, a hash of names, which tells no address.
fn parse(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok()?;
    let is_id = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_id)
}
