//! What the program says when a person starts it; also without nDPI.

#![allow(clippy::unwrap_used)] // tests

use std::process::Command;

#[test]
fn it_tells_its_version_and_refuses_other_arguments() {
    let run = |argument: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nf-dpi"));
        command.arg(argument).output().unwrap()
    };
    for option in ["--version", "-V"] {
        let output = run(option);
        assert!(output.status.success(), "{output:?}");
        let version = format!("nf-dpi {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), version);
    }
    let output = run("--nonsense");
    assert_eq!(output.status.code(), Some(2));
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("unexpected argument --nonsense"), "{why}");
}
