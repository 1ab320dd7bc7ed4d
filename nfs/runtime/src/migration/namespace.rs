//! The network namespace in which state travels between machines: the machine's own, whose addresses other machines reach. The namespace of a function's
//! ports often has nothing else.

use std::{env, ffi::OsStr, fs::File, io, os::fd::AsFd, thread};

use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

/// Names the namespace's file. nfagent sets it for functions that run in a namespace of their own (nfagent/launch/shell.py).
const VARIABLE: &str = "NF_MACHINE_NETNS";

/// Opens a socket in the machine's namespace, or in the function's own if it has none of its own or may not leave it.
pub(super) fn open_in_machine<T: Send>(open: impl Fn() -> io::Result<T> + Sync) -> io::Result<T> {
    match env::var_os(VARIABLE) {
        Some(path) => open_in(&path, &open),
        None => open(),
    }
}

fn open_in<T: Send>(path: &OsStr, open: &(impl Fn() -> io::Result<T> + Sync)) -> io::Result<T> {
    // Only this thread enters it; the socket stays there.
    let inside = || enter(path).map(|()| open());
    let entered = thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".into());
        let joined = thread.spawn_scoped(scope, inside)?.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    });
    match entered {
        Ok(opened) => opened,
        Err(kept_out) => open().map_err(|error| {
            let both = format!(
                "{error}, and the machine's network namespace cannot be entered: {kept_out}"
            );
            io::Error::new(error.kind(), both)
        }),
    }
}

fn enter(path: &OsStr) -> io::Result<()> {
    let file = File::open(path)?;
    Ok(move_into_link_name_space(
        file.as_fd(),
        Some(LinkNameSpaceType::Network),
    )?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_function_that_cannot_leave_its_namespace_uses_its_own() {
        let path = OsStr::new("/nonexistent");
        assert!(open_in(path, &|| TcpListener::bind("127.0.0.1:0")).is_ok());
        let refused = open_in(path, &|| TcpListener::bind("192.0.2.1:0")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
        let said = refused.to_string();
        assert!(said.contains("cannot be entered: No such file"), "{said}");
    }
}
