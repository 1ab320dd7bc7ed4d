//! Prints the codec's time for a typical flow-mod: `cargo run --release -p
//! openflow13 --example speed`.

use std::hint::black_box;
use std::time::Instant;

use openflow13::*;

const ROUNDS: u32 = 2_000_000;

fn measure<T>(what: &str, mut work: impl FnMut() -> T) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(work());
    }
    let nanoseconds = start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS);
    println!("{what:<40} {nanoseconds:>6.0} ns");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // in_port, eth_type = IPv4, ipv4_dst = 10.0.0.0/24, ip_proto, tcp_dst
    let mut oxm = Match::any().with_in_port(3).as_oxm().to_vec();
    oxm.extend([0x80, 0, 10, 2, 8, 0]);
    oxm.extend([0x80, 0, 25, 8, 10, 0, 0, 0, 255, 255, 255, 0]);
    oxm.extend([0x80, 0, 20, 1, 6]);
    oxm.extend([0x80, 0, 28, 2, 0, 80]);
    let matching = Match::checked(&oxm)?;
    let instructions = Instructions::apply(&ActionList::new().set_vlan_vid(7).output(5, 0));
    let flow_mod = FlowMod {
        cookie: 1,
        instructions,
        ..FlowMod::new(FlowModCommand::Add, 0, 100, matching.clone())
    };
    let message = Message::FlowMod(flow_mod);
    let frame = encode(1, &message)?;
    let key = matching.canonical()?;
    let general = Match::any().with_in_port(3).canonical()?;
    println!("flow-mod of {} bytes", frame.len());
    measure("decode", || decode(black_box(&frame)));
    measure("canonical match", || black_box(&matching).canonical());
    measure("encode", || encode(1, black_box(&message)));
    measure("covers", || black_box(&general).covers(black_box(&key)));
    Ok(())
}
