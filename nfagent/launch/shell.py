"""The shell command that becomes a process of an instance, here and on other machines."""

LOCK_FD = 9
"""The descriptor that locks the process's key. The shell's syntax allows one digit."""

_MACHINE_FD = 6  # not one of `nfagent.launch.commands`, nor the lock's

_BECOME = f'echo "$$ $0" >&{LOCK_FD} && exec "$@"'
_BECOME_AWAY = f"export NF_MACHINE_NETNS=/proc/self/fd/{_MACHINE_FD} && {_BECOME} {_MACHINE_FD}</proc/self/ns/net"


def become_script(enter: tuple[str, ...]) -> str:
    """Return a script that records its id and executes the program, which keeps that id, session and lock.

    A program that enters a slot's namespaces gets the machine's network namespace as an open file, too: state travels
    between machines there (nfs/runtime/src/migration/namespace.rs).

    Args:
        enter: command prefix that enters the slot's namespaces; empty: the program stays in this one.

    Example:
        >>> become_script(())
        'echo "$$ $0" >&9 && exec "$@"'
    """
    return _BECOME_AWAY if enter else _BECOME
