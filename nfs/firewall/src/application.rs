//! Applications: their names, what is known about a flow's, and the conditions of rules.

use crate::config::Rule;

/// The names of protocols and categories by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    pub protocols: Vec<String>,
    pub categories: Vec<String>,
}

/// The knowledge about a flow's application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The protocol that carries the application, such as TLS; 0: none, or unknown.
    pub master: u16,
    pub application: u16,
    pub category: u16,
    /// The TLS server name or the HTTP host. Empty: none.
    pub host: String,
    pub ja3: Option<[u8; 16]>,
}

/// A condition on the application. Its parts must all hold; a part that is empty holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    protocols: Vec<Protocol>,
    categories: Vec<u16>,
    hosts: Vec<Pattern>,
    ja3: Vec<[u8; 16]>,
}

/// A protocol by number; with a master, the application in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Protocol {
    master: Option<u16>,
    application: u16,
}

/// A pattern of hosts, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(String),
    /// All names that end in this, which starts with a dot.
    Below(String),
}

impl Catalogue {
    fn protocol(&self, name: &str) -> Option<u16> {
        position(&self.protocols, name)
    }

    /// Returns the name of what is known, as nDPI writes it: `TLS.YouTube`.
    pub fn name(&self, known: &Known) -> String {
        let of = |number: u16| {
            let name = self.protocols.get(usize::from(number));
            name.cloned().unwrap_or_else(|| number.to_string())
        };
        if known.master == 0 || known.master == known.application {
            return of(known.application);
        }
        if known.application == 0 {
            return of(known.master);
        }
        format!("{}.{}", of(known.master), of(known.application))
    }

    pub fn category(&self, known: &Known) -> String {
        let name = self.categories.get(usize::from(known.category));
        name.cloned().unwrap_or_else(|| known.category.to_string())
    }
}

fn position(names: &[String], name: &str) -> Option<u16> {
    let found = names
        .iter()
        .position(|known| known.eq_ignore_ascii_case(name));
    found.and_then(|position| u16::try_from(position).ok())
}

/// Returns the most similar names, as a part of an error.
fn nearest(names: &[String], name: &str) -> String {
    let mut by_distance: Vec<(usize, &String)> = names
        .iter()
        .filter(|known| !known.is_empty())
        .map(|known| (distance(&known.to_lowercase(), &name.to_lowercase()), known))
        .collect();
    by_distance.sort();
    let nearest: Vec<&str> = by_distance
        .iter()
        .take(3)
        .map(|(_, name)| name.as_str())
        .collect();
    nearest.join(", ")
}

/// Returns the number of insertions, removals and replacements between two words (Levenshtein).
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (index, from) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = index + 1;
        for (place, to) in two.iter().enumerate() {
            let replaced = before + usize::from(from != *to);
            before = row[place + 1];
            row[place + 1] = replaced.min(before + 1).min(row[place] + 1);
        }
    }
    row[two.len()]
}

impl Condition {
    /// Makes the condition of a rule.
    ///
    /// # Errors
    /// The key of the rule that is wrong, with its index, and the reason.
    pub fn of(rule: &Rule, catalogue: &Catalogue) -> Result<Self, (String, String)> {
        let mut condition = Self::default();
        for (index, name) in rule.applications.iter().enumerate() {
            let protocol = protocol(name, catalogue);
            let protocol = protocol.map_err(|why| (format!("applications[{index}]"), why))?;
            condition.protocols.push(protocol);
        }
        for (index, name) in rule.categories.iter().enumerate() {
            let number = position(&catalogue.categories, name).ok_or_else(|| {
                let near = nearest(&catalogue.categories, name);
                let why = format!("{name:?} is not a category of nDPI; the nearest are {near}");
                (format!("categories[{index}]"), why)
            })?;
            condition.categories.push(number);
        }
        for (index, text) in rule.hosts.iter().enumerate() {
            let pattern = Pattern::parse(text).map_err(|why| (format!("hosts[{index}]"), why))?;
            condition.hosts.push(pattern);
        }
        for (index, text) in rule.ja3.iter().enumerate() {
            let why = || format!("{text:?}; expected 32 hexadecimal digits");
            let print = fingerprint(text).ok_or_else(|| (format!("ja3[{index}]"), why()))?;
            condition.ja3.push(print);
        }
        Ok(condition)
    }

    /// Tells whether it holds for all.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub fn holds(&self, known: &Known) -> bool {
        (self.protocols.is_empty() || self.protocols.iter().any(|one| one.is_of(known)))
            && (self.categories.is_empty() || self.categories.contains(&known.category))
            && (self.hosts.is_empty() || {
                let host = known.host.to_ascii_lowercase();
                self.hosts.iter().any(|pattern| pattern.takes(&host))
            })
            && (self.ja3.is_empty() || known.ja3.is_some_and(|print| self.ja3.contains(&print)))
    }

    /// Tells whether it holds for all for which the other holds, as far as the texts of both show.
    pub fn covers(&self, other: &Self) -> bool {
        fn wider<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
            wide.is_empty()
                || !narrow.is_empty()
                    && narrow
                        .iter()
                        .all(|one| wide.iter().any(|other| covers(other, one)))
        }
        wider(&self.protocols, &other.protocols, |wide, narrow| {
            wide.covers(*narrow)
        }) && wider(&self.categories, &other.categories, PartialEq::eq)
            && wider(&self.hosts, &other.hosts, Pattern::covers)
            && wider(&self.ja3, &other.ja3, PartialEq::eq)
    }
}

impl Protocol {
    fn is_of(self, known: &Known) -> bool {
        match self.master {
            Some(master) => (known.master, known.application) == (master, self.application),
            None => [known.master, known.application].contains(&self.application),
        }
    }

    fn covers(self, narrow: Self) -> bool {
        self == narrow
            || self.master.is_none()
                && [narrow.master, Some(narrow.application)].contains(&Some(self.application))
    }
}

fn protocol(name: &str, catalogue: &Catalogue) -> Result<Protocol, String> {
    // Some names have a dot of their own.
    if let Some(application) = catalogue.protocol(name) {
        return Ok(Protocol {
            master: None,
            application,
        });
    }
    let unknown = |part: &str| {
        let near = nearest(&catalogue.protocols, part);
        format!("{part:?} is not a protocol of nDPI; the nearest are {near}")
    };
    let Some((master, application)) = name.split_once('.') else {
        return Err(unknown(name));
    };
    Ok(Protocol {
        master: Some(catalogue.protocol(master).ok_or_else(|| unknown(master))?),
        application: catalogue
            .protocol(application)
            .ok_or_else(|| unknown(application))?,
    })
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, is_below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"*/\\\"'".contains(&byte))
                && !name.starts_with('.')
        };
        if !is_name(name) {
            return Err(format!(
                "{text:?}; expected a name such as example.com, or *.example.com for all names below it"
            ));
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        Ok(if is_below {
            Self::Below(format!(".{name}"))
        } else {
            Self::Exact(name)
        })
    }

    /// Tells whether it takes a host in lower case. A port and a final dot do not count.
    fn takes(&self, host: &str) -> bool {
        let host = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let host = host.trim_end_matches('.');
        match self {
            Self::Exact(name) => host == name,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        }
    }

    fn covers(&self, narrow: &Self) -> bool {
        match (self, narrow) {
            (Self::Below(wide), Self::Below(narrow)) => narrow.ends_with(wide.as_str()),
            (_, Self::Exact(name)) => self.takes(name),
            (Self::Exact(_), Self::Below(_)) => false,
        }
    }
}

/// Parses 32 hexadecimal digits.
pub fn fingerprint(text: &str) -> Option<[u8; 16]> {
    let is_hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok()?;
    is_hexadecimal.then(|| number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Catalogue {
            protocols: names(&["Unknown", "HTTP", "TLS", "YouTube", "DNS"]),
            categories: names(&["Unspecified", "Media", "Web"]),
        }
    }

    fn condition(json: serde_json::Value) -> Result<Condition, (String, String)> {
        let mut rule = serde_json::json!({"name": "x", "action": "allow"});
        rule.as_object_mut()
            .unwrap()
            .extend(json.as_object().unwrap().clone());
        Condition::of(&serde_json::from_value(rule).unwrap(), &catalogue())
    }

    fn known(master: u16, application: u16, host: &str) -> Known {
        Known {
            master,
            application,
            category: 1,
            host: host.to_owned(),
            ja3: None,
        }
    }

    #[test]
    fn names_select_protocols_and_their_applications() {
        let holds = |name: &str, master, application| {
            let condition = condition(serde_json::json!({"applications": [name]})).unwrap();
            condition.holds(&known(master, application, ""))
        };
        assert!(holds("TLS", 2, 3) && holds("TLS", 0, 2) && holds("youtube", 2, 3));
        assert!(holds("TLS.YouTube", 2, 3) && !holds("TLS.YouTube", 0, 3));
        assert!(!holds("HTTP", 2, 3) && !holds("HTTP", 0, 0));
        assert_eq!(catalogue().name(&known(2, 3, "")), "TLS.YouTube");
        assert_eq!(catalogue().name(&known(0, 1, "")), "HTTP");
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest() {
        for (json, key, near) in [
            (
                serde_json::json!({"applications": ["HTTP", "YouTub"]}),
                "applications[1]",
                "YouTube",
            ),
            (
                serde_json::json!({"applications": ["TSL.YouTube"]}),
                "applications[0]",
                "TLS",
            ),
            (
                serde_json::json!({"categories": ["Medium"]}),
                "categories[0]",
                "Media",
            ),
            (
                serde_json::json!({"hosts": ["a.b", "*"]}),
                "hosts[1]",
                "*.example.com",
            ),
            (
                serde_json::json!({"ja3": ["+1234567890123456789012345678901"]}),
                "ja3[0]",
                "32",
            ),
        ] {
            let (place, why) = condition(json).unwrap_err();
            assert!(place == key && why.contains(near), "{place}: {why}");
        }
    }

    #[test]
    fn hosts_match_exactly_or_below() {
        let holds = |pattern: &str, host: &str| {
            let condition = condition(serde_json::json!({"hosts": [pattern]})).unwrap();
            condition.holds(&known(0, 1, host))
        };
        assert!(holds("Example.com", "example.COM") && holds("example.com", "example.com:8080"));
        assert!(holds("example.com", "example.com.") && holds("*.example.com", "a.b.example.com"));
        assert!(
            !holds("*.example.com", "example.com") && !holds("*.example.com", "badexample.com")
        );
        assert!(!holds("example.com", "") && !holds("example.com", "www.example.com"));
    }

    #[test]
    fn wider_conditions_cover_narrower_ones() {
        let covers = |wide, narrow| condition(wide).unwrap().covers(&condition(narrow).unwrap());
        use serde_json::json;
        assert!(covers(json!({}), json!({"hosts": ["a.b"]})));
        assert!(!covers(json!({"hosts": ["a.b"]}), json!({})));
        assert!(covers(
            json!({"applications": ["TLS"]}),
            json!({"applications": ["TLS.YouTube"]})
        ));
        assert!(!covers(
            json!({"applications": ["TLS.YouTube"]}),
            json!({"applications": ["TLS"]})
        ));
        assert!(covers(
            json!({"hosts": ["*.b"]}),
            json!({"hosts": ["*.a.b", "x.b"]})
        ));
        assert!(!covers(
            json!({"hosts": ["*.a.b"]}),
            json!({"hosts": ["*.b"]})
        ));
    }
}
