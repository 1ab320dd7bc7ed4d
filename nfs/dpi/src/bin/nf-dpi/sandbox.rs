//! The rights of the program: to compute, and to talk with its owner through open descriptors. nDPI parses packets of strangers; an attacker
//! who takes the program over must find nothing.

use std::io;

use rustix::{
    process::{
        set_dumpable_behavior, set_parent_process_death_signal, setrlimit, DumpableBehavior,
        Resource, Rlimit, Signal,
    },
    thread::{set_capabilities, set_no_new_privs, CapabilitySet, CapabilitySets},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Has the kernel end this process when the thread that started it ends.
pub(crate) fn die_with_owner() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot follow the owner's end: {error}"))
}

/// Gives up everything that nDPI does not need: files, network, other programs, privileges. Call it after the set-up of nDPI.
pub(crate) fn confine(memory: u64) -> Result<(), String> {
    let failed =
        |what: &'static str| move |error: rustix::io::Errno| format!("cannot {what}: {error}");
    // Both are /dev/null then. The messages of nDPI have no reader, and a pipe would fill up.
    rustix::stdio::dup2_stderr(io::stdout()).map_err(failed("close the standard error"))?;
    // No core file: it would hold packets.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("protect its memory"))?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Nproc, 0)?;
    limit(Resource::As, memory)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )
    .map_err(failed("drop privileges"))?;
    set_no_new_privs(true).map_err(failed("refuse privileges"))?;
    let made = |error| format!("cannot make the filter of system calls: {error}");
    // Where filters disagree, the kernel takes the stricter one.
    for filter in [no_files().map_err(made)?, filter().map_err(made)?] {
        seccompiler::apply_filter(&filter)
            .map_err(|error| format!("cannot set the filter of system calls: {error}"))?;
    }
    Ok(())
}

fn limit(resource: Resource, most: u64) -> Result<(), String> {
    let most = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(resource, most).map_err(|error| format!("cannot limit {resource:?}: {error}"))
}

/// Allows what the loop, the allocator and the end need, and memory that cannot be executed. Calls for files are among it, because `no_files` refuses them.
/// Any other call ends the process (SIGSYS).
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let always = [
        // The loop: bells, the socket.
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_ppoll,
        libc::SYS_sendmsg,
        // The allocator.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        // Locks and clocks of the C library, if the vDSO has none.
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_getrandom,
        // The end.
        libc::SYS_exit_group,
        libc::SYS_exit,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigaction,
        libc::SYS_sigaltstack,
        libc::SYS_close,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_tgkill,
    ];
    let mut rules = without_conditions(&always);
    rules.extend(without_conditions(&FILES));
    #[cfg(target_arch = "x86_64")]
    rules.extend(without_conditions(&[libc::SYS_poll, libc::SYS_time]));
    let execute = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
    let condition = SeccompCondition::new(2, SeccompCmpArgLen::Dword, execute, 0)?;
    let plain = SeccompRule::new(vec![condition])?;
    rules.extend([libc::SYS_mmap, libc::SYS_mprotect].map(|call| (call, vec![plain.clone()])));
    compile(rules, SeccompAction::KillProcess, SeccompAction::Allow)
}

/// Refuses files with an error: libraries look for some that they can do without, such as the time zone's.
fn no_files() -> Result<BpfProgram, seccompiler::BackendError> {
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    compile(without_conditions(&FILES), SeccompAction::Allow, refuse)
}

const FILES: [i64; 4] = [
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_faccessat,
    libc::SYS_readlinkat,
];

type Rules = Vec<(i64, Vec<SeccompRule>)>;

fn without_conditions(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn compile(
    rules: Rules,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules.into_iter().collect(), others, these, architecture)?.try_into()
}
