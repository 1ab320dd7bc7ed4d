//! The lines of a session.

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::table::{Hashing, Shape, TableError};

/// The version of lines and memory.
pub const VERSION: u32 = 2;

/// A line of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Say {
    /// Takes over the load balancer's part of the table. `instance` is hexadecimal.
    Hello {
        version: u32,
        instance: String,
        epoch: u64,
    },
    /// Writes rows of the switch's table; [`Answer::Written`] follows.
    Put { number: u64, rows: Vec<Kept> },
    /// Removes rows.
    Drop { rows: Vec<u16> },
}

/// A row of the switch's RS table, as a load balancer writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The number of the row among the load balancer's; that of the counter of its packets, too.
    pub row: u16,
    pub address: IpAddr,
    pub vtep: IpAddr,
    pub vni: u32,
    pub mac: String,
}

/// A line of a T-NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Welcome(Terms),
    /// The switch has the rows with this number.
    Written {
        number: u64,
    },
    Error {
        code: String,
        detail: String,
    },
}

/// The terms of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The upper half of RS_Index: the load balancer's number.
    pub prefix: u16,
    pub engines: u32,
    pub depth: u32,
    pub width: u32,
    pub skewed: bool,
    /// Operations in progress at an engine.
    pub credits: usize,
    /// Whether engines may evict idle flows.
    pub evicts: bool,
    /// The detection period, in milliseconds.
    pub period_ms: u64,
}

impl Terms {
    /// Returns the detection period.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms)
    }

    /// # Errors
    /// If the table is impossible.
    pub fn shape(&self) -> Result<Shape, TableError> {
        let hashing = if self.skewed {
            Hashing::Skewed
        } else {
            Hashing::Chained
        };
        Shape::new(self.depth, self.width, hashing)
    }
}
