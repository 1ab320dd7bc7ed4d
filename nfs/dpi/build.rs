//! Compiles `ndpi.c` against nDPI's headers, and links the program with nDPI. Without them the program is built all the same, and says when it is started that
//! it has no nDPI: everything else must build on any machine.

use std::{env, path::Path};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(ndpi)");
    println!("cargo::rerun-if-changed=src/bin/nf-dpi/ndpi.c");
    println!("cargo::rerun-if-env-changed=NDPI_INCLUDE");
    let chosen = env::var("NDPI_INCLUDE").ok();
    let include = chosen.clone().unwrap_or_else(|| "/usr/include/ndpi".into());
    let header = Path::new(&include).join("ndpi_api.h");
    if header.exists() {
        println!("cargo::rerun-if-changed={}", header.display());
    } else {
        // The directory, not the header: cargo takes a missing file for a changed one, and would rebuild each time.
        if chosen.is_none() {
            println!("cargo::rerun-if-changed=/usr/include");
        }
        println!("cargo::warning=nf-dpi is built without nDPI, because {} is missing; on Debian: apt-get install libndpi-dev", header.display());
        return;
    }
    let compiled = cc::Build::new()
        .file("src/bin/nf-dpi/ndpi.c")
        .include(&include)
        .warnings_into_errors(false)
        .cargo_metadata(false)
        .try_compile("nf_ndpi");
    if let Err(error) = compiled {
        println!("cargo::warning=nf-dpi is built without nDPI, because its headers in {include} are not those of nDPI 4.2: {error}");
        return;
    }
    println!("cargo::rustc-cfg=ndpi");
    // Links the program only: users of the library stay free of C code.
    let folder = env::var("OUT_DIR").unwrap_or_default();
    println!("cargo::rustc-link-arg-bin=nf-dpi={folder}/libnf_ndpi.a");
    println!("cargo::rustc-link-arg-bin=nf-dpi=-lndpi");
}
