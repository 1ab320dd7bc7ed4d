//! No rooms of the daemon use each other in a circle, and no files do.

#[path = "../../../tools/rooms.rs"]
#[allow(clippy::unwrap_used, dead_code)]
mod rooms;

use std::path::Path;

#[test]
fn neither_rooms_nor_files_use_each_other_in_a_circle() {
    for depth in [1, usize::MAX] {
        rooms::check_circles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), depth);
    }
}
