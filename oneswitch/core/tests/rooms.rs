//! No room of the core uses a room above it (docs/architecture.md, "Rooms of `oneswitch/core`").

#[path = "../../../tools/rooms.rs"]
#[allow(clippy::unwrap_used, dead_code)]
mod rooms;

use std::path::Path;

#[test]
fn rooms_use_only_the_rooms_below_them() {
    let table = [
        ("api", ""),
        ("switch_set", "api"),
        ("outbox", "api"),
        ("wire", ""),
        ("model", "api"),
        ("offload", "api switch_set"),
        ("server", "api switch_set model offload"),
        ("layout", "api switch_set model offload server"),
        ("journal", "api wire model offload server layout"),
        (
            "switches",
            "api switch_set outbox wire model offload server layout journal",
        ),
        (
            "controllers",
            "api switch_set outbox wire model offload server layout switches",
        ),
        ("expiry", "api switch_set wire model server layout switches"),
        (
            "moves",
            "api switch_set model server layout switches journal",
        ),
        (
            "core",
            "api switch_set wire model offload server layout switches controllers expiry moves journal",
        ),
    ];
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    rooms::check_rooms(&src, &table);
}
