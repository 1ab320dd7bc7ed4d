//! Starts everything in the right order and stops it.

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use oneswitch_core::{Bridge, Core, Restored};
use tokio::runtime::Builder;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::api;
use crate::config::Config;
use crate::engine::{Engine, Report, Writers};
use crate::events::Event;
use crate::journal::{self, Journal};
use crate::log::Levels;
use crate::offload;
use crate::peers::{accept_controllers, dial_beside, dial_controller, dial_switch, Context};
use crate::state::{self, Saver, StateFile};
use crate::stream::Listener;
use crate::tls::Tls;

/// How long controllers wait after a start for missing switches, whose ports have no addresses yet.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same time if there was a journal: switches that are in sync have its rules.
const PATIENCE_AFTER_RESTART: Duration = Duration::from_secs(2);

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// The reason why it could not start.
pub fn run(config: &Config, levels: &Levels) -> Result<(), String> {
    // One thread: messages cross it without locks or wake-ups of another thread.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(serve(config, levels))
}

async fn serve(config: &Config, levels: &Levels) -> Result<(), String> {
    let started = Instant::now();
    let mut core = build_core(config, started)?;
    let restored = match &config.journal {
        Some(path) => journal::restore(path, &mut core, started)?,
        None => None,
    };
    let tls = config.tls.as_ref().map(Tls::load).transpose()?;
    let mut signals = Signals::new().map_err(|error| format!("signals: {error}"))?;
    let mut listeners = Vec::new();
    for endpoint in &config.listen {
        listeners.push(Listener::bind(endpoint).await?);
    }
    let (events, queue) = mpsc::unbounded_channel();
    let writers = match &config.offload {
        Some(path) => Some(offload::Server::bind(path, events.clone())?),
        None => None,
    };
    // Last of the sockets: clients that wait for the API find the others open.
    let api = api::Server::bind(config, levels.clone(), events.clone()).await?;
    let listen: Vec<_> = listeners
        .iter()
        .map(|listener| listener.endpoint.to_string())
        .collect();
    announce(config, &listen, &api.endpoint.to_string());
    let journal = begin_journal(config, &mut core, restored.as_ref())?;
    core.set_audit(config.audit, Instant::now());
    let report = Report::new(config, listen, api.endpoint.to_string(), started);

    let (saver, saving) = match StateFile::new(config).map(Saver::new) {
        Some((saver, task)) => (Some(saver), Some(tokio::spawn(task))),
        None => (None, None),
    };
    let switches = config.switches.iter();
    let controls = switches.map(|switch| switch.control.clone()).collect();
    let (in_step, all_in_step) = watch::channel(false);
    let engine = Engine::new(core, report, saver)
        .with_journal(journal)
        .with_writers(Writers::new(controls, events.clone()))
        .telling(in_step);
    let subscribed = engine.subscribed();
    let mut engine = tokio::spawn(engine.run(queue));
    let context = Context::new(events.clone(), tls);
    let patience = match restored {
        Some(_) => PATIENCE_AFTER_RESTART,
        None => PATIENCE,
    };
    let mut tasks = tokio::task::JoinSet::new();
    for (index, switch) in config.switches.iter().enumerate() {
        for (bridge, target) in [(Bridge::Virt, &switch.virt), (Bridge::Edge, &switch.edge)] {
            tasks.spawn(dial_switch(
                context.clone(),
                target.clone(),
                switch.name.clone(),
                index,
                bridge,
            ));
        }
        tasks.spawn(dial_beside(
            context.clone(),
            [switch.virt.clone(), switch.edge.clone()],
            switch.name.clone(),
            index,
            subscribed.clone(),
        ));
    }
    for (index, target) in config.controllers.iter().enumerate() {
        let dialling = dial_controller(context.clone(), target.clone(), index);
        tasks.spawn(after(all_in_step.clone(), patience, dialling));
    }
    for listener in listeners {
        let accepting = accept_controllers(context.clone(), listener);
        tasks.spawn(after(all_in_step.clone(), patience, accepting));
    }
    tasks.spawn(api.run());
    if let Some(writers) = writers {
        tasks.spawn(writers.run());
    }

    let result = tokio::select! {
        signal = signals.wait() => {
            info!(target: "config", "{signal}: ending");
            // The engine ends by itself only on an internal error; then this send fails and the next line reports it.
            let _ = events.send(Event::Stop);
            (&mut engine).await
        }
        broken = &mut engine => broken,
    };
    // Without the engine the saver ends once everything is saved.
    if let Some(saving) = saving {
        let _ = saving.await;
    }
    // Drops the listeners and removes their files.
    tasks.shutdown().await;
    result.map_err(|error| format!("the engine failed: {error}"))
}

/// Builds the core with the ports of the configuration and the state file.
///
/// # Errors
/// The contradiction.
pub fn build_core(config: &Config, now: Instant) -> Result<Core, String> {
    let ports = state::ports(config)?;
    Core::new(config.core(ports), now).map_err(|error| format!("{}: {error}", config.file))
}

/// Starts the journal of this process, and logs the content of the last one.
fn begin_journal(
    config: &Config,
    core: &mut Core,
    restored: Option<&Restored>,
) -> Result<Option<Journal>, String> {
    let Some(path) = &config.journal else {
        return Ok(None);
    };
    if let Some(restored) = restored {
        journal::announce(path, restored);
    }
    Journal::begin(path, core, Instant::now()).map(Some)
}

/// Admits controllers: when all switches are in sync, or after a time limit.
async fn after(
    mut in_step: watch::Receiver<bool>,
    patience: Duration,
    controllers: impl Future<Output = ()>,
) {
    // Neither the time limit nor the end of the engine is an error here.
    let _ = timeout(patience, in_step.wait_for(|all| *all)).await;
    controllers.await;
}

fn announce(config: &Config, listen: &[String], api: &str) {
    let listening = if listen.is_empty() {
        "nowhere".to_owned()
    } else {
        listen.join(" ")
    };
    let switches: Vec<_> = config
        .switches
        .iter()
        .map(|switch| format!("{} ({}, {})", switch.name, switch.virt, switch.edge))
        .collect();
    info!(
        target: "config",
        "oneswitchd {} is switch {:016x}: listens on {listening}, API on {api}, waits for {}",
        env!("CARGO_PKG_VERSION"),
        config.datapath_id,
        switches.join(", ")
    );
    if config.listen.is_empty() && config.controllers.is_empty() {
        warn!(target: "config", "neither listen nor controllers is set in {}: no controller can reach this switch", config.file);
    }
}

/// The signals that end the daemon, and the one that does not.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Installed so that it does not kill: a daemon outlives its terminal.
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => {}
            }
        }
    }
}
