//! Validates listeners whose TLS connections pass.

use nf_balancing::config::wrong;
use nf_runtime::Refusal;

use crate::{
    config::{Config, Listener, Route},
    passthrough::HEAD,
};

/// Refuses settings that need HTTP.
pub fn listener_holds(path: &str, listener: &Listener, config: &Config) -> Result<(), Refusal> {
    let settings = [
        ("tls", listener.tls.is_some()),
        ("forwarded_for", listener.forwarded_for),
        ("request_id", listener.request_id),
        ("add", !listener.add.is_empty()),
        ("add_to_answers", !listener.add_to_answers.is_empty()),
    ];
    refuse_given(path, &settings)?;
    if config.limits.head < HEAD {
        let reason = format!(
            "is {}; tls-passthrough needs {HEAD} bytes",
            config.limits.head
        );
        return wrong("limits.head", reason);
    }
    Ok(())
}

/// Refuses conditions and destinations of a route that need HTTP.
pub fn route_holds(path: &str, route: &Route, config: &Config) -> Result<(), Refusal> {
    let settings = [
        ("host", !route.host.is_empty()),
        ("path", route.path != "/"),
        ("method", !route.method.is_empty()),
        ("headers", !route.headers.is_empty()),
        ("redirect", route.redirect.is_some()),
        ("answer", route.answer.is_some()),
    ];
    refuse_given(path, &settings)?;
    let mut pools = config.pools.iter();
    let pool = pools.find(|pool| route.pool.as_ref() == Some(&pool.name));
    if pool.is_some_and(|pool| pool.sticky.is_some()) {
        let reason = "has sticky, which reads cookies or headers; expected a pool without it";
        return wrong(&format!("{path}.pool"), reason);
    }
    Ok(())
}

fn refuse_given(path: &str, settings: &[(&str, bool)]) -> Result<(), Refusal> {
    match settings.iter().find(|(_, given)| *given) {
        Some((name, _)) => {
            let reason = "needs HTTP; tls-passthrough reads nothing but sni";
            wrong(&format!("{path}.{name}"), reason)
        }
        None => Ok(()),
    }
}
