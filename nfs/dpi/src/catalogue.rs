//! The names of nDPI's protocols and categories.

use crate::{Answer, Protocol};

/// The most names of each kind; nDPI 4.2 has 282 protocols and 106 categories.
const MOST: usize = 4096;

/// The protocols and categories that the program knows, for configurations and logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// nDPI's version.
    pub version: String,
    /// By number.
    protocols: Vec<String>,
    categories: Vec<String>,
}

impl Catalogue {
    #[must_use]
    pub fn new(version: String, protocols: Vec<String>, categories: Vec<String>) -> Self {
        Self {
            version,
            protocols,
            categories,
        }
    }

    #[must_use]
    pub fn protocols(&self) -> &[String] {
        &self.protocols
    }

    #[must_use]
    pub fn categories(&self) -> &[String] {
        &self.categories
    }

    /// Returns the name of a protocol as ndpiReader prints it: `TLS.Google`, `DNS`, `Unknown`.
    #[must_use]
    pub fn protocol(&self, protocol: Protocol) -> String {
        let name = |number: u16| {
            let known = self.protocols.get(usize::from(number));
            known.map_or("Unknown", String::as_str)
        };
        let Protocol {
            master,
            application,
        } = protocol;
        if master != 0 && application != 0 && master != application {
            format!("{}.{}", name(master), name(application))
        } else {
            name(application.max(master)).to_owned()
        }
    }

    #[must_use]
    pub fn category(&self, number: u16) -> &str {
        let known = self.categories.get(usize::from(number));
        known.map_or("Unknown", String::as_str)
    }

    /// Returns the number of the protocol with this name, in whatever case.
    #[must_use]
    pub fn protocol_number(&self, name: &str) -> Option<u16> {
        position(&self.protocols, name)
    }

    #[must_use]
    pub fn category_number(&self, name: &str) -> Option<u16> {
        position(&self.categories, name)
    }

    /// # Errors
    /// If the answer has a number that nothing has.
    pub(crate) fn check(&self, answer: &Answer) -> Result<(), String> {
        let Protocol {
            master,
            application,
        } = answer.protocol;
        if usize::from(master.max(application)) >= self.protocols.len() {
            return Err(format!("an answer of protocol {master}.{application}"));
        }
        if usize::from(answer.category) >= self.categories.len() {
            return Err(format!("an answer of category {}", answer.category));
        }
        Ok(())
    }

    /// Returns the lines in which the program sends it.
    #[must_use]
    pub fn to_lines(&self) -> String {
        let mut lines = format!("{}\n", self.version);
        for (letter, names) in [('p', &self.protocols), ('c', &self.categories)] {
            for name in names {
                // A name with a line break would become two.
                lines.push(letter);
                lines.extend(name.chars().filter(|c| !c.is_control()));
                lines.push('\n');
            }
        }
        lines
    }

    /// Reads those lines.
    ///
    /// # Errors
    /// If a line is not one of them, or there are too many.
    pub fn parse(lines: &str) -> Result<Self, String> {
        let mut lines = lines.lines();
        let mut catalogue = Self {
            version: lines.next().unwrap_or_default().to_owned(),
            ..Self::default()
        };
        for line in lines {
            let names = match line.chars().next() {
                Some('p') => &mut catalogue.protocols,
                Some('c') => &mut catalogue.categories,
                _ => return Err(format!("a name {line:?}")),
            };
            names.push(line[1..].to_owned());
        }
        let most = catalogue.protocols.len().max(catalogue.categories.len());
        if most > MOST || catalogue.protocols.is_empty() || catalogue.categories.is_empty() {
            return Err(format!("{most} names, expected 1 to {MOST}"));
        }
        Ok(catalogue)
    }
}

fn position(names: &[String], name: &str) -> Option<u16> {
    let found = names.iter().position(|one| one.eq_ignore_ascii_case(name));
    found.and_then(|number| u16::try_from(number).ok())
}
