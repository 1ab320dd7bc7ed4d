//! Signatures of services and clients: regular expressions over a packet's payload, and the title of the program that they know.

use regex::bytes::{Captures, Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::{
    fault::Fault,
    pattern::{translated, Untranslatable},
};

/// The most bytes of each part of a title, and of a filled title.
const MAX_PROGRAM: usize = 100;
const MAX_VERSION: usize = 25;
const MAX_DETAIL: usize = 100;
const MAX_TITLE: usize = 511;
/// The most memory for the automata of one file's expressions.
const AUTOMATA: usize = 64 << 20;

/// A signature, and the program that it stands for.
struct Signature {
    service: Vec<u8>,
    /// The title, in which `$1` stands for the first group of the expression.
    title: Vec<u8>,
    expression: Regex,
}

/// The signatures of a file.
pub struct ServiceSignatures {
    all: Vec<Signature>,
    set: RegexSet,
    /// Whether any expression matches, which is quicker to tell than which: those at the start of a payload, and all others, which are searched for by their
    /// first letters.
    any: [Regex; 2],
}

/// A program that a signature knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program<'a> {
    pub service: &'a [u8],
    pub title: Vec<u8>,
}

impl ServiceSignatures {
    /// # Errors
    /// If a line is not a signature, or its expression not one that is supported.
    pub fn parse(text: &[u8]) -> Result<Self, Fault> {
        let mut all = Vec::new();
        let mut patterns = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let (signature, pattern) =
                Signature::parse(line).map_err(|reason| Fault::at(number, line, reason))?;
            all.push(signature);
            patterns.push(pattern);
        }
        let whole =
            |error: regex::Error| Fault::at(0, b"", format!("all expressions together: {error}"));
        let set = RegexSetBuilder::new(&patterns)
            .unicode(false)
            .octal(true)
            .size_limit(AUTOMATA)
            .dfa_size_limit(AUTOMATA)
            .build()
            .map_err(whole)?;
        let is_at_start = |pattern: &&String| pattern.starts_with('^') && !pattern.contains('|');
        let (at_start, others): (Vec<&String>, Vec<&String>) =
            patterns.iter().partition(is_at_start);
        let any = [alternatives(&at_start), alternatives(&others)];
        let [at_start, others] = any.map(|any| any.map_err(whole));
        Ok(Self {
            all,
            set,
            any: [at_start?, others?],
        })
    }

    /// Returns the program of the first signature that matches a payload.
    #[must_use]
    pub fn find(&self, payload: &[u8]) -> Option<Program<'_>> {
        if !self.any.iter().any(|any| any.is_match(payload)) {
            return None;
        }
        let first = self.set.matches(payload).iter().next()?;
        let signature = self.all.get(first)?;
        let groups = signature.expression.captures(payload)?;
        Some(signature.program(Some(&groups)))
    }

    /// Returns the program of the first signature, with all groups empty.
    #[must_use]
    pub fn first(&self) -> Option<Program<'_>> {
        self.all.first().map(|signature| signature.program(None))
    }
}

impl Signature {
    /// Parses `service,v/program/version/detail/,expression`.
    fn parse(line: &[u8]) -> Result<(Self, String), String> {
        let reason =
            "expected a service, v/program/version/detail/, and an expression, separated by commas";
        let mut fields = line.splitn(3, |byte| *byte == b',');
        let mut field = || fields.next().ok_or(reason);
        let (service, title, pattern) = (field()?, field()?, field()?);
        let mut parts = title.split(|byte| *byte == b'/').skip(1);
        let (program, version) = (parts.next().ok_or(reason)?, parts.next().ok_or(reason)?);
        let detail = parts.next().unwrap_or_default();
        let pattern = translated(pattern).map_err(|Untranslatable(what)| what)?;
        let expression = RegexBuilder::new(&pattern)
            .unicode(false)
            .octal(true)
            .build()
            .map_err(|error| error.to_string())?;
        let signature = Self {
            service: service.to_vec(),
            title: titled(program, version, detail),
            expression,
        };
        Ok((signature, pattern))
    }

    fn program(&self, groups: Option<&Captures<'_>>) -> Program<'_> {
        Program {
            service: &self.service,
            title: filled(&self.title, groups),
        }
    }
}

/// Returns the expression that matches where one of these does.
fn alternatives(patterns: &[&String]) -> Result<Regex, regex::Error> {
    // Without alternatives: one that matches nothing.
    let each: Vec<String> = match patterns {
        [] => vec!["[^\\s\\S]".to_owned()],
        _ => patterns
            .iter()
            .map(|pattern| format!("(?:{pattern})"))
            .collect(),
    };
    RegexBuilder::new(&each.join("|"))
        .unicode(false)
        .octal(true)
        .size_limit(AUTOMATA)
        .dfa_size_limit(AUTOMATA)
        .build()
}

/// Joins the parts of a title: `program version (detail)`.
fn titled(program: &[u8], version: &[u8], detail: &[u8]) -> Vec<u8> {
    let start = |part: &[u8], most: usize| part[..part.len().min(most)].to_vec();
    let mut title = start(program, MAX_PROGRAM);
    if !version.is_empty() {
        title.push(b' ');
        title.extend(start(version, MAX_VERSION));
    }
    if !detail.is_empty() {
        title.extend(b" (");
        title.extend(start(detail, MAX_DETAIL));
        title.push(b')');
    }
    title
}

/// Puts groups in their places, each up to its first zero. Groups that the expression does not have are empty.
fn filled(title: &[u8], groups: Option<&Captures<'_>>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = title;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'$' {
            out.push(*byte);
            continue;
        }
        let digits = after.iter().take_while(|digit| digit.is_ascii_digit());
        let number = digits.fold(0_usize, |sum, digit| {
            sum.saturating_mul(10) + usize::from(digit - b'0')
        });
        rest = after.get(1..).unwrap_or_default();
        let group = groups.and_then(|groups| groups.get(number));
        let group = group.map_or(&b""[..], |group| group.as_bytes());
        out.extend(group.iter().take_while(|byte| **byte != 0));
    }
    out.truncate(MAX_TITLE);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# comment\n\nhttp,v/Apache/$1//,Server: Apache\\/([\\S]+)[\\r\\n]\nhttp,v/$1///,Server: (\\w*)\\r\\n\n\
        ssh,v/OpenSSH/$2/Protocol $1/,SSH-([.\\d]+)-OpenSSH[_-](\\S+)\ntwo,v/A/$3//,a{1,2}b\n";

    fn title(payload: &[u8]) -> Option<String> {
        let signatures = ServiceSignatures::parse(FILE.as_bytes()).unwrap();
        let program = signatures.find(payload)?;
        let text = [program.service, b":", &program.title].concat();
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn the_first_signature_names_the_program() {
        assert_eq!(title(b"Server: Apache/2.4\r\n").unwrap(), "http:Apache 2.4");
        assert_eq!(title(b"Server: nginx\r\n").unwrap(), "http:nginx");
        assert_eq!(
            title(b"SSH-2.0-OpenSSH_9.2\n").unwrap(),
            "ssh:OpenSSH 9.2 (Protocol 2.0)"
        );
        // An expression may have commas; a title may name a group that its expression lacks.
        assert_eq!(title(b"aab").unwrap(), "two:A ");
        assert_eq!(
            title(b"Server: Apache/2\x004\r\n").unwrap(),
            "http:Apache 2"
        );
        assert_eq!(title(b"nothing of these"), None);
    }

    #[test]
    fn long_groups_are_cut() {
        let long = [b"Server: Apache/", &[b'x'; 900][..], b"\r"].concat();
        assert_eq!(title(&long).unwrap().len(), "http:".len() + MAX_TITLE);
    }

    #[test]
    fn faults_name_the_line() {
        for (line, told) in [
            ("http,v/a/b/c/", "expected a service"),
            ("http,v,x", "expected a service"),
            ("http,v/a///,(", "unclosed"),
            ("http,v/a///,(?=b)", "look-around"),
        ] {
            let text = format!("\n{line}");
            let fault = ServiceSignatures::parse(text.as_bytes())
                .err()
                .unwrap()
                .to_string();
            assert!(
                fault.starts_with("line 2: ") && fault.contains(told),
                "{fault}"
            );
        }
    }
}
