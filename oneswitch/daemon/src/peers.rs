//! Keeps connections up: retries switches and controllers without end, and accepts controllers.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use oneswitch_core::{Bridge, SwitchIndex};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, Instant};
use tracing::{debug, info, warn};

use crate::endpoint::{Active, Passive};
use crate::events::{Dialled, Event, Link, Peer};
use crate::session::{self, Ended, Timing};
use crate::stream::{Accepted, Listener, Stream};
use crate::subscriptions::Subscribed;
use crate::tls::Tls;

/// Limit of a connection attempt, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First pause between two attempts; it doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two attempts at a further connection to a bridge: messages of controllers wait for one for 1 second only.
const PAUSE_BESIDE: Duration = Duration::from_millis(400);
/// A session of at least this length resets the pauses: shorter ones count as failed attempts.
const LASTING: Duration = Duration::from_secs(1);

/// The common context of all connections.
#[derive(Clone)]
pub struct Context {
    pub events: mpsc::UnboundedSender<Event>,
    pub tls: Option<Tls>,
    connections: Arc<AtomicU64>,
}

impl Context {
    pub fn new(events: mpsc::UnboundedSender<Event>, tls: Option<Tls>) -> Self {
        Self {
            events,
            tls,
            connections: Arc::default(),
        }
    }

    /// Returns a number that no connection has had.
    fn number(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn report(&self, dialled: Dialled, link: Link) {
        // Without an engine the program is about to end.
        let _ = self.events.send(Event::Dial { dialled, link });
    }
}

/// Keeps one bridge of a switch connected. `name` is the switch's.
pub async fn dial_switch(
    context: Context,
    target: Active,
    name: String,
    switch: SwitchIndex,
    bridge: Bridge,
) {
    let bridge_name = match bridge {
        Bridge::Virt => "virt",
        Bridge::Edge => "edge",
    };
    let whom = format!("switch {name}, bridge {bridge_name} ({target})");
    let peer = |_: &Stream| Peer::Switch(switch, bridge);
    // A hung switch is as bad as a dead one, even on this machine.
    keep(
        &context,
        &target,
        Dialled::Switch(switch, bridge),
        Timing::SWITCH,
        &whom,
        peer,
    )
    .await;
}

/// Keeps further connections to `virt` and `edge` of a switch for what is told only there, while controllers want it.
pub async fn dial_beside(
    context: Context,
    [target, edge]: [Active; 2],
    name: String,
    switch: SwitchIndex,
    subscribed: Subscribed,
) {
    let whom = |what: &str| format!("switch {name}, bridge virt ({target}): {what} do not come");
    let mut tasks = JoinSet::new();
    tasks.spawn(keep_while(
        context.clone(),
        target.clone(),
        whom("packets that meet no rule"),
        Peer::Misses(switch),
        subscribed.misses,
        |wanted| *wanted,
    ));
    tasks.spawn(keep_while(
        context.clone(),
        target.clone(),
        whom("ages of rules and flags of ports"),
        Peer::Version10(switch),
        subscribed.version10,
        |wanted| *wanted,
    ));
    tasks.spawn(keep_while(
        context.clone(),
        target.clone(),
        format!("switch {name}, bridge virt ({target}): cannot be told the properties of groups"),
        Peer::Properties(switch),
        subscribed.properties,
        |wanted| *wanted,
    ));
    tasks.spawn(keep_while(
        context.clone(),
        edge.clone(),
        format!("switch {name}, bridge edge ({edge}): some counters of ports do not come"),
        Peer::PortCounters(switch),
        subscribed.port_counters,
        |wanted| *wanted,
    ));
    let mut ids = subscribed.ids;
    let mut known = BTreeSet::new();
    // Without an engine the program is about to end.
    while ids.changed().await.is_ok() {
        let wanted = ids.borrow_and_update().clone();
        for id in wanted {
            if known.insert(id) {
                tasks.spawn(keep_while(
                    context.clone(),
                    target.clone(),
                    whom(&format!("packet-ins with id={id}")),
                    Peer::Collector(switch, id),
                    ids.clone(),
                    move |ids| ids.contains(&id),
                ));
            }
        }
    }
}

/// Keeps a connection that the engine closes when it is no longer wanted. `trouble` says what its absence means.
async fn keep_while<T>(
    context: Context,
    target: Active,
    trouble: String,
    peer: Peer,
    mut wanted: watch::Receiver<T>,
    is_wanted: impl Fn(&T) -> bool,
) {
    let peer = |_: &Stream| peer.clone();
    let mut last_error = None;
    while wanted.wait_for(&is_wanted).await.is_ok() {
        let (ended, _) = connect(&context, &target, Timing::NETWORK, &peer).await;
        if ended.established {
            last_error = None;
            continue;
        }
        let reason = Some(ended.reason);
        if reason != last_error {
            warn!(target: "southbound", "{trouble}, retrying: {}", reason.as_deref().unwrap_or_default());
        }
        last_error = reason;
        sleep(PAUSE_BESIDE).await;
    }
}

/// Keeps one configured controller connected.
pub async fn dial_controller(context: Context, target: Active, index: usize) {
    let whom = format!("controller {target}");
    let shown: Arc<str> = target.to_string().into();
    let peer = |stream: &Stream| Peer::Controller {
        target: Arc::clone(&shown),
        dialled: Some(index),
        address: stream.peer(),
    };
    let timing = if matches!(target, Active::Unix(_)) {
        Timing::LOCAL
    } else {
        Timing::NETWORK
    };
    keep(
        &context,
        &target,
        Dialled::Controller(index),
        timing,
        &whom,
        peer,
    )
    .await;
}

async fn keep(
    context: &Context,
    target: &Active,
    dialled: Dialled,
    timing: Timing,
    whom: &str,
    peer: impl Fn(&Stream) -> Peer,
) {
    let mut last_error = None;
    let mut pause = FIRST_PAUSE;
    loop {
        context.report(
            dialled,
            Link::Connecting {
                last_error: last_error.clone(),
            },
        );
        let started = Instant::now();
        let (ended, is_dead) = connect(context, target, timing, &peer).await;
        if ended.established && started.elapsed() >= LASTING {
            pause = FIRST_PAUSE;
        }
        log_end(dialled, whom, &ended, last_error.as_deref());
        let reason = ended.reason.clone();
        context.report(
            dialled,
            match is_dead {
                true => Link::Dead { last_error: reason },
                false => Link::Backoff { last_error: reason },
            },
        );
        last_error = Some(ended.reason);
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Connects once and runs the session; returns how it ended, and whether nothing listens there.
async fn connect(
    context: &Context,
    target: &Active,
    timing: Timing,
    peer: &impl Fn(&Stream) -> Peer,
) -> (Ended, bool) {
    let connecting = Stream::connect(target, context.tls.as_ref());
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => {
            let peer = peer(&stream);
            let session = session::run(stream, context.number(), peer, timing, &context.events);
            (session.await, false)
        }
        Ok(Err(error)) => {
            let is_dead = matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            );
            (failed(error.to_string()), is_dead)
        }
        Err(_) => {
            let seconds = CONNECT_TIMEOUT.as_secs();
            (
                failed(format!("no connection within {seconds} seconds")),
                false,
            )
        }
    }
}

fn failed(reason: String) -> Ended {
    Ended {
        reason,
        established: false,
    }
}

/// Logs a lost connection and the first of equal failures at a higher level than repetitions.
fn log_end(dialled: Dialled, whom: &str, ended: &Ended, last_error: Option<&str>) {
    let reason = &ended.reason;
    let news = ended.established || last_error != Some(reason);
    let what = if ended.established {
        "disconnected"
    } else {
        "cannot connect, retrying"
    };
    match (dialled, news) {
        (Dialled::Switch(..), true) => warn!(target: "southbound", "{whom}: {what}: {reason}"),
        (Dialled::Switch(..), false) => debug!(target: "southbound", "{whom}: {what}: {reason}"),
        (Dialled::Controller(_), true) => warn!(target: "northbound", "{whom}: {what}: {reason}"),
        (Dialled::Controller(_), false) => debug!(target: "northbound", "{whom}: {what}: {reason}"),
    }
}

/// Accepts controllers without end.
pub async fn accept_controllers(context: Context, listener: Listener) {
    let target: Arc<str> = listener.endpoint.to_string().into();
    let timing = if matches!(listener.endpoint, Passive::Unix(_)) {
        Timing::LOCAL
    } else {
        Timing::NETWORK
    };
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                tokio::spawn(serve(
                    context.clone(),
                    accepted,
                    Arc::clone(&target),
                    timing,
                ));
            }
            Err(error) => accept_failed(&target, &error).await,
        }
    }
}

/// Pauses after a failed accept: most likely file descriptors have run out, so retrying at once would fail again.
async fn accept_failed(target: &str, error: &io::Error) {
    warn!(target: "northbound", "{target}: cannot accept a connection: {error}");
    sleep(FIRST_PAUSE).await;
}

async fn serve(context: Context, accepted: Accepted, target: Arc<str>, timing: Timing) {
    let number = context.number();
    let address = accepted.peer();
    let from = if address.is_empty() {
        String::new()
    } else {
        format!(" from {address}")
    };
    let ready = match timeout(CONNECT_TIMEOUT, accepted.ready(context.tls.as_ref())).await {
        Ok(ready) => ready.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "no TLS handshake within {} seconds",
            CONNECT_TIMEOUT.as_secs()
        )),
    };
    let ended = match ready {
        Ok(stream) => {
            let peer = Peer::Controller {
                target: Arc::clone(&target),
                dialled: None,
                address,
            };
            session::run(stream, number, peer, timing, &context.events).await
        }
        Err(reason) => failed(reason),
    };
    let reason = &ended.reason;
    if !ended.established {
        warn!(target: "northbound", "controller {number} on {target}{from} refused: {reason}");
    } else if timing.probe.is_none() {
        // Tools with a single request each connect and disconnect there.
        debug!(target: "northbound", "controller {number} on {target} disconnected: {reason}");
    } else {
        info!(target: "northbound", "controller {number} on {target}{from} disconnected: {reason}");
    }
}
