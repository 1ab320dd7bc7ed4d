//! Counters of ports that stay continuous while interfaces change.

use openflow13::{IntelPortStats, PortStats};

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
    let (mut a, mut b) = (a.clone(), b.clone());
    for (mine, theirs) in counters(&mut a).into_iter().zip(counters(&mut b)) {
        *mine = combine(*mine, *theirs);
    }
    PortStats {
        duration_sec: b.duration_sec,
        duration_nsec: b.duration_nsec,
        intel: match b.intel {
            Some(theirs) => Some(Box::new(combine_intel(a.intel, *theirs, combine))),
            None => a.intel,
        },
        ..a
    }
}

/// Combines the counters that only OpenFlow 1.4 has; those that only the first port has come last.
fn combine_intel(
    a: Option<Box<IntelPortStats>>,
    mut b: IntelPortStats,
    combine: fn(u64, u64) -> u64,
) -> IntelPortStats {
    let mut a = a.map(|a| *a).unwrap_or_default();
    for (theirs, mine) in b.rfc2819.iter_mut().zip(a.rfc2819) {
        *theirs = combine(mine, *theirs);
    }
    for (name, theirs) in &mut b.custom {
        let at = a.custom.iter().position(|(mine, _)| mine == name);
        let mine = at.map_or(0, |at| a.custom.remove(at).1);
        *theirs = combine(mine, *theirs);
    }
    b.custom.append(&mut a.custom);
    b
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
