//! Ends a test program that hangs, so that a test that waits forever counts as a failure.

use std::{
    env,
    io::{stderr, Write},
    process,
    sync::Once,
    thread,
    time::Duration,
};

/// The limit for all tests of a program, on a busy machine.
const LIMIT: Duration = Duration::from_secs(200);
/// The additional time for a random move, of which a long run has many.
const MOVE: Duration = Duration::from_millis(500);

static STARTED: Once = Once::new();

/// Starts the watchdog on the first call.
pub fn watch() {
    STARTED.call_once(|| {
        let moves = env::var("NF_MOVES").map_or(0, |text| text.parse().unwrap());
        let limit = LIMIT + MOVE * moves;
        thread::spawn(move || {
            thread::sleep(limit);
            // Not by eprintln, whose output is captured until the test ends.
            let _ = writeln!(stderr(), "some tests have not ended within {limit:?}");
            process::exit(101);
        });
    });
}
