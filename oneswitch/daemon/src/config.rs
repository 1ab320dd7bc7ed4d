//! `server.toml`: the one file that describes a server (docs/architecture.md, "Files").

mod ports;
mod reader;
mod shared_state;
mod switches;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oneswitch_core::{CoreConfig, PortConfig, SharedState, SwitchConfig, HOME};

use crate::endpoint::{unix_endpoint, Active, ApiEndpoint, Passive};
use crate::log::Level;
pub use ports::Port;
use ports::{check_executor, read_ports, EXECUTOR};
pub use reader::Problem;
use reader::{parse_one, Document, Field, Section, Seen};
use shared_state::read_shared_state;
use switches::{read_switches, Switch};

/// The configuration: read, checked and with its defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file name as the user gave it; errors repeat it.
    pub file: String,
    pub datapath_id: u64,
    /// The default executor of ports: [`HOME`] or a switch's name.
    pub executor: String,
    pub shared_state: SharedState,
    pub listen: Vec<Passive>,
    pub controllers: Vec<Active>,
    pub api: ApiEndpoint,
    /// The file with the bearer token of an API on TCP.
    pub api_token_file: Option<PathBuf>,
    /// The socket of writers of offloaded flows.
    pub offload: Option<PathBuf>,
    pub state: Option<PathBuf>,
    /// The file that keeps the virtual tables over a restart.
    pub journal: Option<PathBuf>,
    /// Time between two audits of the bridges; zero: none.
    pub audit: Duration,
    pub log: Level,
    pub tls: Option<TlsFiles>,
    pub switches: Vec<Switch>,
    pub ports: Vec<Port>,
}

/// PEM files as `ovs-pki` creates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub private_key: PathBuf,
    pub certificate: PathBuf,
    pub ca_certificate: PathBuf,
}

/// All errors of a file, one line each.
#[derive(Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All errors of the file, in the order of its lines.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot be read: {error}");
            Problems(vec![Problem {
                file: file.clone(),
                line: 0,
                key: String::new(),
                message,
            }])
        })?;
        Self::parse(&file, &text)
    }

    /// Checks the text of a file; `file` is its name in errors.
    ///
    /// # Errors
    /// All errors of the text, in the order of its lines.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        let document = Document::new(file, text);
        let config = document
            .parse()
            .and_then(|table| read(file, &document, &Section::root(&document, &table)));
        let problems = document.into_problems();
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(Problems(problems)),
        }
    }

    /// Returns the core's part of the configuration, with the currently mapped ports.
    pub fn core(&self, ports: Vec<PortConfig>) -> CoreConfig {
        let switches = self.switches.iter();
        CoreConfig {
            datapath_id: self.datapath_id,
            executor: self.executor.clone(),
            shared_state: self.shared_state.clone(),
            switches: switches
                .map(|switch| SwitchConfig {
                    name: switch.name.clone(),
                    link: switch.link.clone(),
                })
                .collect(),
            ports,
        }
    }

    fn needs_tls(&self) -> bool {
        self.listen.iter().any(Passive::needs_tls)
            || self.controllers.iter().any(Active::needs_tls)
            || self
                .switches
                .iter()
                .any(|switch| switch.virt.needs_tls() || switch.edge.needs_tls())
    }
}

/// Converts the document to a configuration; `None` if something necessary is missing or wrong. May report errors and still return one.
fn read(file: &str, document: &Document<'_>, root: &Section<'_>) -> Option<Config> {
    root.only(&["oneswitchd", "switch", "port"]);
    let (switches, names) = read_switches(document, root);
    let ports = read_ports(document, root, &switches, &names);
    let Some(own) = root.section("oneswitchd", "a table [oneswitchd]") else {
        root.missing("oneswitchd", "a table [oneswitchd]");
        return None;
    };
    own.only(&[
        "datapath_id",
        "executor",
        "stateful",
        "gather_at",
        "meters",
        "listen",
        "controllers",
        "api",
        "api_token_file",
        "offload",
        "state",
        "journal",
        "audit_s",
        "log",
        "tls",
    ]);
    let datapath_id = own
        .required_string("datapath_id", DATAPATH_ID)
        .and_then(|field| datapath_id(document, &field));
    let executor = own.string("executor", EXECUTOR);
    if let Some(field) = &executor {
        check_executor(document, field, &names);
    }
    let shared_state = read_shared_state(document, &own, &names);
    let listen = own.strings("listen", "an array of strings");
    let listen = parse_all(document, listen, Passive::parse);
    let controllers = own.strings("controllers", "an array of strings");
    let controllers = parse_all(document, controllers, Active::parse);
    let api = match own.string("api", "a string") {
        Some(field) => parse_one(document, &field, ApiEndpoint::parse),
        None => Some(ApiEndpoint::Unix(PathBuf::from(
            "/run/oneswitch/oneswitchd.sock",
        ))),
    };
    let token = own.string("api_token_file", "the name of a file");
    match (&api, &token) {
        (Some(ApiEndpoint::Tcp(_)), None) => own.missing(
            "api_token_file",
            "a file with the token that clients of an API on TCP must send",
        ),
        (Some(ApiEndpoint::Unix(_)), Some(field)) => {
            document.blame(
                field,
                "is for an API on TCP; a unix socket is protected by its file mode",
            );
        }
        _ => {}
    }
    let offload = own
        .string("offload", "unix:PATH")
        .map(|field| parse_one(document, &field, unix_endpoint));
    let log = own.string("log", "a log level");
    let log = log.map_or(Some(Level::Info), |field| {
        parse_one(document, &field, Level::parse)
    });
    let audit = audit_interval(document, &own);
    let tls = own.section("tls", "a table [oneswitchd.tls]");
    let config = Config {
        file: file.to_owned(),
        datapath_id: datapath_id?,
        executor: executor.map_or(HOME.into(), |field| field.value),
        shared_state: shared_state?,
        listen,
        controllers,
        api: api?,
        api_token_file: token.map(|field| PathBuf::from(field.value)),
        offload: match offload {
            Some(path) => Some(path?),
            None => None,
        },
        state: own
            .string("state", "the name of a file")
            .map(|field| PathBuf::from(field.value)),
        journal: own
            .string("journal", "the name of a file")
            .map(|field| PathBuf::from(field.value)),
        audit: audit?,
        log: log?,
        tls: tls.as_ref().and_then(read_tls),
        switches: switches.into_iter().map(|switch| switch.value).collect(),
        ports,
    };
    if config.needs_tls() && tls.is_none() {
        own.missing(
            "tls",
            "a table [oneswitchd.tls], because an endpoint uses ssl: or pssl:",
        );
    }
    Some(config)
}

fn audit_interval(document: &Document<'_>, own: &Section<'_>) -> Option<Duration> {
    const EXPECTED: &str = "a number of seconds, 0 to 86400; 0 means never";
    const DEFAULT: u64 = 30;
    let Some(field) = own.integer("audit_s", EXPECTED) else {
        return Some(Duration::from_secs(DEFAULT));
    };
    match u64::try_from(field.value) {
        Ok(seconds @ 0..=86_400) => Some(Duration::from_secs(seconds)),
        _ => {
            document.blame(&field, format!("{}; expected {EXPECTED}", field.value));
            None
        }
    }
}

const DATAPATH_ID: &str = "16 hex digits, not all zero";

fn datapath_id(document: &Document<'_>, field: &Field<String>) -> Option<u64> {
    let text = &field.value;
    let hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u64::from_str_radix(text, 16) {
        Ok(id) if hex && id != 0 => Some(id),
        _ => {
            document.blame(field, format!("\"{text}\"; expected {DATAPATH_ID}"));
            None
        }
    }
}

/// Parses endpoints and refuses duplicates.
fn parse_all<T: Eq + std::hash::Hash + Clone>(
    document: &Document<'_>,
    fields: Vec<Field<String>>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let mut seen = Seen::default();
    let mut values = Vec::new();
    for field in fields {
        if let Some(value) = parse_one(document, &field, &parse) {
            let text = field.value.clone();
            if seen.first(document, &field.with(value.clone()), &format!("\"{text}\"")) {
                values.push(value);
            }
        }
    }
    values
}

fn read_tls(section: &Section<'_>) -> Option<TlsFiles> {
    section.only(&["private_key", "certificate", "ca_certificate"]);
    let file = |key| {
        section
            .required_string(key, "the name of a PEM file")
            .map(|field| PathBuf::from(field.value))
    };
    let (private_key, certificate, ca_certificate) = (
        file("private_key"),
        file("certificate"),
        file("ca_certificate"),
    );
    Some(TlsFiles {
        private_key: private_key?,
        certificate: certificate?,
        ca_certificate: ca_certificate?,
    })
}
