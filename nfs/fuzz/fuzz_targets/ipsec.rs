//! Feeds arbitrary bytes to the IPsec gateway: as frames, and as what an authentic peer protects.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nf_ipsec::{Cipher, Config, Ipsec, Numbers};
use nf_runtime::testing::{Harness, Output};

const SPI: u32 = 0x2001;
const MATERIAL: [u8; 20] = [7; 20];

fn config() -> Config {
    let secret = |byte: &str| byte.repeat(20);
    let config = serde_json::json!({
        "interfaces": [{"addresses": ["10.1.0.1/24", "192.0.2.1/24", "fd01::1/64"]}],
        "neighbours": [{"address": "10.1.0.5", "mac": "02:aa:00:00:00:05"}, {"address": "192.0.2.2", "mac": "02:aa:00:00:00:05"}],
        "tunnels": [{
            "name": "t", "local": "192.0.2.1", "remote": "192.0.2.2",
            "selectors": [{"local": "10.1.0.0/24", "remote": "10.2.0.0/24"}, {"local": "fd01::/64", "remote": "::/0"}],
            "outbound": [{"spi": 0x1001, "secret": secret("08")}],
            "inbound": [{"spi": SPI, "secret": secret("07")}],
        }],
        "keys": 4,
    });
    serde_json::from_value(config).unwrap()
}

/// Returns the frame of an ESP packet whose opened content is `body`.
fn sealed(body: &[u8], sequence: u32) -> Vec<u8> {
    let cipher = Cipher::new(&MATERIAL).unwrap();
    let numbers = Numbers { spi: SPI, sequence: sequence.into(), extended: false };
    let iv = u64::from(sequence).to_be_bytes();
    let mut body = body[..body.len() / 4 * 4].to_vec();
    let tag = cipher.seal(numbers, iv, &mut body).unwrap();
    let esp = [&SPI.to_be_bytes()[..], &sequence.to_be_bytes(), &iv, &body, &tag].concat();
    let mut frame = vec![2, 0, 0, 0, 0, 0, 2, 0xaa, 0, 0, 0, 5, 8, 0];
    frame.extend([0; 20]);
    frame.extend(&esp);
    nf_packet::Ipv4::write(&mut frame[14..], [192, 0, 2, 2].into(), [192, 0, 2, 1].into(), 50, esp.len()).unwrap();
    frame
}

fuzz_target!(|bytes: &[u8]| {
    let mut gateway = Harness::<Ipsec>::new(config()).unwrap().with_ports(1);
    let mut rest = bytes;
    let mut frames = Vec::new();
    // Frames of random lengths, one after the other, in batches.
    while let Some(([kind, length], after)) = rest.split_first_chunk() {
        let (frame, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        frames.push(match kind % 2 {
            0 => (false, frame.to_vec()),
            _ => (true, sealed(frame, frames.len() as u32 + 1)),
        });
    }
    let arriving: Vec<(usize, &[u8])> = frames.iter().map(|(_, frame)| (0, &frame[..])).collect();
    for ((is_authentic, _), output) in frames.iter().zip(gateway.process_all(&arriving)) {
        if let (true, Output::Sent(_, opened)) = (is_authentic, output) {
            // Only whole packets of the tunnel's selectors come out.
            match nf_packet::dissect(&opened) {
                Ok(nf_packet::Outcome::Ip(headers)) => assert_eq!(headers.end as usize, opened.len()),
                other => panic!("{other:?}"),
            }
        }
    }
});
