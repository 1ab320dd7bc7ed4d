//! Signatures of DHCP clients: the options of their messages, in order.

use super::fault::{trimmed, Fault};

/// The traits of a DHCP client's implementation in its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The kind of message (option 53): 1: DISCOVER, 3: REQUEST, 8: INFORM.
    pub kind: u8,
    /// All options in order, with the end's 255.
    pub options: Vec<u8>,
    /// The options that the client requests (option 55), in order.
    pub requested: Vec<u8>,
    /// The vendor class (option 60).
    pub class: Option<Vec<u8>>,
}

/// A signature, and the system that it stands for.
struct Signature {
    message: Message,
    system: Vec<u8>,
    detail: Vec<u8>,
}

/// The signatures of a file.
pub struct DhcpSignatures(Vec<Signature>);

impl DhcpSignatures {
    /// # Errors
    /// If a line is not a signature.
    pub fn parse(text: &[u8]) -> Result<Self, Fault> {
        let mut all = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = trimmed(line);
            if !line.is_empty() && line[0] != b'#' {
                all.push(Signature::parse(line).map_err(|reason| Fault::at(number, line, reason))?);
            }
        }
        Ok(Self(all))
    }

    /// Returns the system and its details of the first signature that a message matches.
    #[must_use]
    pub fn find(&self, message: &Message) -> Option<(&[u8], &[u8])> {
        let found = self.0.iter().find(|signature| signature.matches(message))?;
        Some((&found.system, &found.detail))
    }
}

impl Signature {
    /// Parses `kind:ttl:options:requested:class:system:detail`.
    fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let mut fields = line.splitn(8, |byte| *byte == b':');
        let mut field = |reason| {
            fields
                .next()
                .filter(|field| !field.is_empty())
                .ok_or(reason)
        };
        let kind = number(field("expected a message type first")?)?;
        let _ttl = number(field("expected a TTL after the message type")?)?;
        let options = numbers(field("expected the numbers of options after the TTL")?)?;
        let requested = numbers(field("expected the requested options after the options")?)?;
        let class = field("expected a vendor class, or a period, after the requested options")?;
        let system = field("expected the name of a system after the vendor class")?;
        let detail = field("expected details of the system after its name")?;
        Ok(Self {
            message: Message {
                kind,
                options,
                requested,
                class: Some(class.to_vec()),
            },
            system: system.to_vec(),
            detail: detail.to_vec(),
        })
    }

    /// A message without a class matches whatever the signature's class is.
    fn matches(&self, message: &Message) -> bool {
        let wanted = &self.message;
        (wanted.kind, &wanted.options, &wanted.requested)
            == (message.kind, &message.options, &message.requested)
            && (message.class.is_none() || message.class == wanted.class)
    }
}

fn number(text: &[u8]) -> Result<u8, &'static str> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or("expected numbers from 0 to 255")
}

/// Parses `1,3,6`; a period stands for none.
fn numbers(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let text = text.strip_prefix(b".").unwrap_or(text);
    let parts = text.split(|byte| !byte.is_ascii_digit());
    parts.filter(|part| !part.is_empty()).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_their_order_and_the_class_decide() {
        let file =
            b"# c\n1:128:53,61,255:1,15,3:MSFT 5.0:Windows:XP\n1:64:53,61,255:1,15,3:.:Linux:any\n";
        let signatures = DhcpSignatures::parse(file).unwrap();
        let message = Message {
            kind: 1,
            options: vec![53, 61, 255],
            requested: vec![1, 15, 3],
            class: Some(b"MSFT 5.0".to_vec()),
        };
        let system = |message: &Message| signatures.find(message).map(|found| found.0);
        assert_eq!(system(&message), Some(&b"Windows"[..]));
        let with = |change: fn(&mut Message)| {
            let mut other = message.clone();
            change(&mut other);
            other
        };
        assert_eq!(
            system(&with(|message| message.class = None)),
            Some(&b"Windows"[..])
        );
        assert_eq!(
            system(&with(|message| message.class = Some(b"x".to_vec()))),
            None
        );
        assert_eq!(system(&with(|message| message.kind = 3)), None);
        assert_eq!(system(&with(|message| message.options.reverse())), None);
        assert_eq!(system(&with(|message| message.requested.reverse())), None);
    }

    #[test]
    fn faults_name_the_line() {
        for line in ["x:1:1:1:.:a:b", "1:1:1,999:1:.:a:b", "1:1:1:1:.:a"] {
            let fault = DhcpSignatures::parse(line.as_bytes())
                .err()
                .unwrap()
                .to_string();
            assert!(
                fault.starts_with("line 1: ") && fault.contains("expected"),
                "{fault}"
            );
        }
    }
}
