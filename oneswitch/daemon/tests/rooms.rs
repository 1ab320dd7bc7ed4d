//! No rooms of the daemon use each other in a circle; no files of the daemon and of the codec do.

#[path = "../../../tools/rooms.rs"]
#[allow(clippy::unwrap_used, dead_code)]
mod rooms;

use std::path::Path;

#[test]
fn neither_rooms_nor_files_use_each_other_in_a_circle() {
    for (folder, depth) in [
        ("src", 1),
        ("src", usize::MAX),
        ("../openflow/src", usize::MAX),
    ] {
        rooms::check_circles(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), depth);
    }
}
