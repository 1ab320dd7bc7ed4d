//! System calls on sockets with plain structures.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use libc::{c_int, c_ulong, socklen_t};

/// Kernel structures: `repr(C)`, and any bytes are a valid value, including zeros.
///
/// # Safety
/// Implement it only for such types.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}

/// Returns a value of all zeros.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: the trait's contract.
    unsafe { std::mem::zeroed() }
}

pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(crate) fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let descriptor = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: it is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(crate) fn set_option<T: Plain>(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as socklen_t;
    let pointer = std::ptr::from_ref(value).cast();
    // SAFETY: `pointer` is valid for `length` bytes, which the kernel only reads.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, length) }).map(drop)
}

pub(crate) fn get_option<T: Plain>(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
) -> io::Result<T> {
    let mut value: T = zeroed();
    let mut length = size_of::<T>() as socklen_t;
    let pointer = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `pointer` is valid for `length` bytes, and the kernel writes no more than that; the rest is zero, and any bytes are a T.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, pointer, &mut length) })?;
    Ok(value)
}

pub(crate) fn bind<T: Plain>(socket: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let length = size_of::<T>() as socklen_t;
    let pointer = std::ptr::from_ref(address).cast();
    // SAFETY: `pointer` is valid for `length` bytes, which the kernel only reads.
    check(unsafe { libc::bind(socket.as_raw_fd(), pointer, length) }).map(drop)
}

/// Calls an ioctl whose argument is a structure without pointers.
pub(crate) fn ioctl<T: Plain>(
    socket: BorrowedFd<'_>,
    request: c_ulong,
    argument: &mut T,
) -> io::Result<()> {
    let pointer = std::ptr::from_mut(argument);
    // SAFETY: callers pair each request with the structure defined for it, and the kernel stays within that structure.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, pointer) }).map(drop)
}
