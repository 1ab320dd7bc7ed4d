//! The search for the end of a head that is still arriving.

use memchr::memchr;

use crate::{Limits, Rejection};

/// Empty lines ignored before a request line; RFC 9112 2.2 asks for at least one.
pub const MAX_EMPTY_LINES: usize = 4;

/// Returns the length of the head at the beginning of `bytes`, including its final empty line; None while that is missing.
///
/// `from` is the number of bytes that earlier calls have searched, so that a head costs O(n) however it is cut. A bare LF ends a line
/// here, as it does for other parsers, although [`parse_request`](crate::parse_request) refuses such a head: its sender gets an answer and does not wait.
pub fn find_end(bytes: &[u8], from: usize) -> Option<usize> {
    let start = empty_lines(bytes);
    // The last line feed may stand up to two bytes before the new ones: "\n" "\r" | "\n".
    let mut at = from.saturating_sub(2).max(start);
    while let Some(distance) = memchr(b'\n', bytes.get(at..)?) {
        at += distance + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Returns the length of the empty lines, at most [`MAX_EMPTY_LINES`], that precede the head.
pub(crate) fn empty_lines(bytes: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..MAX_EMPTY_LINES {
        match bytes[at..] {
            [b'\r', b'\n', ..] => at += 2,
            _ => break,
        }
    }
    at
}

/// Refuses a head whose end is still missing and whose first bytes already break a limit or cannot begin a request.
pub fn check_partial(bytes: &[u8], limits: &Limits) -> Result<(), Rejection> {
    let head = &bytes[empty_lines(bytes)..];
    if let Some(&first) = head.first() {
        if !crate::fields::is_token_byte(first) && head != b"\r" {
            let expected = "a request line that begins with a method";
            return Err(Rejection::new(400, "start of the request", head, expected));
        }
    }
    // The longest method that anything uses has 17 letters, and a version has 8.
    let line = &head[..head.len().min(limits.target_bytes + 32)];
    if line.len() < head.len() && memchr(b'\n', line).is_none() {
        return Err(limits.target_too_long(head));
    }
    if bytes.len() >= limits.head_bytes {
        return Err(limits.head_too_long(head));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn the_end_is_behind_the_first_empty_line() {
        let mut bytes = HEAD.to_vec();
        bytes.extend_from_slice(HEAD);
        assert_eq!(find_end(&bytes, 0), Some(HEAD.len()));
        assert_eq!(find_end(&HEAD[..HEAD.len() - 1], 0), None);
        assert_eq!(find_end(b"", 0), None);
    }

    #[test]
    fn searching_goes_on_where_the_last_call_ended() {
        for (head, length) in [
            (HEAD, HEAD.len()),
            (b"GET / HTTP/1.1\n\n", 16),
            (b"GET / HTTP/1.1\n\r\n", 17),
            (b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", 22),
        ] {
            for cut in 0..length {
                assert_eq!(find_end(&head[..cut], cut.saturating_sub(1)), None);
                assert_eq!(find_end(head, cut), Some(length), "cut at {cut}");
            }
        }
    }

    #[test]
    fn bytes_searched_before_are_not_read_again() {
        // An end that an earlier call must have seen.
        assert_eq!(find_end(b"a\n\nbcdefgh", 6), None);
    }

    /// RFC 9112 2.2.
    #[test]
    fn empty_lines_before_the_request_line_are_ignored_up_to_a_limit() {
        let empty = b"\r\n".repeat(MAX_EMPTY_LINES);
        assert_eq!(find_end(&empty, 0), None);
        assert_eq!(empty_lines(&empty), empty.len());
        let more = b"\r\n".repeat(MAX_EMPTY_LINES + 1);
        let limits = Limits::default();
        assert_eq!(check_partial(&empty, &limits), Ok(()));
        assert_eq!(find_end(&more, 0), None);
        assert_eq!(check_partial(&more, &limits).unwrap_err().status, 400);
    }

    #[test]
    fn a_head_without_end_is_refused_when_it_breaks_a_limit() {
        let limits = Limits {
            head_bytes: 200,
            target_bytes: 50,
            ..Limits::default()
        };
        let status = |bytes: &[u8]| check_partial(bytes, &limits).err().map(|r| r.status);
        assert_eq!(status(b""), None);
        assert_eq!(status(b"\r"), None);
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: "), None);
        assert_eq!(status(&[b'a'; 82]), None);
        assert_eq!(status(&[b'a'; 83]), Some(414));
        let mut long = b"GET / HTTP/1.1\r\n".to_vec();
        long.resize(199, b'a');
        assert_eq!(status(&long), None);
        long.resize(200, b'a');
        assert_eq!(status(&long), Some(431));
        assert_eq!(status(b"\x16\x03\x01\x02"), Some(400), "a TLS handshake");
    }
}
