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
    PortStats {
        port_no: a.port_no,
        rx_packets: combine(a.rx_packets, b.rx_packets),
        tx_packets: combine(a.tx_packets, b.tx_packets),
        rx_bytes: combine(a.rx_bytes, b.rx_bytes),
        tx_bytes: combine(a.tx_bytes, b.tx_bytes),
        rx_dropped: combine(a.rx_dropped, b.rx_dropped),
        tx_dropped: combine(a.tx_dropped, b.tx_dropped),
        rx_errors: combine(a.rx_errors, b.rx_errors),
        tx_errors: combine(a.tx_errors, b.tx_errors),
        rx_frame_err: combine(a.rx_frame_err, b.rx_frame_err),
        rx_over_err: combine(a.rx_over_err, b.rx_over_err),
        rx_crc_err: combine(a.rx_crc_err, b.rx_crc_err),
        collisions: combine(a.collisions, b.collisions),
        duration_sec: b.duration_sec,
        duration_nsec: b.duration_nsec,
    }
}
