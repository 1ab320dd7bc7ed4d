//! Validates a configuration as a whole.

mod addresses;
mod conditions;
mod passthrough;

use std::collections::HashSet;

use nf_balancing::{check, config::wrong};
use nf_runtime::Refusal;

use crate::{
    config::{Config, Listener, Mode, Pool, Route, Sticky, Timeouts},
    tls,
};

/// The heads that limits may allow, in bytes.
const HEADS: std::ops::RangeInclusive<usize> = 400..=65_536;

/// # Errors
/// The first fault, with the path of its value.
pub fn check(config: &Config) -> Result<(), Refusal> {
    check::interfaces(&config.interfaces, &config.neighbours)?;
    if !HEADS.contains(&config.limits.head) {
        let reason = format!("is {}; expected 400 to 65536 bytes", config.limits.head);
        return wrong("limits.head", reason);
    }
    for (name, value) in [
        ("connections", config.limits.connections),
        ("backends", config.limits.backends),
        ("routes", config.limits.routes),
        ("chunks", config.limits.chunks),
        ("neighbours", config.limits.neighbours),
    ] {
        if value == 0 {
            return wrong(&format!("limits.{name}"), "is 0; expected at least 1");
        }
    }
    let count: usize = config.pools.iter().map(|pool| pool.backends.len()).sum();
    if count > config.limits.backends || count > usize::from(u16::MAX) {
        let reason = format!("is {}; the pools have {count}", config.limits.backends);
        return wrong("limits.backends", reason);
    }
    let count: usize = config.listeners.iter().map(|each| each.routes.len()).sum();
    if count > config.limits.routes || count >= usize::from(u16::MAX) {
        let reason = format!("is {}; the listeners have {count}", config.limits.routes);
        return wrong("limits.routes", reason);
    }
    if let Some(log) = &config.log {
        if !(0.0..=1.0).contains(&log.sample) {
            let reason = format!("is {}; expected a share from 0 to 1", log.sample);
            return wrong("log.sample", reason);
        }
    }
    let mut names = HashSet::new();
    for (index, pool) in config.pools.iter().enumerate() {
        pool_holds(&format!("pools[{index}]"), pool, &mut names)?;
    }
    let (mut names, mut ends) = (HashSet::new(), HashSet::new());
    for (index, listener) in config.listeners.iter().enumerate() {
        let path = format!("listeners[{index}]");
        check::name(&format!("{path}.name"), &listener.name)?;
        if !names.insert(&listener.name) {
            return wrong(
                &format!("{path}.name"),
                format!("{:?} is there twice", listener.name),
            );
        }
        if !ends.insert((listener.address, listener.port)) {
            let reason = format!(
                "{} port {} belongs to another listener",
                listener.address, listener.port
            );
            return wrong(&format!("{path}.address"), reason);
        }
        listener_holds(&path, listener, config)?;
    }
    timeouts_hold(&config.timeouts)?;
    addresses::check(config)
}

fn timeouts_hold(timeouts: &Timeouts) -> Result<(), Refusal> {
    for (name, value) in [
        ("head", timeouts.head),
        ("idle", timeouts.idle),
        ("body", timeouts.body),
        ("connect", timeouts.connect),
        ("answer", timeouts.answer),
    ] {
        if value.nanos() == 0 {
            return wrong(&format!("timeouts.{name}"), "is 0s; expected more");
        }
    }
    Ok(())
}

fn pool_holds<'a>(
    path: &str,
    pool: &'a Pool,
    names: &mut HashSet<&'a String>,
) -> Result<(), Refusal> {
    check::name(&format!("{path}.name"), &pool.name)?;
    if !names.insert(&pool.name) {
        return wrong(
            &format!("{path}.name"),
            format!("{:?} is there twice", pool.name),
        );
    }
    if let Some(health) = &pool.health {
        check::health(&format!("{path}.health"), health, &pool.name)?;
    }
    if let Some(version) = pool
        .proxy_protocol
        .filter(|version| ![1, 2].contains(version))
    {
        let reason = format!("is {version}; expected 1 or 2");
        return wrong(&format!("{path}.proxy_protocol"), reason);
    }
    if let Some(sticky) = &pool.sticky {
        sticky_holds(&format!("{path}.sticky"), sticky)?;
    }
    let mut names = HashSet::new();
    for (index, backend) in pool.backends.iter().enumerate() {
        let path = format!("{path}.backends[{index}]");
        check::name(&format!("{path}.name"), &backend.name)?;
        if !names.insert(&backend.name) {
            return wrong(
                &format!("{path}.name"),
                format!("{:?} is there twice", backend.name),
            );
        }
        if backend.port == 0 {
            return wrong(&format!("{path}.port"), "is 0; expected 1 to 65535");
        }
    }
    Ok(())
}

fn listener_holds(path: &str, listener: &Listener, config: &Config) -> Result<(), Refusal> {
    if listener.port == 0 {
        return wrong(&format!("{path}.port"), "is 0; expected 1 to 65535");
    }
    if let Some(tls) = &listener.tls {
        tls::check(&format!("{path}.tls"), tls)?;
        if listener.proxy_protocol {
            let reason = "is true, and tls is set; a header before the ClientHello is not supported: set it to false, or remove tls";
            return wrong(&format!("{path}.proxy_protocol"), reason);
        }
    }
    if listener.mode == Mode::TlsPassthrough {
        passthrough::listener_holds(path, listener, config)?;
    }
    lines_hold(&format!("{path}.add"), &listener.add)?;
    lines_hold(&format!("{path}.add_to_answers"), &listener.add_to_answers)?;
    let mut names = HashSet::new();
    for (index, route) in listener.routes.iter().enumerate() {
        let path = format!("{path}.routes[{index}]");
        route_holds(&path, route, config)?;
        if listener.mode == Mode::TlsPassthrough {
            passthrough::route_holds(&path, route, config)?;
        } else if !route.sni.is_empty() {
            let reason = "is for listeners with mode = \"tls-passthrough\"; expected host";
            return wrong(&format!("{path}.sni"), reason);
        }
        if !names.insert(&route.name) {
            let reason = format!("{:?} is there twice; metrics name it", route.name);
            return wrong(&format!("{path}.name"), reason);
        }
    }
    Ok(())
}

/// Checks header lines that the function adds.
fn lines_hold(path: &str, lines: &[String]) -> Result<(), Refusal> {
    for (index, line) in lines.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let pair = line.split_once(':');
        let Some((name, _)) = pair.filter(|(name, value)| conditions::is_line(name, value)) else {
            let reason = format!("{line:?} is not a header line, such as \"X-Via: l7lb\"");
            return wrong(&path, reason);
        };
        if FRAMING.iter().any(|each| each.eq_ignore_ascii_case(name)) {
            let reason =
                format!("{line:?} would change how the message is read; expected another header");
            return wrong(&path, reason);
        }
    }
    Ok(())
}

/// Headers that say where messages end, where they go, and what becomes of the connection.
const FRAMING: [&str; 6] = [
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "Trailer",
];

fn sticky_holds(path: &str, sticky: &Sticky) -> Result<(), Refusal> {
    let (key, name) = match (&sticky.cookie, &sticky.header) {
        (Some(name), None) => ("cookie", name),
        (None, Some(name)) => ("header", name),
        _ => return wrong(path, "needs exactly one of cookie and header"),
    };
    check::name(&format!("{path}.{key}"), name)?;
    if conditions::is_line(name, "") {
        return Ok(());
    }
    let expected = "expected letters, digits and marks such as - and _";
    wrong(&format!("{path}.{key}"), format!("{name:?}; {expected}"))
}

fn route_holds(path: &str, route: &Route, config: &Config) -> Result<(), Refusal> {
    check::name(&format!("{path}.name"), &route.name)?;
    let destinations = [
        route.pool.is_some(),
        route.redirect.is_some(),
        route.answer.is_some(),
    ];
    if destinations.iter().filter(|given| **given).count() != 1 {
        return wrong(path, "needs exactly one of pool, redirect and answer");
    }
    conditions::check(path, route)?;
    if let Some(pool) = &route.pool {
        if !config.pools.iter().any(|each| each.name == *pool) {
            let known: Vec<_> = config.pools.iter().map(|each| each.name.as_str()).collect();
            let reason = format!(
                "{pool:?} does not exist; the pools are {}",
                known.join(", ")
            );
            return wrong(&format!("{path}.pool"), reason);
        }
    }
    if let Some(redirect) = &route.redirect {
        if ![301, 302, 303, 307, 308].contains(&redirect.status) {
            let reason = format!("is {}; expected 301, 302, 303, 307 or 308", redirect.status);
            return wrong(&format!("{path}.redirect.status"), reason);
        }
        if redirect.location.is_empty() {
            let reason = "is empty; expected a URL or a path";
            return wrong(&format!("{path}.redirect.location"), reason);
        }
        if redirect
            .location
            .bytes()
            .any(|byte| byte <= b' ' || byte == 0x7f)
        {
            let reason = format!("{:?} has a space or a control character", redirect.location);
            return wrong(&format!("{path}.redirect.location"), reason);
        }
    }
    if let Some(answer) = &route.answer {
        if !(200..=599).contains(&answer.status) || [204, 304].contains(&answer.status) {
            let reason = format!("is {}; expected 200 to 599 with a body", answer.status);
            return wrong(&format!("{path}.answer.status"), reason);
        }
    }
    Ok(())
}
