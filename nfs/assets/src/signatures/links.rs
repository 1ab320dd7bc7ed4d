//! The names of links, by the largest packet that a TCP segment size tells.

use std::collections::BTreeMap;

use super::fault::{trimmed, Fault};

/// The names that PRADS has in its program and not, or not so, in its file.
const COMPILED_IN: [(u16, &str); 2] = [(1408, "virtualization"), (1460, "3G WAN")];

/// The links of a file.
pub struct Links(BTreeMap<u16, Vec<u8>>);

impl Links {
    /// Parses lines such as `1492,"pppoe (DSL)"`.
    ///
    /// # Errors
    /// If a line is not like that.
    pub fn parse(text: &[u8]) -> Result<Self, Fault> {
        let mut links = BTreeMap::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = trimmed(line);
            if !line.is_empty() && line[0] != b'#' {
                let (size, name) = link(line).ok_or_else(|| {
                    Fault::at(
                        number,
                        line,
                        "expected a packet size, a comma, and a name in quotation marks",
                    )
                })?;
                links.insert(size, name);
            }
        }
        let compiled_in = COMPILED_IN.map(|(size, name)| (size, name.into()));
        links.extend(compiled_in);
        Ok(Self(links))
    }

    /// Returns the name of the link of a TCP segment size.
    #[must_use]
    pub fn name(&self, segment_size: u16) -> Vec<u8> {
        let size = segment_size.wrapping_add(40);
        let known = self.0.get(&size).cloned();
        known.unwrap_or_else(|| format!("unknown-{size}").into())
    }
}

fn link(line: &[u8]) -> Option<(u16, Vec<u8>)> {
    let line = std::str::from_utf8(line).ok()?;
    let (size, name) = line.split_once(',')?;
    let name = name.strip_prefix('"')?.strip_suffix('"')?;
    Some((size.parse().ok()?, name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_names() {
        let links = Links::parse(b"# c\n1408,\"OpenVPN\"\n1500,\"ethernet/modem\" \n").unwrap();
        assert_eq!(links.name(1460), b"ethernet/modem");
        assert_eq!(links.name(1368), b"virtualization");
        assert_eq!(links.name(1420), b"3G WAN");
        assert_eq!(links.name(1000), b"unknown-1040");
        assert_eq!(links.name(u16::MAX), b"unknown-39");
        assert!(Links::parse(b"1500,ethernet").is_err());
    }
}
