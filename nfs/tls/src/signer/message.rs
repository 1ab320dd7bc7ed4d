//! The messages that a server signs in a handshake. A signer that signed others would lend its key to any purpose.

/// The start of the message of a server's CertificateVerify (RFC 8446, 4.4.3).
const VERIFY_PADDING: [u8; 64] = [0x20; 64];
const VERIFY_CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify\0";
/// Both random numbers at the start of the message of a ServerKeyExchange (RFC 8422, 5.4).
const RANDOMS: usize = 64;
const NAMED_CURVE: u8 = 3;

/// Tells whether a server of TLS 1.2 or 1.3 signs such a message in a handshake.
pub fn is_handshake(message: &[u8]) -> bool {
    is_certificate_verify(message) || is_key_exchange(message)
}

fn is_certificate_verify(message: &[u8]) -> bool {
    let hash = message
        .strip_prefix(&VERIFY_PADDING[..])
        .and_then(|rest| rest.strip_prefix(VERIFY_CONTEXT));
    hash.is_some_and(|hash| matches!(hash.len(), 32 | 48))
}

fn is_key_exchange(message: &[u8]) -> bool {
    match message.get(RANDOMS..) {
        Some([NAMED_CURVE, _, _, length, point @ ..]) => {
            !point.is_empty() && point.len() == usize::from(*length)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(context: &[u8], hash: usize) -> Vec<u8> {
        [&VERIFY_PADDING[..], context, &vec![7; hash]].concat()
    }

    #[test]
    fn only_messages_of_servers_are_signed() {
        assert!(is_handshake(&verify(VERIFY_CONTEXT, 32)));
        assert!(is_handshake(&verify(VERIFY_CONTEXT, 48)));
        assert!(!is_handshake(&verify(VERIFY_CONTEXT, 33)));
        let client = b"TLS 1.3, client CertificateVerify\0";
        assert!(!is_handshake(&verify(client, 32)));

        let exchange = |length: u8, point: usize| {
            let curve = [NAMED_CURVE, 0, 29, length];
            [&[9; RANDOMS][..], &curve, &vec![4; point]].concat()
        };
        assert!(is_handshake(&exchange(32, 32)));
        assert!(!is_handshake(&exchange(32, 33)));
        assert!(!is_handshake(&exchange(0, 0)));
        assert!(!is_handshake(b"a certificate to be signed"));
        assert!(!is_handshake(b""));
    }
}
