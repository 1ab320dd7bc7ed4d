//! Prints the lines of capture files, each file with a register of its own: `lines CHECKS MEMORY SIGNATURES FILE...`, CHECKS `prads` or `all`,
//! MEMORY `clean` or, with the leftovers of earlier frames behind each as libpcap has them, `used`.

#![allow(clippy::unwrap_used)] // an example for benchmarks

use std::{fs::File, io::BufReader, io::Write, path::Path};

use nf_arena::ArenaBuilder;
use nf_assets::{Capacity, Captured, Check, Checks, Connections, Inspector, Register, Signatures};
use nf_runtime::state::StateBuilder;
use pcap_file::pcap::PcapReader;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut checks = Checks::prads();
    if arguments.next().unwrap() == "all" {
        // PRADS prints an address of its memory in lines of ICMP.
        checks.extend([Check::Ack, Check::UdpSystem, Check::Arp]);
    }
    let is_used = arguments.next().unwrap() == "used";
    let signatures = Signatures::load(Path::new(&arguments.next().unwrap())).unwrap();
    for path in arguments {
        let mut out = Vec::new();
        let mut reader = PcapReader::new(BufReader::new(File::open(&path).unwrap())).unwrap();
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
        let mut memory = vec![0; if is_used { 262_144 } else { 0 }];
        while let Some(Ok(packet)) = reader.next_raw_packet() {
            let (bytes, length) = (&*packet.data, packet.orig_len as usize);
            // libpcap has times with a sign.
            let time = i64::from(packet.ts_sec as i32) as u64;
            let captured = if is_used {
                memory[..bytes.len()].copy_from_slice(bytes);
                Captured::in_memory(&memory, bytes.len(), length, time)
            } else {
                Captured::new(bytes, length, time)
            };
            inspector.inspect(&captured, 1, &mut out);
        }
        println!("# {path}");
        std::io::stdout().write_all(&out).unwrap();
    }
}
