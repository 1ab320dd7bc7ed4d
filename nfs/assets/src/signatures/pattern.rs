//! Expressions in the language of PCRE, as expressions of the crate `regex` that match the same bytes.

/// A construct that has no equivalent.
#[derive(Debug, PartialEq, Eq)]
pub struct Untranslatable(pub String);

/// Translates an expression without flags. The languages differ in few points that files of signatures use.
///
/// # Errors
/// If it needs a backtracking matcher: look-around and references to groups.
pub fn translated(pattern: &[u8]) -> Result<String, Untranslatable> {
    let mut out = String::new();
    let mut rest = pattern;
    let mut in_class = false;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (*byte, in_class) {
            (b'\\', _) => {
                let Some((escaped, after)) = rest.split_first() else {
                    return Err(Untranslatable("it ends with a backslash".into()));
                };
                rest = after;
                escape(*escaped, in_class, &mut out)?;
            }
            (b'[', false) => {
                in_class = true;
                out.push('[');
                if let Some(after) = rest.strip_prefix(b"^") {
                    out.push('^');
                    rest = after;
                }
                // A bracket here is a member of the class.
                if let Some(after) = rest.strip_prefix(b"]") {
                    out.push_str(r"\]");
                    rest = after;
                }
            }
            (b'[', true) if named_class(rest).is_some() => {
                let (name, after) = rest.split_at(named_class(rest).unwrap_or(0));
                out.push('[');
                out.extend(name.iter().copied().map(char::from));
                rest = after;
            }
            // `regex` has classes in classes, and operators on them.
            (b'[' | b'&' | b'~', true) => {
                out.push('\\');
                out.push(char::from(*byte));
            }
            (b']', true) => {
                in_class = false;
                out.push(']');
            }
            (b'(', false) if rest.starts_with(b"?") && !rest.starts_with(b"?:") => {
                return Err(Untranslatable(
                    "look-around and other groups that start with (? are not supported".into(),
                ));
            }
            // The end, or before a line break at the end.
            (b'$', false) => out.push_str(r"(?:\n?\z)"),
            (byte @ 0x20..=0x7e, _) => out.push(char::from(byte)),
            (byte, _) => out.push_str(&format!(r"\x{byte:02x}")),
        }
    }
    Ok(out)
}

/// Returns the length of the rest of a named class, such as `:digit:]`.
fn named_class(rest: &[u8]) -> Option<usize> {
    let name = rest.strip_prefix(b":")?;
    let length = name
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase() || **byte == b'^');
    let length = length.count();
    name[length..].starts_with(b":]").then_some(length + 3)
}

/// Translates the character after a backslash.
fn escape(byte: u8, in_class: bool, out: &mut String) -> Result<(), Untranslatable> {
    match byte {
        b'1'..=b'9' if !in_class => {
            let what = format!(
                "references to groups, such as \\{}, are not supported",
                char::from(byte)
            );
            return Err(Untranslatable(what));
        }
        b'Z' => out.push_str(r"(?:\n?\z)"),
        byte if byte.is_ascii() => {
            out.push('\\');
            out.push(char::from(byte));
        }
        byte => out.push_str(&format!(r"\x{byte:02x}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use regex::bytes::RegexBuilder;

    use super::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        let pattern = translated(pattern).unwrap();
        let expression = RegexBuilder::new(&pattern)
            .unicode(false)
            .octal(true)
            .build();
        expression.unwrap().is_match(text)
    }

    #[test]
    fn classes_have_the_members_that_they_have_in_pcre() {
        assert!(matches(b"^[[&&~-]+$", b"[&~-"));
        assert!(!matches(b"^[[&&~-]+$", b"]"));
        assert!(matches(b"^[]a]+$", b"]a"));
        assert!(matches(b"^[^]a]+$", b"[b"));
        assert!(matches(b"^[[:digit:]x]+$", b"1x"));
        assert!(!matches(b"^[[:digit:]x]+$", b":d"));
        assert!(matches(b"^[\\S|\\s]+$", b" |x\n"));
        assert!(matches(b"[\\x02-\\xFF]...\\x84", b"\xfe\0\0\0\x84"));
    }

    #[test]
    fn the_end_may_be_before_a_line_break() {
        assert!(matches(b"a$", b"a\n") && matches(b"a$", b"a") && !matches(b"a$", b"a\nb"));
    }

    #[test]
    fn bytes_and_octal_numbers_stand_for_themselves() {
        assert!(matches(b"\\0\\0J\\x02", b"\0\0J\x02"));
        assert!(matches(b"\xff.", b"\xff\xfe"));
        assert!(!matches(b"a.b", b"a\nb"));
        assert!(matches(b"\\[SMTPD]: \\}\\=", b"[SMTPD]: }="));
    }

    #[test]
    fn what_needs_backtracking_is_refused() {
        for pattern in [&b"(?=a)"[..], b"(?i)a", b"(a)\\1", b"a\\"] {
            assert!(translated(pattern).is_err());
        }
    }
}
