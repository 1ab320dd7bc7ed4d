//! Makes rules of a configuration, and refuses mistakes in it.

use std::collections::BTreeSet;

use nf_runtime::Refusal;

use crate::{
    application::{Catalogue, Condition},
    config::{Config, PortOrName, Rule as Written},
    coverage,
    ranges::{self, Ranges},
    rows::MOST_RULES,
    rules::{Place, Rule, Rules},
};

const TCP: u128 = 6;
const UDP: u128 = 17;

/// Makes the rules.
///
/// # Errors
/// If a value is wrong, or a rule can never take a connection; the error names the place.
pub fn rules(config: &Config, catalogue: &Catalogue) -> Result<Rules, Refusal> {
    checked(config)?;
    let mut names = BTreeSet::new();
    let mut rules = Vec::new();
    for (index, written) in config.rules.iter().enumerate() {
        let refused = |(key, why): (String, String)| {
            Refusal::configuration(
                &format!("rules[{index}].{key}"),
                format!("{why} (rule {:?})", written.name),
            )
        };
        if written.name.is_empty() || !names.insert(&written.name) {
            let why = "expected a name that no other rule has".to_owned();
            return Err(refused(("name".to_owned(), why)));
        }
        rules.push(rule(config, written, catalogue).map_err(refused)?);
    }
    let rules = Rules {
        rules,
        default: config.default,
    };
    no_dead_rules(&rules)?;
    Ok(rules)
}

fn no_dead_rules(rules: &Rules) -> Result<(), Refusal> {
    let Some(dead) = coverage::dead(rules).into_iter().next() else {
        return Ok(());
    };
    let name = &rules.rules[dead.rule].name;
    let by: Vec<String> = dead
        .by
        .iter()
        .map(|index| format!("{:?}", rules.rules[*index].name))
        .collect();
    let reason = if by.is_empty() {
        format!("rule {name:?} can never match: its conditions contradict each other")
    } else {
        format!("rule {name:?} can never match: {} before it take all its connections; remove it, or move it in front", by.join(", "))
    };
    Err(Refusal::configuration(
        &format!("rules[{}]", dead.rule),
        reason,
    ))
}

/// Checks the parts outside of rules.
fn checked(config: &Config) -> Result<(), Refusal> {
    if config.rules.len() > MOST_RULES {
        let reason = format!(
            "{} rules; expected at most {MOST_RULES}",
            config.rules.len()
        );
        return Err(Refusal::configuration("rules", reason));
    }
    for (name, zone) in &config.zones {
        if zone.ports.is_empty() && zone.prefixes.is_empty() {
            let reason =
                "has neither ports nor prefixes, and would be everything; expected one of them";
            return Err(Refusal::configuration(&format!("zones.{name}"), reason));
        }
    }
    if !(1..=1 << 24).contains(&config.flows) {
        let reason = format!("is {}; expected 1 to {}", config.flows, 1 << 24);
        return Err(Refusal::configuration("flows", reason));
    }
    let inspection = &config.inspection;
    if !(1..=64).contains(&inspection.packets) {
        let reason = format!("is {}; expected 1 to 64", inspection.packets);
        return Err(Refusal::configuration("inspection.packets", reason));
    }
    if !(1..=10_000).contains(&inspection.wait_ms) {
        let reason = format!("is {}; expected 1 to 10000", inspection.wait_ms);
        return Err(Refusal::configuration("inspection.wait_ms", reason));
    }
    if !(1..=4096).contains(&inspection.memory_mib) {
        let reason = format!("is {}; expected 1 to 4096", inspection.memory_mib);
        return Err(Refusal::configuration("inspection.memory_mib", reason));
    }
    Ok(())
}

fn rule(
    config: &Config,
    written: &Written,
    catalogue: &Catalogue,
) -> Result<Rule, (String, String)> {
    let mut protocols = protocols(&written.protocols)?;
    let with_ports = Ranges::new(vec![(TCP, TCP), (UDP, UDP)]);
    if !written.ports.is_empty() || !written.source_ports.is_empty() {
        protocols = protocols.intersection(&with_ports);
    }
    Ok(Rule {
        name: written.name.clone(),
        from: places(config, "from", &written.from)?,
        to: places(config, "to", &written.to)?,
        source: addresses(config, "source", &written.source)?,
        destination: addresses(config, "destination", &written.destination)?,
        protocols,
        source_ports: ports("source_ports", &written.source_ports)?,
        ports: ports("ports", &written.ports)?,
        application: Condition::of(written, catalogue)?,
        action: written.action,
        log: written.log,
        rate: written.rate,
        undecided: written.undecided,
    })
}

fn places(config: &Config, key: &str, names: &[String]) -> Result<Vec<Place>, (String, String)> {
    if names.is_empty() {
        return Ok(vec![Place {
            ports: Ranges::all(),
            addresses: Ranges::all(),
        }]);
    }
    let each = names.iter().enumerate().map(|(index, name)| {
        let zone = config.zones.get(name).ok_or_else(|| {
            let known: Vec<&str> = config.zones.keys().map(String::as_str).collect();
            let why = format!(
                "{name:?} is not a zone; expected one of: {}",
                known.join(", ")
            );
            (format!("{key}[{index}]"), why)
        })?;
        let one = |port: &usize| (*port as u128, *port as u128);
        let ports = match &zone.ports[..] {
            [] => Ranges::all(),
            ports => Ranges::new(ports.iter().map(one).collect()),
        };
        let addresses = addresses(config, "prefixes", &zone.prefixes).map_err(|(place, why)| {
            (
                format!("{key}[{index}]"),
                format!("zones.{name}.{place}: {why}"),
            )
        })?;
        Ok(Place { ports, addresses })
    });
    each.collect()
}

fn addresses(config: &Config, key: &str, texts: &[String]) -> Result<Ranges, (String, String)> {
    if texts.is_empty() {
        return Ok(Ranges::all());
    }
    let mut all = Ranges::new(Vec::new());
    for (index, text) in texts.iter().enumerate() {
        let place = || format!("{key}[{index}]");
        match config.sets.get(text) {
            Some(set) => {
                for element in set {
                    let why = |why| (place(), format!("sets.{text}: {why}"));
                    all = all.union(&ranges::prefix(element).map_err(why)?);
                }
            }
            None => all = all.union(&ranges::prefix(text).map_err(|why| (place(), why))?),
        }
    }
    Ok(all)
}

fn ports(key: &str, written: &[PortOrName]) -> Result<Ranges, (String, String)> {
    if written.is_empty() {
        return Ok(Ranges::all());
    }
    let each = written.iter().enumerate().map(|(index, port)| {
        ranges::ports(&port.to_string()).map_err(|why| (format!("{key}[{index}]"), why))
    });
    Ok(Ranges::new(each.collect::<Result<_, _>>()?))
}

fn protocols(written: &[PortOrName]) -> Result<Ranges, (String, String)> {
    if written.is_empty() {
        return Ok(Ranges::all());
    }
    let mut ranges = Vec::new();
    for (index, protocol) in written.iter().enumerate() {
        let numbers: &[u128] = match protocol {
            PortOrName::Number(number @ 0..=255) => &[u128::from(*number)],
            PortOrName::Text(text) if text == "tcp" => &[TCP],
            PortOrName::Text(text) if text == "udp" => &[UDP],
            PortOrName::Text(text) if text == "icmp" => &[1, 58],
            _ => {
                let why = format!(
                    "{:?}; expected tcp, udp, icmp, or a number up to 255",
                    protocol.to_string()
                );
                return Err((format!("protocols[{index}]"), why));
            }
        };
        ranges.extend(numbers.iter().map(|number| (*number, *number)));
    }
    Ok(Ranges::new(ranges))
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::*;

    fn compiled(config: Value) -> Result<Rules, String> {
        let config: Config = serde_json::from_value(config).map_err(|error| error.to_string())?;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let catalogue = Catalogue {
            protocols: names(&["Unknown", "HTTP", "TLS", "YouTube"]),
            categories: names(&["Unspecified", "Web"]),
        };
        rules(&config, &catalogue).map_err(|refusal| refusal.detail)
    }

    #[test]
    fn wrong_values_are_refused_where_they_are() {
        let rule = |key: &str, value: Value| {
            let mut rule = json!({"name": "x", "action": "allow"});
            rule[key] = value;
            json!({"rules": [rule], "zones": {"inside": {"ports": [0]}}})
        };
        for (config, told) in [
            (
                rule("from", json!(["insid"])),
                "rules[0].from[0]: \"insid\" is not a zone",
            ),
            (
                rule("source", json!(["10.0.0.0/8", "10.0.0.1/8"])),
                "rules[0].source[1]: ",
            ),
            (rule("ports", json!([80, "90-80"])), "rules[0].ports[1]: "),
            (rule("protocols", json!(["tpc"])), "rules[0].protocols[0]: "),
            (rule("applications", json!(["HTP"])), "nearest are HTTP"),
            (rule("name", json!("")), "rules[0].name"),
            (rule("rate", json!({"packets": 0})), "zero"),
            (rule("rat", json!(1)), "unknown field"),
            (json!({"zones": {"x": {}}}), "zones.x: has neither"),
            (json!({"flows": 0}), "flows: is 0"),
            (json!({"inspection": {"packets": 65}}), "inspection.packets"),
        ] {
            let why = compiled(config).unwrap_err();
            assert!(why.contains(told), "{why}");
        }
    }

    #[test]
    fn dead_rules_are_named_with_those_that_take_their_connections() {
        let both = |first: Value, second: Value| {
            let mut rules = vec![first, second];
            for (rule, name) in rules.iter_mut().zip(["first", "second"]) {
                rule["name"] = json!(name);
                rule["action"] = json!("allow");
            }
            compiled(
                json!({"rules": rules, "zones": {"inside": {"ports": [0]}, "outside": {"ports": [1]}}}),
            )
        };
        for (first, second) in [
            (json!({}), json!({"ports": [80]})),
            (
                json!({"source": ["10.0.0.0/8"]}),
                json!({"source": ["10.1.0.0/16"], "ports": [80]}),
            ),
            (json!({"protocols": ["tcp", "udp"]}), json!({"ports": [80]})),
            (
                json!({"applications": ["TLS"]}),
                json!({"applications": ["TLS.YouTube"]}),
            ),
            (
                json!({"from": ["inside"]}),
                json!({"from": ["inside"], "to": ["outside"]}),
            ),
        ] {
            let why = both(first.clone(), second.clone()).unwrap_err();
            assert!(
                why.contains("rule \"second\" can never match: \"first\""),
                "{why}"
            );
            assert!(both(second, first).is_ok());
        }
        for contradiction in [
            json!({"source": ["10.0.0.0/8"], "destination": ["fd00::/8"]}),
            json!({"protocols": ["icmp"], "ports": [80]}),
        ] {
            let why = both(contradiction, json!({})).unwrap_err();
            assert!(why.contains("contradict"), "{why}");
        }
        let versions = compiled(json!({"rules": [
            {"name": "v6", "action": "drop", "source": ["::/0"]},
            {"name": "v4", "action": "drop", "source": ["0.0.0.0/0"]},
        ]}));
        assert!(versions.is_ok());
        let split = compiled(json!({"rules": [
            {"name": "low", "action": "drop", "source": ["0.0.0.0/1"]},
            {"name": "high", "action": "drop", "source": ["128.0.0.0/1"]},
            {"name": "v4", "action": "allow", "destination": ["10.0.0.0/8"]},
        ]}));
        assert!(split.unwrap_err().contains("\"low\", \"high\" before it"));
    }
}
