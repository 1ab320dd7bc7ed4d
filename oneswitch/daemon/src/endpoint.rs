//! Endpoints to connect to and to listen on, in Open vSwitch's syntax (ovs-vsctl(8), "connection methods").
//!
//! Active: `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, `unix:PATH`. Passive: `ptcp:[PORT][:IP]`, `pssl:[PORT][:IP]`, `punix:PATH`.
//! An IPv6 address is in brackets; the port defaults to 6653.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The port that IANA assigned to OpenFlow.
pub const DEFAULT_PORT: u16 = 6653;

/// Bytes of a path that fit in `sockaddr_un` with its final NUL.
const UNIX_PATH_MAX: usize = 107;

/// An endpoint to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Active {
    Tcp { host: String, port: u16 },
    Ssl { host: String, port: u16 },
    Unix(PathBuf),
}

/// An endpoint to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Passive {
    Tcp(SocketAddr),
    Ssl(SocketAddr),
    Unix(PathBuf),
}

impl Active {
    /// Parses `tcp:`, `ssl:` or `unix:`.
    ///
    /// # Errors
    /// The error, for the author of a configuration file.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("tcp", rest)) => host_and_port(rest).map(|(host, port)| Self::Tcp { host, port }),
            Some(("ssl", rest)) => host_and_port(rest).map(|(host, port)| Self::Ssl { host, port }),
            Some(("unix", rest)) => unix_path(rest).map(Self::Unix),
            Some(("ptcp" | "pssl" | "punix", _)) => Err(format!(
                "\"{text}\" waits for connections; expected a peer to connect to: {ACTIVE_FORMS}"
            )),
            _ => Err(format!(
                "\"{text}\" is not an endpoint; expected {ACTIVE_FORMS}"
            )),
        }
    }

    pub fn needs_tls(&self) -> bool {
        matches!(self, Self::Ssl { .. })
    }
}

impl Passive {
    /// Parses `ptcp:`, `pssl:` or `punix:`.
    ///
    /// # Errors
    /// The error, for the author of a configuration file.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "ptcp" => Ok(Self::Tcp(any(DEFAULT_PORT))),
            None if text == "pssl" => Ok(Self::Ssl(any(DEFAULT_PORT))),
            Some(("ptcp", rest)) => port_and_ip(rest).map(Self::Tcp),
            Some(("pssl", rest)) => port_and_ip(rest).map(Self::Ssl),
            Some(("punix", rest)) => unix_path(rest).map(Self::Unix),
            Some(("tcp" | "ssl" | "unix", _)) => Err(format!(
                "\"{text}\" connects to a peer; expected an address to listen on: {PASSIVE_FORMS}"
            )),
            _ => Err(format!(
                "\"{text}\" is not an endpoint; expected {PASSIVE_FORMS}"
            )),
        }
    }

    pub fn needs_tls(&self) -> bool {
        matches!(self, Self::Ssl(_))
    }

    /// Returns the endpoint with the port that the system chose for port 0.
    pub fn with_port(&self, port: u16) -> Self {
        let mut bound = self.clone();
        if let Self::Tcp(address) | Self::Ssl(address) = &mut bound {
            address.set_port(port);
        }
        bound
    }
}

const ACTIVE_FORMS: &str = "tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH";
const PASSIVE_FORMS: &str = "ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:PATH";

/// Without an address, Open vSwitch listens on every IPv4 address.
fn any(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}

fn unix_path(text: &str) -> Result<PathBuf, String> {
    match text.len() {
        0 => Err("the path of the unix socket is missing".into()),
        1..=UNIX_PATH_MAX => Ok(PathBuf::from(text)),
        length => Err(format!("the path \"{text}\" has {length} bytes; a unix socket's path has at most {UNIX_PATH_MAX}")),
    }
}

fn port_number(text: &str) -> Result<u16, String> {
    // `u16::from_str` also takes "+80".
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits => Ok(port),
        _ => Err(format!("\"{text}\" is not a port number (0 to 65535)")),
    }
}

/// `HOST[:PORT]`, the host a name, an IPv4 address or an IPv6 address in brackets.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest
            .split_once(']')
            .ok_or_else(|| format!("\"{text}\" has an unclosed bracket"))?;
        address
            .parse::<Ipv6Addr>()
            .map_err(|_| format!("\"{address}\" is not an IPv6 address"))?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port),
            None if rest.is_empty() => None,
            None => return Err(format!("\"{rest}\" follows the bracket; expected :PORT")),
        };
        (address, port)
    } else {
        match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err(format!(
                    "\"{text}\" has too many colons; put an IPv6 address in brackets"
                ));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(format!("\"{host}\" is not a host name or address"));
    }
    let port = port.map_or(Ok(DEFAULT_PORT), port_number)?;
    if port == 0 {
        return Err("cannot connect to port 0".into());
    }
    Ok((host.to_owned(), port))
}

/// `[PORT][:IP]`; port 0 lets the system choose.
fn port_and_ip(text: &str) -> Result<SocketAddr, String> {
    let (port, address) = match text.split_once(':') {
        Some((port, address)) => (port, Some(address)),
        None => (text, None),
    };
    let port = if port.is_empty() {
        DEFAULT_PORT
    } else {
        port_number(port)?
    };
    let Some(address) = address else {
        return Ok(any(port));
    };
    let address = match address.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(Some(inner)) => inner.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| inner),
        Some(None) => return Err(format!("\"{address}\" has an unclosed bracket")),
        None if address.contains(':') => {
            return Err(format!(
                "\"{address}\" has too many colons; put an IPv6 address in brackets"
            ));
        }
        None => address
            .parse::<Ipv4Addr>()
            .map(IpAddr::V4)
            .map_err(|_| address),
    };
    address
        .map(|address| SocketAddr::new(address, port))
        .map_err(|text| format!("\"{text}\" is not an IP address"))
}

/// `HOST:PORT`, an IPv6 address in brackets.
fn show_host(f: &mut fmt::Formatter<'_>, method: &str, host: &str, port: u16) -> fmt::Result {
    if host.contains(':') {
        write!(f, "{method}:[{host}]:{port}")
    } else {
        write!(f, "{method}:{host}:{port}")
    }
}

fn show_bound(f: &mut fmt::Formatter<'_>, method: &str, address: &SocketAddr) -> fmt::Result {
    match address {
        SocketAddr::V4(v4) => write!(f, "{method}:{}:{}", v4.port(), v4.ip()),
        SocketAddr::V6(v6) => write!(f, "{method}:{}:[{}]", v6.port(), v6.ip()),
    }
}

impl fmt::Display for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => show_host(f, "tcp", host, *port),
            Self::Ssl { host, port } => show_host(f, "ssl", host, *port),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Passive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => show_bound(f, "ptcp", address),
            Self::Ssl(address) => show_bound(f, "pssl", address),
            Self::Unix(path) => write!(f, "punix:{}", path.display()),
        }
    }
}

/// The endpoint of the REST API: a unix socket, or TCP on a loopback address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiEndpoint {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl ApiEndpoint {
    /// Parses `unix:PATH` or `tcp:LOOPBACK:PORT`.
    ///
    /// # Errors
    /// The error, for the author of a configuration file.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORMS: &str = "unix:PATH or tcp:127.0.0.1:PORT";
        match text.split_once(':') {
            Some(("unix", rest)) => unix_path(rest).map(Self::Unix),
            Some(("tcp", rest)) => {
                let address: SocketAddr = rest
                    .parse()
                    .map_err(|_| format!("\"{rest}\" is not ADDRESS:PORT; expected {FORMS}"))?;
                if !address.ip().is_loopback() {
                    return Err(format!(
                        "{} is not a loopback address; the API is for this machine only",
                        address.ip()
                    ));
                }
                Ok(Self::Tcp(address))
            }
            _ => Err(format!(
                "\"{text}\" is not an endpoint of the API; expected {FORMS}"
            )),
        }
    }
}

/// Parses `unix:PATH`.
///
/// # Errors
/// The error, for the author of a configuration file.
pub fn unix_endpoint(text: &str) -> Result<PathBuf, String> {
    match text.split_once(':') {
        Some(("unix", rest)) => unix_path(rest),
        _ => Err(format!(
            "\"{text}\" is not a unix socket; expected unix:PATH"
        )),
    }
}

impl fmt::Display for ApiEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_endpoints_read_as_open_vswitch_reads_them() {
        for (text, shown) in [
            ("tcp:127.0.0.1", "tcp:127.0.0.1:6653"),
            ("tcp:192.168.100.2:6640", "tcp:192.168.100.2:6640"),
            ("tcp:controller.example:6633", "tcp:controller.example:6633"),
            ("ssl:[::1]", "ssl:[::1]:6653"),
            ("ssl:[2001:db8::7]:6640", "ssl:[2001:db8::7]:6640"),
            (
                "unix:/run/openvswitch/virt.mgmt",
                "unix:/run/openvswitch/virt.mgmt",
            ),
        ] {
            let endpoint = Active::parse(text).unwrap();
            assert_eq!(endpoint.to_string(), shown);
            assert_eq!(
                Active::parse(shown).unwrap(),
                endpoint,
                "the displayed form can be parsed again"
            );
            assert_eq!(endpoint.needs_tls(), text.starts_with("ssl"));
        }
    }

    #[test]
    fn passive_endpoints_put_the_port_first() {
        for (text, shown) in [
            ("ptcp", "ptcp:6653:0.0.0.0"),
            ("ptcp:", "ptcp:6653:0.0.0.0"),
            ("ptcp:6640", "ptcp:6640:0.0.0.0"),
            ("ptcp:0:127.0.0.1", "ptcp:0:127.0.0.1"),
            ("ptcp::127.0.0.1", "ptcp:6653:127.0.0.1"),
            ("pssl:6640:[::1]", "pssl:6640:[::1]"),
            ("punix:/run/x.mgmt", "punix:/run/x.mgmt"),
        ] {
            let endpoint = Passive::parse(text).unwrap();
            assert_eq!(endpoint.to_string(), shown);
            assert_eq!(Passive::parse(shown).unwrap(), endpoint);
            assert_eq!(endpoint.needs_tls(), text.starts_with("pssl"));
        }
        assert_eq!(
            Passive::parse("ptcp:0:127.0.0.1")
                .unwrap()
                .with_port(7)
                .to_string(),
            "ptcp:7:127.0.0.1"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, complaint) in [
            ("", "expected tcp:HOST"),
            ("127.0.0.1:6653", "expected tcp:HOST"),
            ("udp:127.0.0.1", "expected tcp:HOST"),
            ("ptcp:6653", "waits for connections"),
            ("tcp:", "host is missing"),
            ("tcp::6653", "host is missing"),
            ("tcp:host:", "\"\" is not a port number"),
            ("tcp:host:70000", "\"70000\" is not a port number"),
            ("tcp:host:+80", "\"+80\" is not a port number"),
            ("tcp:host:0", "port 0"),
            ("tcp:::1", "brackets"),
            ("tcp:[::1", "unclosed bracket"),
            ("tcp:[::1]6653", "expected :PORT"),
            ("tcp:[nonsense]:1", "not an IPv6 address"),
            ("tcp:a b", "not a host name"),
            ("unix:", "path of the unix socket is missing"),
        ] {
            let error = Active::parse(text).unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
        for (text, complaint) in [
            ("tcp:127.0.0.1", "connects to a peer"),
            ("ptcp:x", "\"x\" is not a port number"),
            ("ptcp:1:host", "\"host\" is not an IP address"),
            ("ptcp:1:::1", "brackets"),
            ("ptcp:1:[::1", "unclosed bracket"),
            ("punix:", "missing"),
            ("6653", "expected ptcp:"),
        ] {
            let error = Passive::parse(text).unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(Active::parse(&long).unwrap_err().contains("108 bytes"));
    }

    #[test]
    fn the_api_stays_on_this_machine() {
        assert_eq!(
            ApiEndpoint::parse("unix:/run/a.sock").unwrap().to_string(),
            "unix:/run/a.sock"
        );
        assert_eq!(
            ApiEndpoint::parse("tcp:127.0.0.1:8080")
                .unwrap()
                .to_string(),
            "tcp:127.0.0.1:8080"
        );
        assert_eq!(
            ApiEndpoint::parse("tcp:[::1]:8080").unwrap().to_string(),
            "tcp:[::1]:8080"
        );
        for (text, complaint) in [
            ("tcp:0.0.0.0:8080", "not a loopback"),
            ("tcp:192.0.2.1:1", "not a loopback"),
            ("tcp:8080", "expected"),
            ("http://x", "expected"),
        ] {
            assert!(
                ApiEndpoint::parse(text).unwrap_err().contains(complaint),
                "{text}"
            );
        }
    }
}
