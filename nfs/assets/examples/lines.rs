//! Prints the lines of capture files, each file with a register of its own: `lines CHECKS MEMORY SIGNATURES FILE...`, CHECKS `prads` or `all`,
//! MEMORY `clean` or, with the leftovers of earlier frames behind each as libpcap has them, `used`. The last line is JSON:
//! packets, and nanoseconds of CPU for looking at them.

#![allow(clippy::unwrap_used)] // an example for benchmarks

use std::{fs::File, io::BufReader, io::Write, path::Path};

use nf_arena::ArenaBuilder;
use nf_assets::{Capacity, Captured, Check, Checks, Connections, Inspector, Register, Signatures};
use nf_runtime::state::StateBuilder;
use pcap_file::pcap::PcapReader;
use rustix::time::{clock_gettime, ClockId};

fn cpu() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut checks = Checks::prads();
    if arguments.next().unwrap() == "all" {
        checks.extend([Check::Ack, Check::UdpSystem, Check::IcmpSystem, Check::Arp]);
    }
    let is_used = arguments.next().unwrap() == "used";
    let signatures = Signatures::load(Path::new(&arguments.next().unwrap())).unwrap();
    let (mut packets, mut busy) = (0, 0);
    for path in arguments {
        let mut out = Vec::new();
        let mut reader = PcapReader::new(BufReader::new(File::open(&path).unwrap())).unwrap();
        let mut frames = Vec::new();
        while let Some(Ok(packet)) = reader.next_raw_packet() {
            // libpcap has times with a sign.
            let time = i64::from(packet.ts_sec as i32) as u64;
            frames.push((packet.data.into_owned(), packet.orig_len as usize, time));
        }
        let arena = ArenaBuilder::fresh("assets", 1).unwrap();
        let mut state = StateBuilder::new(arena);
        let capacity = Capacity {
            hosts: 65536,
            findings: 65536,
        };
        let register = Register::declare(capacity, &mut state).unwrap();
        let connections = Connections::declare(65536, &mut state).unwrap();
        let _kept = state.finish().unwrap();
        let inspector = Inspector {
            signatures: &signatures,
            checks: Checks::of(&checks),
            register: &register,
            connections: &connections,
        };
        let start = cpu();
        let mut memory = vec![0; 262_144];
        for (bytes, length, time) in &frames {
            let captured = if is_used {
                memory[..bytes.len()].copy_from_slice(bytes);
                Captured::in_memory(&memory, bytes.len(), *length, *time)
            } else {
                Captured::new(bytes, *length, *time)
            };
            inspector.inspect(&captured, 1, &mut out);
        }
        busy += cpu() - start;
        packets += frames.len();
        println!("# {path}");
        std::io::stdout().write_all(&out).unwrap();
    }
    println!("{{\"packets\": {packets}, \"cpu_ns\": {busy}}}");
}
