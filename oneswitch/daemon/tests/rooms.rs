//! No rooms of the daemon use each other in a circle.

#[path = "../../../tools/rooms.rs"]
#[allow(clippy::unwrap_used, dead_code)]
mod rooms;

use std::path::Path;

#[test]
fn rooms_do_not_use_each_other_in_a_circle() {
    rooms::check_circles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), 1);
}
