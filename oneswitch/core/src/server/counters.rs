//! Counters of ports that stay continuous while interfaces change.

use openflow13::PortStats;

/// All ones: this counter is not kept (OpenFlow 1.3.5, 7.3.5.6).
const UNSUPPORTED: u64 = u64::MAX;

/// Adds `base` and an interface's counter, modulo 2^64: a base of all ones is -1. An unsupported counter adds nothing.
pub fn plus(base: u64, counted: u64) -> u64 {
    match counted {
        UNSUPPORTED => base,
        counted => base.wrapping_add(counted),
    }
}

/// Subtracts, as [`plus`] adds.
pub fn minus(base: u64, counted: u64) -> u64 {
    match counted {
        UNSUPPORTED => base,
        counted => base.wrapping_sub(counted),
    }
}

/// Adds as [`plus`], for a controller: a counter that the interface does not support stays unsupported.
pub fn shown(base: u64, counted: u64) -> u64 {
    match counted {
        UNSUPPORTED => UNSUPPORTED,
        counted => base.wrapping_add(counted),
    }
}

/// Combines two ports' counters field by field with [`plus`], [`minus`] or [`shown`].
pub fn combine_ports(a: &PortStats, b: &PortStats, combine: fn(u64, u64) -> u64) -> PortStats {
    let (mut a, mut b) = (*a, *b);
    for (mine, theirs) in counters(&mut a).into_iter().zip(counters(&mut b)) {
        *mine = combine(*mine, *theirs);
    }
    PortStats {
        duration_sec: b.duration_sec,
        duration_nsec: b.duration_nsec,
        ..a
    }
}

/// In the order of `ofp_port_stats`.
pub fn counters(stats: &mut PortStats) -> [&mut u64; 12] {
    [
        &mut stats.rx_packets,
        &mut stats.tx_packets,
        &mut stats.rx_bytes,
        &mut stats.tx_bytes,
        &mut stats.rx_dropped,
        &mut stats.tx_dropped,
        &mut stats.rx_errors,
        &mut stats.tx_errors,
        &mut stats.rx_frame_err,
        &mut stats.rx_over_err,
        &mut stats.rx_crc_err,
        &mut stats.collisions,
    ]
}
