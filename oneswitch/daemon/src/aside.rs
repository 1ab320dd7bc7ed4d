//! Dropping what takes long to drop, while the engine goes on.

use std::thread;

/// Drops `item` on a thread of its own, because the engine answers nobody meanwhile; without a thread it is dropped here.
pub fn drop_aside<T: Send + 'static>(what: &str, item: T) {
    // What cannot be handed to a thread is dropped with the closure.
    let _ = thread::Builder::new()
        .name(what.into())
        .spawn(move || drop(item));
}
