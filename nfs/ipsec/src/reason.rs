//! The reasons for which packets are dropped.

pub const NOT_FOR_GATEWAY: &str = "not for the gateway";
pub const NOT_IP: &str = "not IP";
/// A packet from a peer's side that is not ESP.
pub const UNPROTECTED: &str = "unprotected";
pub const NO_POLICY: &str = "no tunnel selects it";
pub const NO_ASSOCIATION: &str = "no usable association";
pub const TOO_BIG: &str = "too big";
pub const TIME_TO_LIVE: &str = "time to live";
pub const UNRESOLVED: &str = "neighbour unresolved";
pub const FRAGMENT: &str = "esp: fragment";
pub const UNKNOWN_SPI: &str = "esp: unknown SPI";
pub const ENCAPSULATION: &str = "esp: encapsulation";
pub const REPLAYED: &str = "esp: replayed";
pub const BEHIND_WINDOW: &str = "esp: behind the window";
pub const DISTRUSTED: &str = "esp: window distrusted";
pub const FORGED: &str = "esp: forged";
pub const EXPIRED: &str = "esp: expired";
pub const SELECTOR: &str = "esp: selector";
pub const CONGESTION: &str = "esp: congestion mark on a flow without ECN";
pub const KEEPALIVE: &str = "keepalive";
/// IKE and other datagrams on the port of UDP encapsulation, without a host for them.
pub const NOT_ESP: &str = "not ESP in UDP";
pub const PATH_MTU: &str = "path MTU noted";
