//! The parts of a configuration that load balancers share, as written (TOML or JSON). `docs/l4lb.md` explains them; `check` validates them.

use std::{fmt::Display, net::IpAddr, time::Duration};

use nf_runtime::Refusal;
use serde::{de::Error, Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its own addresses with their prefix: `"10.0.0.2/24"`.
    pub addresses: Vec<Prefix>,
    /// Routers for destinations off the link; at most one per IP version.
    #[serde(default)]
    pub gateways: Vec<IpAddr>,
    /// The MTU: the largest IP packet, in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticNeighbour {
    pub address: IpAddr,
    pub mac: String,
    #[serde(default)]
    pub interface: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    pub kind: HealthKind,
    /// Default: the backend's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// For http.
    #[serde(default = "default_path")]
    pub path: String,
    /// For http: the Host header; default the name of the VIP or pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// For http: the accepted statuses.
    #[serde(default = "default_status")]
    pub status: Vec<u16>,
    #[serde(default = "default_interval")]
    pub interval: Time,
    /// The limit of a whole check.
    #[serde(default = "default_timeout")]
    pub timeout: Time,
    /// Consecutive successes that bring a backend up.
    #[serde(default = "default_rise")]
    pub rise: u16,
    /// Consecutive failures that take it down.
    #[serde(default = "default_fall")]
    pub fall: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthKind {
    /// Succeeds if the port answers a SYN.
    Tcp,
    /// Succeeds if the backend answers a GET with an accepted status.
    Http,
}

const fn default_mtu() -> u16 {
    1500
}
fn default_path() -> String {
    "/".into()
}
fn default_status() -> Vec<u16> {
    vec![200]
}
const fn default_interval() -> Time {
    Time::seconds(5)
}
const fn default_timeout() -> Time {
    Time::seconds(2)
}
const fn default_rise() -> u16 {
    2
}
const fn default_fall() -> u16 {
    3
}

/// A span of time, written with its unit: `"500ms"`, `"10s"`, `"5m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl Time {
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0.as_nanos() as u64
    }
}

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a time with a unit, such as \"500ms\", \"10s\" or \"5m\"");
        let digits = text.trim_end_matches(|each: char| !each.is_ascii_digit());
        let count: u32 = digits.parse().map_err(|_| wrong())?;
        match &text[digits.len()..] {
            "ms" => Ok(Self(Duration::from_millis(count.into()))),
            "s" => Ok(Self(Duration::from_secs(count.into()))),
            "m" => Ok(Self(Duration::from_secs(u64::from(count) * 60))),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let milliseconds = self.0.as_millis();
        if milliseconds % 1000 == 0 {
            write!(f, "{}s", milliseconds / 1000)
        } else {
            write!(f, "{milliseconds}ms")
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A number is parsed as well, so that the error can name the missing unit.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(serde_json::Number),
        }
        match Written::deserialize(deserializer)? {
            Written::Text(text) => text.parse().map_err(D::Error::custom),
            Written::Number(number) => Err(D::Error::custom(format!(
                "{number} has no unit: write \"{number}s\" or \"{number}ms\""
            ))),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An address with its network's prefix length: `"10.0.0.2/24"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

impl Prefix {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(32 - u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(128 - u32::from(self.length))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not an address with a prefix length, such as \"10.0.0.2/24\"");
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (length <= longest)
            .then_some(Self { address, length })
            .ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}/{}", self.address, self.length))
    }
}

/// Refuses the value at a path.
/// # Errors
/// Always: the refusal of the value.
pub fn wrong<T>(path: &str, reason: impl Display) -> Result<T, Refusal> {
    Err(Refusal::configuration(path, reason))
}
