//! The configuration as written (TOML or JSON). `docs/l7lb.md` explains it; `check` validates it.

use std::net::IpAddr;

use nf_balancing::config::{Health, Interface, StaticNeighbour, Time};
use serde::{Deserialize, Serialize};

use crate::tls::Tls;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// One per port, in the order of `--port`.
    pub interfaces: Vec<Interface>,
    #[serde(default)]
    pub neighbours: Vec<StaticNeighbour>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub timeouts: Timeouts,
    /// The access log; without it, none is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Log>,
    #[serde(default)]
    pub listeners: Vec<Listener>,
    #[serde(default)]
    pub pools: Vec<Pool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The longest head of a request, in bytes.
    pub head: usize,
    /// The requests of one connection; 0: any number.
    pub requests: u32,
    /// Connections at the same time. Part of the state's shape: it cannot change while an instance lives.
    pub connections: usize,
    /// Backends in all pools, likewise.
    pub backends: usize,
    /// Routes of all listeners, likewise.
    pub routes: usize,
    /// Chunks of 2 KiB for heads and other bytes that the function holds, likewise.
    pub chunks: usize,
    /// Stations on the links, likewise.
    pub neighbours: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: 65536,
            requests: 0,
            connections: 65536,
            backends: 1024,
            routes: 1024,
            chunks: 16384,
            neighbours: 1024,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// From the first byte of a head to its end; then the answer is 408.
    pub head: Time,
    /// Without a packet, between requests or in a tunnel; then the connection is reset.
    pub idle: Time,
    /// Without a packet, within a body; then the answer is 408 or 504, or the connection is reset if the answer has begun.
    pub body: Time,
    /// From the first SYN to a backend to its answer; then the answer is 503.
    pub connect: Time,
    /// From the end of a request to the head of its answer; then the answer is 504.
    pub answer: Time,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Time::seconds(10),
            idle: Time::seconds(60),
            body: Time::seconds(60),
            connect: Time::seconds(5),
            answer: Time::seconds(60),
        }
    }
}

/// One JSON object per line for each request of a sample, and for all that the function itself answers or that fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub path: String,
    /// The share of requests that are logged, from 0 to 1.
    #[serde(default = "all")]
    pub sample: f64,
}

/// An address and port that clients connect to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
    /// Terminates TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    #[serde(default)]
    pub mode: Mode,
    /// The first that matches a request decides; without one, the answer is 404.
    pub routes: Vec<Route>,
    /// Each connection begins with a header of the PROXY protocol, version 1 or 2, which tells the client's address.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Adds the client's address as `X-Forwarded-For`.
    #[serde(default)]
    pub forwarded_for: bool,
    /// Adds an `X-Request-Id` that differs for each request.
    #[serde(default)]
    pub request_id: bool,
    /// Header lines added to each request: `"X-Via: l7lb"`.
    #[serde(default)]
    pub add: Vec<String>,
    /// Header lines added to each answer of a backend.
    #[serde(default)]
    pub add_to_answers: Vec<String>,
}

/// The protocol of a listener's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    Http,
    /// TLS, which the backends decrypt; routes choose by the name in the client's first message.
    TlsPassthrough,
}

/// Conditions, which must all hold, and one destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    pub name: String,
    /// Names, `"*.example.org"` for all below one; any case. Empty: every host.
    #[serde(default)]
    pub host: Vec<String>,
    /// For `tls-passthrough`: like `host`. Empty: every name, and none.
    #[serde(default)]
    pub sni: Vec<String>,
    /// The prefix of the path, by whole segments: `/api` matches `/api` and `/api/x`, not `/apis`.
    #[serde(default = "root")]
    pub path: String,
    #[serde(default)]
    pub method: Vec<String>,
    #[serde(default)]
    pub headers: Vec<HeaderMatch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderMatch {
    pub name: String,
    /// The whole value; without it, the header must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    pub location: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub status: u16,
    #[serde(default)]
    pub body: String,
}

/// Backends among which requests are shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    pub name: String,
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Checks the backends; without it, all of them count as up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Sends the requests of one client to one backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// Begins each connection to a backend with a header of the PROXY protocol of this version: 1 or 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<u8>,
    /// Keeps a backend's connection open when its client leaves, for the requests of other clients.
    #[serde(default)]
    pub reuse: bool,
    pub backends: Vec<Backend>,
}

/// Exactly one of a cookie, which answers set, and a header, whose values are spread over the backends by a consistent hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sticky {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    #[default]
    RoundRobin,
    LeastLoaded,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
    /// Its share of requests; 0: none.
    #[serde(default = "one")]
    pub weight: u16,
    /// Takes no requests of new connections; existing ones and sticky clients continue.
    #[serde(default)]
    pub drain: bool,
}

fn root() -> String {
    "/".into()
}

const fn all() -> f64 {
    1.0
}

const fn one() -> u16 {
    1
}
