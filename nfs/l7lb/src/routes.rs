//! Chooses the route of a request.

use nf_http::Request;

use crate::config;

/// The action of a route on its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends them to the pool with this index.
    Pool(usize),
    /// Answers them with this status, header lines and body.
    Answer {
        status: u16,
        headers: String,
        body: String,
    },
}

/// A route's conditions, prepared for comparison.
#[derive(Debug)]
pub struct Route {
    /// Lower-case names.
    hosts: Vec<Host>,
    /// The prefix without a slash at its end.
    path: String,
    servers: Vec<Host>,
    methods: Vec<String>,
    headers: Vec<config::HeaderMatch>,
    pub action: Action,
    /// The row of its numbers.
    pub row: u16,
}

#[derive(Debug, PartialEq, Eq)]
enum Host {
    Exactly(String),
    /// Every name that ends with this: `.example.org`.
    Below(String),
}

impl Route {
    /// Prepares a checked route. `pool`: the index of a pool by its name.
    pub(crate) fn new(route: &config::Route, row: u16, pool: impl Fn(&str) -> usize) -> Self {
        let hosts = |names: &[String]| names.iter().map(|name| Host::of(name)).collect();
        Self {
            hosts: hosts(&route.host),
            servers: hosts(&route.sni),
            path: route.path.trim_end_matches('/').to_owned(),
            methods: route.method.clone(),
            headers: route.headers.clone(),
            action: action(route, pool),
            row,
        }
    }

    /// Tells whether all conditions hold for a request.
    pub fn matches(&self, request: &Request<'_>) -> bool {
        self.has_host(request.host.map(|authority| authority.host))
            && self.has_path(request.target.path)
            && (self.methods.is_empty()
                || self.methods.iter().any(|method| method == request.method))
            && self
                .headers
                .iter()
                .all(|wanted| has_header(request, wanted))
    }

    /// Tells whether a TLS connection to a server of this name belongs to the route.
    pub fn matches_server(&self, server: Option<&str>) -> bool {
        self.servers.is_empty()
            || server.is_some_and(|name| self.servers.iter().any(|wanted| wanted.is(name)))
    }

    fn has_host(&self, host: Option<&str>) -> bool {
        self.hosts.is_empty()
            || host.is_some_and(|name| self.hosts.iter().any(|wanted| wanted.is(name)))
    }

    fn has_path(&self, path: &str) -> bool {
        match path.strip_prefix(&self.path) {
            Some(rest) => rest.is_empty() || rest.starts_with('/') || self.path.is_empty(),
            None => false,
        }
    }
}

impl Host {
    fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.strip_prefix('*') {
            Some(end) => Self::Below(end.to_owned()),
            None => Self::Exactly(name),
        }
    }

    fn is(&self, name: &str) -> bool {
        match self {
            Self::Exactly(wanted) => name.eq_ignore_ascii_case(wanted),
            // Names are ASCII, as their parsers have checked.
            Self::Below(end) => name
                .len()
                .checked_sub(end.len())
                .filter(|start| *start > 0)
                .and_then(|start| name.get(start..))
                .is_some_and(|tail| tail.eq_ignore_ascii_case(end)),
        }
    }
}

fn has_header(request: &Request<'_>, wanted: &config::HeaderMatch) -> bool {
    request.head.headers().any(|header| {
        header.is(&wanted.name)
            && wanted
                .value
                .as_ref()
                .is_none_or(|value| header.value == value.as_bytes())
    })
}

fn action(route: &config::Route, pool: impl Fn(&str) -> usize) -> Action {
    match (&route.pool, &route.redirect, &route.answer) {
        (Some(name), ..) => Action::Pool(pool(name)),
        (None, Some(redirect), _) => Action::Answer {
            status: redirect.status,
            headers: format!("Location: {}\r\n", redirect.location),
            body: String::new(),
        },
        (None, None, answer) => Action::Answer {
            status: answer.as_ref().map_or(404, |answer| answer.status),
            headers: "Content-Type: text/plain\r\n".to_owned(),
            body: answer
                .as_ref()
                .map_or_else(String::new, |answer| answer.body.clone()),
        },
    }
}
