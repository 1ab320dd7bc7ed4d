//! `server.toml`: the one file that describes a server (docs/architecture.md, "Files").

mod reader;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oneswitch_core::{CoreConfig, LinkConfig, PortConfig, SwitchConfig};

use crate::endpoint::{Active, ApiEndpoint, Passive};
use crate::log::Level;
pub use reader::Problem;
use reader::{Document, Field, Section};

/// Highest virtual port number; above it are the multicast patch port and OpenFlow's reserved ports.
pub const PORT_MAX: u32 = 65_023;
/// Bytes of a name that OpenFlow and Linux carry.
pub const NAME_MAX: usize = 15;

/// The file read, checked and with its defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// As the user named it; errors repeat it.
    pub file: String,
    pub datapath_id: u64,
    pub listen: Vec<Passive>,
    pub controllers: Vec<Active>,
    pub api: ApiEndpoint,
    /// Holds the bearer token of an API on TCP.
    pub api_token_file: Option<PathBuf>,
    pub state: Option<PathBuf>,
    /// Where the virtual tables are kept over a restart.
    pub journal: Option<PathBuf>,
    /// Time between two comparisons of the bridges with what they should have; zero: none.
    pub audit: Duration,
    pub log: Level,
    pub tls: Option<TlsFiles>,
    pub switches: Vec<Switch>,
    pub ports: Vec<Port>,
}

/// PEM files as `ovs-pki` makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub private_key: PathBuf,
    pub certificate: PathBuf,
    pub ca_certificate: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Switch {
    pub name: String,
    pub virt: Active,
    pub edge: Active,
    pub link: Option<LinkConfig>,
}

/// A `[[port]]` and the line that it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub config: PortConfig,
    pub line: usize,
}

/// Everything that is wrong with a file, one line each.
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
    /// Everything that is wrong with it, in the order of its lines.
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

    /// Checks the text of a file; `file` is its name in complaints.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines.
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

    /// The part that the core is told, with the ports that are mapped now.
    pub fn core(&self, ports: Vec<PortConfig>) -> CoreConfig {
        let switches = self.switches.iter();
        CoreConfig {
            datapath_id: self.datapath_id,
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

/// The document as a configuration; `None` when something that cannot be guessed is missing or wrong. May complain and
/// still return one.
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
        "listen",
        "controllers",
        "api",
        "api_token_file",
        "state",
        "journal",
        "audit_s",
        "log",
        "tls",
    ]);
    let datapath_id = own
        .required_string("datapath_id", DATAPATH_ID)
        .and_then(|field| datapath_id(document, &field));
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
            "a file with the token that clients of an API on TCP must show",
        ),
        (Some(ApiEndpoint::Unix(_)), Some(field)) => {
            document.blame(
                field,
                "is for an API on TCP; a unix socket is guarded by its file mode",
            );
        }
        _ => {}
    }
    let log = own.string("log", "a log level");
    let log = log.map_or(Some(Level::Info), |field| {
        parse_one(document, &field, Level::parse)
    });
    let audit = audit_interval(document, &own);
    let tls = own.section("tls", "a table [oneswitchd.tls]");
    let config = Config {
        file: file.to_owned(),
        datapath_id: datapath_id?,
        listen,
        controllers,
        api: api?,
        api_token_file: token.map(|field| PathBuf::from(field.value)),
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
    const EXPECTED: &str = "a number of seconds, 0 to 86400; 0 is never";
    const DEFAULT: u64 = 30;
    let Some(field) = own.integer("audit_s", EXPECTED) else {
        return Some(Duration::from_secs(DEFAULT));
    };
    match u64::try_from(field.value) {
        Ok(seconds @ 0..=86_400) => Some(Duration::from_secs(seconds)),
        _ => {
            document.blame(
                &field,
                format!("{} where {EXPECTED} is expected", field.value),
            );
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
            document.blame(
                field,
                format!("\"{text}\" where {DATAPATH_ID} are expected"),
            );
            None
        }
    }
}

fn parse_one<T>(
    document: &Document<'_>,
    field: &Field<String>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    parse(&field.value)
        .map_err(|message| document.blame(field, message))
        .ok()
}

/// Parses endpoints and refuses the second of two equal ones.
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

/// Values that must be unique, with the place of the first use of each.
struct Seen<T>(HashMap<T, (usize, String)>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + std::hash::Hash> Seen<T> {
    /// Whether the value is new; complains when it is not.
    fn first(&mut self, document: &Document<'_>, field: &Field<T>, shown: &str) -> bool
    where
        T: Clone,
    {
        if let Some((line, key)) = self.0.get(&field.value) {
            document.blame(
                field,
                format!("{shown} is used twice; first as {key} in line {line}"),
            );
            return false;
        }
        self.0
            .insert(field.value.clone(), (field.line, field.key.clone()));
        true
    }
}

/// The switches that could be read, and the names of all, as far as they could.
fn read_switches(
    document: &Document<'_>,
    root: &Section<'_>,
) -> (Vec<Field<Switch>>, Vec<Option<String>>) {
    let sections = root.sections("switch", "tables [[switch]]");
    if sections.is_empty() {
        root.missing(
            "switch",
            "at least one table [[switch]]; the first is the hypervisor",
        );
    }
    let mut names = Seen::default();
    let mut targets = Seen::default();
    let mut hub_ports = Seen::default();
    let mut switches = Vec::new();
    let mut all = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        section.only(&["name", "virt", "edge", "ovsdb", "control", "link"]);
        // Used by the management plane; only their types are checked here.
        section.string("ovsdb", "a string");
        section.string("control", "a string");
        let name = section.required_string("name", "the switch's name");
        if let Some(field) = &name {
            if field.value.is_empty() || field.value.contains(|c: char| c.is_control()) {
                document.blame(field, format!("{:?} where a name is expected", field.value));
            }
            names.first(document, field, &format!("the name \"{}\"", field.value));
        }
        all.push(name.as_ref().map(|field| field.value.clone()));
        let mut bridge = |key: &str| {
            let field = section.required_string(
                key,
                "the OpenFlow endpoint of the bridge, e.g. unix:/run/openvswitch/br.mgmt",
            )?;
            let endpoint = parse_one(document, &field, Active::parse)?;
            targets.first(
                document,
                &field.with(endpoint.clone()),
                &format!("\"{}\"", field.value),
            );
            Some(endpoint)
        };
        let (virt, edge) = (bridge("virt"), bridge("edge"));
        let link = read_link(document, section, index, &mut hub_ports);
        if let (Some(name), Some(virt), Some(edge)) = (name, virt, edge) {
            switches.push(Field {
                value: Switch {
                    name: name.value,
                    virt,
                    edge,
                    link,
                },
                line: section.line,
                key: section.key("link"),
            });
        }
    }
    (switches, all)
}

fn read_link(
    document: &Document<'_>,
    switch: &Section<'_>,
    index: usize,
    hub_ports: &mut Seen<String>,
) -> Option<LinkConfig> {
    const EXPECTED: &str =
        "{ hypervisor = \"pcie-snicK\", local = \"pf0hpf\" }, the PCIe ports' names";
    let Some(link) = switch.section("link", EXPECTED) else {
        if index > 0 {
            switch.missing("link", EXPECTED);
        }
        return None;
    };
    if index == 0 {
        document.problem(
            link.line,
            &switch.key("link"),
            "the first switch is the hypervisor, the hub of the star: it has no link of its own",
        );
    }
    link.only(&["hypervisor", "local"]);
    let hypervisor = link.required_string(
        "hypervisor",
        "the PCIe port's name on the hypervisor's edge bridge",
    )?;
    let local =
        link.required_string("local", "the PCIe port's name on this switch's edge bridge")?;
    for field in [&hypervisor, &local] {
        check_interface(document, field);
    }
    hub_ports.first(
        document,
        &hypervisor,
        &format!("the hypervisor's port \"{}\"", hypervisor.value),
    );
    Some(LinkConfig {
        hypervisor: hypervisor.value,
        local: local.value,
    })
}

/// Names of interfaces and ports are 1 to 15 bytes without blanks or slashes, as Linux has them.
fn check_interface(document: &Document<'_>, field: &Field<String>) {
    let name = &field.value;
    if name.is_empty()
        || name.len() > NAME_MAX
        || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
    {
        document.blame(field, format!("\"{name}\" where a name of 1 to {NAME_MAX} bytes without blanks or slashes is expected"));
    }
}

fn read_ports(
    document: &Document<'_>,
    root: &Section<'_>,
    switches: &[Field<Switch>],
    known: &[Option<String>],
) -> Vec<Port> {
    let mut numbers = Seen::default();
    let mut names = Seen::default();
    let mut interfaces = Seen::default();
    for switch in switches {
        reserve_links(switches, switch, &mut interfaces);
    }
    let mut ports = Vec::new();
    for section in root.sections("port", "tables [[port]]") {
        section.only(&["number", "name", "switch", "interface"]);
        let number = read_number(document, &section, &mut numbers);
        let interface = section.required_string(
            "interface",
            "the name of an interface on the switch's edge bridge",
        );
        let name = section.string("name", "the port's name");
        let switch = section.required_string("switch", "the name of a [[switch]]");
        for field in [&interface, &name].into_iter().flatten() {
            check_interface(document, field);
        }
        if let Some(field) = interface.as_ref().filter(|field| is_plumbing(&field.value)) {
            let name = &field.value;
            document.blame(field, format!("\"{name}\" is the bridge itself or a patch port to virt; it cannot carry a virtual port"));
        }
        if let Some(field) = &switch {
            check_switch(document, field, known);
        }
        let (Some(number), Some(interface), Some(switch)) = (number, interface, switch) else {
            continue;
        };
        let name = name.unwrap_or_else(|| interface.clone());
        names.first(
            document,
            &name,
            &format!("the port name \"{}\"", name.value),
        );
        let place = interface.with((switch.value.clone(), interface.value.clone()));
        interfaces.first(
            document,
            &place,
            &format!("interface \"{}\" of {}", interface.value, switch.value),
        );
        let config = PortConfig {
            number,
            name: name.value,
            switch: switch.value,
            interface: interface.value,
        };
        ports.push(Port {
            config,
            line: section.line,
        });
    }
    ports
}

/// Whether a port of `edge` joins the bridges: `edge`, `edge-mc`, `edge-7`.
fn is_plumbing(interface: &str) -> bool {
    let rest = interface.strip_prefix("edge-");
    interface == "edge" || rest.is_some_and(|rest| rest == "mc" || rest.parse::<u32>().is_ok())
}

/// The switch must be there; nothing is said while the names of some are not known.
fn check_switch(document: &Document<'_>, field: &Field<String>, known: &[Option<String>]) {
    let Some(known) = known.iter().cloned().collect::<Option<Vec<_>>>() else {
        return;
    };
    if !known.is_empty() && !known.contains(&field.value) {
        let (name, list) = (&field.value, known.join(", "));
        document.blame(
            field,
            format!("there is no [[switch]] named \"{name}\"; there are: {list}"),
        );
    }
}

/// A PCIe port cannot carry a virtual port.
fn reserve_links(
    switches: &[Field<Switch>],
    switch: &Field<Switch>,
    interfaces: &mut Seen<(String, String)>,
) {
    let (Some(link), Some(hub)) = (&switch.value.link, switches.first()) else {
        return;
    };
    for (name, port) in [
        (&hub.value.name, &link.hypervisor),
        (&switch.value.name, &link.local),
    ] {
        interfaces
            .0
            .entry((name.clone(), port.clone()))
            .or_insert((switch.line, switch.key.clone()));
    }
}

fn read_number(
    document: &Document<'_>,
    section: &Section<'_>,
    numbers: &mut Seen<u32>,
) -> Option<u32> {
    let expected = format!("a number from 1 to {PORT_MAX}");
    let Some(field) = section.integer("number", &expected) else {
        if !section.has("number") {
            section.missing("number", &expected);
        }
        return None;
    };
    match u32::try_from(field.value) {
        Ok(number @ 1..=PORT_MAX) => {
            numbers.first(
                document,
                &field.with(number),
                &format!("port number {number}"),
            );
            Some(number)
        }
        _ => {
            document.blame(
                &field,
                format!("{} where {expected} is expected", field.value),
            );
            None
        }
    }
}
