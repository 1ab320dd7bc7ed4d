//! `nf run`: runs an instance on network interfaces until it is stopped.

use std::{net::IpAddr, path::Path, sync::Arc, thread};

use nf_ports::{claim, open, Choice, Claim, Matching, Port, PortError, Wanted};
use nf_runtime::{
    control::{serve, Verbs},
    inherited_arena,
    migration::{orphans, Migration},
    Instance, NetworkFunction, Options, Prepared,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{config, failure::Failure, table::Chosen};

/// The arguments of the command line.
pub(crate) struct Running<'a> {
    pub(crate) config: &'a Path,
    pub(crate) ports: Vec<&'a str>,
    pub(crate) backend: Choice,
    pub(crate) workers: usize,
    pub(crate) control: Option<&'a Path>,
    pub(crate) hold: bool,
    pub(crate) arena: Option<u32>,
    pub(crate) rings: Option<u32>,
    pub(crate) table: Option<Chosen>,
}

pub(crate) fn run<N: NetworkFunction>(running: &Running<'_>) -> Result<(), Failure> {
    if let Some(table) = &running.table {
        table.fits(N::KIND, running.ports.len(), N::OFFLOADED_PORTS)?;
    }
    let config: N::Config = config::load(running.config)?;
    let own = N::own_addresses(&config);
    let arena = running.arena.map(inherited_arena).transpose()?;
    // Before the ports: a wrong configuration leaves the interfaces as they are.
    let prepared = Prepared::<N>::new(config, running.ports.len(), arena)?;
    let backlog = match running.rings {
        Some(number) => Some(orphans(inherited_arena(number)?)?),
        None => None,
    };
    let mut signals = Signals::new([SIGTERM, SIGINT])
        .map_err(|error| Failure::new(format!("cannot wait for signals: {error}")))?;
    let _claims = claim_ports(running, N::KIND)?;
    let mut ports = open_ports(running, N::LARGE_FRAMES, &own)?;
    let table = running.table.clone();
    let table = table
        .map(|table| table.into_table(&mut ports))
        .transpose()?;
    let names = running.ports.join(", ");
    let instance = Instance::start(
        Options {
            ports,
            hold: running.hold,
            backlog,
        },
        prepared,
    )?;
    if let Some(table) = table {
        instance.offload_to(table)?;
    }
    let stopped = Arc::clone(&instance);
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            stop(&stopped);
        }
        // A second signal ends the process at once.
        signals.forever().next();
        std::process::exit(1);
    });
    let server = match running.control {
        Some(path) => {
            let mut verbs = Verbs::of(&instance);
            Migration::of(&instance).add_to(&mut verbs);
            Some(serve(path, verbs).inspect_err(|_| stop(&instance))?)
        }
        None => None,
    };
    let holding = if running.hold {
        ", holding arriving packets"
    } else {
        ""
    };
    eprintln!(
        "nf: {} runs on {names}, {} worker(s){holding}",
        N::KIND,
        running.workers
    );
    let ended = instance.wait();
    drop(server);
    ended.map_err(Failure::from)
}

/// Claims each interface for this instance. A holding instance may share it with the instance whose state it will get, which still sends;
/// it takes the claim over when that one ends.
fn claim_ports(running: &Running<'_>, kind: &str) -> Result<Vec<Claim>, Failure> {
    let control = running.control.and_then(Path::file_name);
    let holder = match control {
        Some(name) => format!("{kind}, {}", name.to_string_lossy()),
        None => kind.to_owned(),
    };
    let mut each = running.ports.iter().enumerate();
    if let Some((_, name)) = each.find(|(index, name)| running.ports[..*index].contains(name)) {
        return Err(Failure::new(format!(
            "--port {name}: given twice; each port needs its own interface"
        )));
    }
    let mut claims = Vec::new();
    for name in &running.ports {
        if running.hold {
            let (name, holder) = ((*name).to_owned(), holder.clone());
            thread::spawn(move || claim_when_free(&name, &holder));
        } else {
            claims.push(claim(name, &holder)?);
        }
    }
    Ok(claims)
}

/// Keeps the claim until the process ends.
fn claim_when_free(name: &str, holder: &str) {
    loop {
        match claim(name, holder) {
            Ok(claim) => {
                std::mem::forget(claim);
                return;
            }
            Err(PortError::Unfit { .. }) => {}
            // The interface no longer exists.
            Err(_) => return,
        }
    }
}

fn open_ports(running: &Running<'_>, large: bool, own: &[IpAddr]) -> Result<Vec<Port>, Failure> {
    let wanted = Wanted {
        choice: running.backend,
        queues: running.workers,
        large,
        own,
        matching: running
            .table
            .as_ref()
            .map_or(Matching::None, Chosen::matching),
    };
    let each = running.ports.iter().enumerate();
    each.map(|(index, name)| {
        let port = open(name, index, wanted)?;
        eprintln!("nf: {name}: {}, {}", port.backend, port.how);
        port.notes
            .iter()
            .for_each(|note| eprintln!("nf: note: {note}"));
        Ok(port)
    })
    .collect()
}

fn stop<N: NetworkFunction>(instance: &Arc<Instance<N>>) {
    if let Err(refusal) = instance.stop_workers() {
        eprintln!("nf: while stopping: {refusal}");
    }
    instance.finish();
}
