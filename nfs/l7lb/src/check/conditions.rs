//! Checks the conditions of routes: one that no request meets is a mistake.

use nf_balancing::config::wrong;
use nf_runtime::Refusal;

use crate::config::Route;

/// # Errors
/// The first condition that no request can meet.
pub fn check(path: &str, route: &Route) -> Result<(), Refusal> {
    for (index, host) in route.host.iter().enumerate() {
        if !is_host(host) {
            let reason = format!("{host:?}; expected a name without scheme and port, such as \"www.example.org\" or \"*.example.org\"");
            return wrong(&format!("{path}.host[{index}]"), reason);
        }
    }
    path_holds(&format!("{path}.path"), &route.path)?;
    for (index, method) in route.method.iter().enumerate() {
        if !is_line(method, "") || method.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let reason = format!("{method:?}; expected a method in capitals, such as \"GET\"");
            return wrong(&format!("{path}.method[{index}]"), reason);
        }
    }
    for (index, header) in route.headers.iter().enumerate() {
        if !is_line(&header.name, "") {
            let reason = format!(
                "{:?}; expected the name of a header, such as \"X-Version\"",
                header.name
            );
            return wrong(&format!("{path}.headers[{index}].name"), reason);
        }
    }
    Ok(())
}

/// Tells whether this is a name, an address, or `*.` with a name.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let literal = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match literal {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok() && name == host,
        None => {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !name.is_empty() && name.bytes().all(is_part)
        }
    }
}

fn path_holds(path: &str, prefix: &str) -> Result<(), Refusal> {
    if !prefix.starts_with('/') {
        return wrong(path, format!("{prefix:?} does not begin with /"));
    }
    if prefix.ends_with("/*") {
        let reason = format!("{prefix:?} ends with /*; a path is a prefix already");
        return wrong(path, reason);
    }
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
    if !prefix.bytes().all(is_part) {
        let reason = format!("{prefix:?}; expected a path as it is sent, without a query, spaces and letters beyond ASCII");
        return wrong(path, reason);
    }
    Ok(())
}

/// Tells whether a header line can be made of this name and this value.
pub(super) fn is_line(name: &str, value: &str) -> bool {
    nf_http::Lines::new([(name, value.trim().as_bytes())]).is_ok()
}
