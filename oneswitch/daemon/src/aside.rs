//! Drops large values on another thread, while the engine continues.

use std::thread;

/// Drops `item` on its own thread, because the engine could not answer meanwhile; without a thread, drops it here.
pub fn drop_aside<T: Send + 'static>(what: &str, item: T) {
    // If the thread cannot start, the closure drops it.
    let _ = thread::Builder::new()
        .name(what.into())
        .spawn(move || drop(item));
}
