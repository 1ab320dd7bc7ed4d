//! Ends a test program that hangs: a fault that makes a test wait for ever is a failure like any other.

use std::{
    env,
    io::{stderr, Write},
    process,
    sync::Once,
    thread,
    time::Duration,
};

/// All tests of a program together, on a busy machine.
const LIMIT: Duration = Duration::from_secs(200);
/// One of the random moves, of which there may be many more than every day.
const MOVE: Duration = Duration::from_millis(500);

static STARTED: Once = Once::new();

/// Starts the watch, at the first call.
pub fn watch() {
    STARTED.call_once(|| {
        let moves = env::var("NF_MOVES").map_or(0, |text| text.parse().unwrap());
        let limit = LIMIT + MOVE * moves;
        thread::spawn(move || {
            thread::sleep(limit);
            // Not by eprintln: what tests print is kept until they end.
            let _ = writeln!(stderr(), "some tests have not ended within {limit:?}");
            process::exit(101);
        });
    });
}
