//! The network function.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    time::{Duration, Instant},
};

use nf_offload::Table;
use nf_runtime::{
    state::StateBuilder, Batch, Context, CounterSink, Emitted, NetworkFunction, Packet, Refusal,
    Waker,
};
use serde_json::Value;

use crate::{
    config::Config,
    desk::Desk,
    hits::Hits,
    inspection::Inspection,
    live::Live,
    offload::{Carried, Deciding, Offload, Surroundings},
    pass::Pass,
    report,
    state::{word, State},
};

/// The longest real time that a replay of a capture file waits for the inspector.
const PATIENCE: Duration = Duration::from_secs(5);
/// Ticks in which all slots are looked at for flows that have ended.
const TICKS: u64 = 1000;

/// The firewall.
pub struct Firewall<I> {
    state: Arc<State>,
    inner: Mutex<Inner<I>>,
    waker: Arc<Mutex<Waker>>,
    offload: Offload,
    /// The number of ports, once a table is in use.
    ports: AtomicUsize,
}

/// The parts that a new configuration changes, and those that only the worker uses.
struct Inner<I> {
    live: Live,
    desk: Desk<I>,
    hits: Hits,
    carried: Carried,
}

impl<I: Inspection> NetworkFunction for Firewall<I> {
    const KIND: &'static str = "firewall";
    const SUMMARY: &'static str =
        "a stateful firewall with rules on zones, addresses, ports and applications (nDPI)";
    // The inspector learns from the order of packets of all flows.
    const ONE_WORKER: bool = true;
    const OFFLOADED_PORTS: usize = 2;
    const SCHEMA: u32 = 1;
    type Config = Config;

    fn fits(config: &Config, ports: usize) -> Result<(), Refusal> {
        for (name, zone) in &config.zones {
            if let Some(port) = zone.ports.iter().find(|port| **port >= ports) {
                let reason = format!("port {port}; the instance has {ports}, counted from 0");
                return Err(Refusal::configuration(
                    &format!("zones.{name}.ports"),
                    reason,
                ));
            }
        }
        Ok(())
    }

    fn create(config: Config, state: &mut StateBuilder) -> Result<Self, Refusal> {
        let waker = Arc::new(Mutex::new(Waker::default()));
        let inspector = needs_inspector(&config)
            .then(|| start::<I>(&config, &waker))
            .transpose()?;
        let catalogue = inspector.as_ref().map(I::catalogue).unwrap_or_default();
        let mut hits = Hits::default();
        hits.open(config.log.as_deref(), config.log_bytes)?;
        let live = Live::new(config, catalogue)?;
        let declared = Arc::new(State::declare(&live.config, state)?);
        let offload = Offload::declare(live.config.flows, state)?;
        let torn = Arc::clone(&declared);
        state.on_repair(move || torn.repair());
        Ok(Self {
            state: declared,
            inner: Mutex::new(Inner {
                live,
                desk: Desk::new(inspector),
                hits,
                carried: Carried::default(),
            }),
            waker,
            offload,
            ports: AtomicUsize::new(1),
        })
    }

    fn process(&self, batch: &mut Batch, context: &Context<'_>) {
        let mut inner = self.inner();
        let (packets, emitted) = batch.parts();
        if !context.is_patient() {
            return self.decide(&mut inner, packets, emitted, context);
        }
        // Time stands still until the inspector has answered.
        for index in 0..packets.len() {
            self.decide(&mut inner, &mut packets[index..=index], emitted, context);
            let until = Instant::now() + PATIENCE;
            while inner.desk.is_inspecting() && Instant::now() < until {
                std::thread::sleep(Duration::from_micros(20));
                self.decide(&mut inner, &mut [], emitted, context);
            }
        }
    }

    fn configure(&self, config: Config) -> Result<(), Refusal> {
        let mut inner = self.inner();
        allows(&inner.live.config, &config)?;
        // The packets of a batch do not wait for a program that starts.
        let is_missing = needs_inspector(&config) && inner.desk.inspector.is_none();
        let started = if is_missing {
            drop(inner);
            let started = start::<I>(&config, &self.waker)?;
            inner = self.inner();
            Some(started)
        } else {
            None
        };
        let catalogue = started
            .as_ref()
            .or(inner.desk.inspector.as_ref())
            .map(I::catalogue);
        let mut live = Live::new(config, catalogue.unwrap_or_default())?;
        drop(inner);
        // Locked until the new rules are in force: no connection gets a rule of the switch by the old ones.
        let mut desk = self.offload.desk();
        desk.withdraw(&self.around(), &live)?;
        let mut inner = self.inner();
        inner
            .hits
            .open(live.config.log.as_deref(), live.config.log_bytes)?;
        self.offload.assign(&self.state, &mut live, &inner.carried);
        self.note_rules(&live);
        inner.live = live;
        if started.is_some() {
            inner.desk.inspector = started;
        }
        Ok(())
    }

    fn resumed(&self, context: &Context<'_>) {
        let mut desk = self.offload.desk();
        let mut inner = self.inner();
        let inner = &mut *inner;
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = context.waker();
        self.offload
            .resume(&mut desk, &mut inner.carried, context.now());
        self.offload
            .assign(&self.state, &mut inner.live, &inner.carried);
        self.note_rules(&inner.live);
        inner
            .desk
            .begin(&self.state, context.now(), inner.live.wait);
    }

    fn wants_tick(&self) -> bool {
        self.inner().desk.is_busy() || self.state.flows.len() > 0
    }

    fn offload(&self, context: &Context<'_>, table: &mut dyn Table) {
        let policy = self.inner().live.config.offload.clone();
        self.ports.store(context.ports(), Ordering::Relaxed);
        let now = Duration::from_nanos(context.now());
        let mut desk = self.offload.desk();
        desk.turn(now, &self.around(), &policy, table);
    }

    fn leave_table(&self) {
        self.offload.desk().leave();
        self.inner().carried.rest();
    }

    fn offloaded(&self) -> Value {
        let desk = self.offload.desk();
        match desk.is_used() {
            true => desk.status(self.ports.load(Ordering::Relaxed)),
            false => Value::Null,
        }
    }

    fn tick(&self, context: &Context<'_>, out: &mut Batch) {
        let mut inner = self.inner();
        let Inner {
            live,
            desk,
            hits,
            carried,
        } = &mut *inner;
        let (_, emitted) = out.parts();
        carried.age(context.now());
        let mut pass = Pass::new(&self.state, live, (desk, hits, carried), context, emitted);
        pass.attend();
        pass.expire(u64::from(self.state.flows.fresh()) / TICKS + 1);
        pass.end();
    }

    fn counters(&self, _: &Context<'_>, out: &mut CounterSink) {
        let inner = self.inner();
        let flows = &self.state.flows;
        out.gauge("flows", &[], flows.len() as f64);
        out.gauge("flows_room", &[], flows.capacity() as f64);
        out.gauge("flows_unanswered", &[], flows.unanswered() as f64);
        out.counter("flows_replaced", &[], self.state.word(word::FLOWS_REPLACED));
        let live = &inner.live;
        let rules = live
            .rules
            .rules
            .iter()
            .map(|rule| rule.name.as_str())
            .enumerate();
        let rules = rules.map(|(index, name)| (Some(index), name));
        for (rule, name) in rules.chain([(None, "default")]) {
            let row = self.state.rows.get(live.row(rule));
            let [packets, bytes] = self.offload.carried(live.row(rule));
            let label = [("rule", name)];
            out.counter("rule_packets", &label, row.packets + packets);
            out.counter("rule_bytes", &label, row.bytes + bytes);
            out.counter("rule_connections", &label, row.connections);
            out.counter("rule_above_rate", &label, row.above_rate);
            out.counter("rule_undecided", &label, row.undecided);
        }
        let (free, all) = self.state.prefixes.room();
        out.gauge("prefix_bytes_free", &[], free as f64);
        out.gauge("prefix_bytes", &[], all as f64);
        out.counter(
            "prefixes_forgotten",
            &[],
            self.state.word(word::PREFIXES_FORGOTTEN),
        );
        out.counter("verdicts", &[], self.state.word(word::VERDICTS));
        out.counter("verdicts_late", &[], self.state.word(word::LATE_VERDICTS));
        out.counter("inspector_restarts", &[], inner.desk.restarts);
        out.counter("lines", &[], inner.hits.written);
        out.counter("lines_not_logged", &[], inner.hits.lost);
        drop(inner);
        let desk = self.offload.desk();
        if desk.is_used() {
            let (flows, totals) = desk.report();
            out.offload(flows, &totals);
        }
    }

    fn control(&self, verb: &str, arguments: &Value) -> Option<Result<Value, Refusal>> {
        let inner = self.inner();
        match verb {
            "rules" => Some(Ok(report::rules(&self.state, &inner.live, &self.offload))),
            "flows" => Some(
                report::parsed(arguments)
                    .map(|wanted| report::flows(&self.state, &inner.live, &wanted)),
            ),
            _ => None,
        }
    }
}

impl<I: Inspection> Firewall<I> {
    fn inner(&self) -> MutexGuard<'_, Inner<I>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn around(&self) -> Around<'_, I> {
        Around(self)
    }

    fn decide(
        &self,
        inner: &mut Inner<I>,
        packets: &mut [Packet],
        emitted: &mut Emitted,
        context: &Context<'_>,
    ) {
        let Inner {
            live,
            desk,
            hits,
            carried,
        } = inner;
        let is_busy = desk.is_busy();
        let mut pass = Pass::new(&self.state, live, (desk, hits, carried), context, emitted);
        if is_busy {
            pass.attend();
        }
        pass.batch(packets);
    }

    /// Begins a new generation if the rules differ from those that decided the flows.
    fn note_rules(&self, live: &Live) {
        let digest = live.digest();
        if self.state.word(word::DIGEST) != digest {
            self.state.count(word::GENERATION);
            self.state.put_word(word::DIGEST, digest);
        }
    }
}

/// The firewall, as its desk for the offload sees it.
struct Around<'a, I>(&'a Firewall<I>);

impl<I: Inspection> Surroundings for Around<'_, I> {
    fn look<T>(&self, step: impl FnOnce(&Deciding<'_>, &mut Carried) -> T) -> T {
        let mut inner = self.0.inner();
        let Inner { live, carried, .. } = &mut *inner;
        let deciding = Deciding {
            state: &self.0.state,
            live,
            ports: self.0.ports.load(Ordering::Relaxed),
        };
        step(&deciding, carried)
    }
}

/// Tells whether a configuration has conditions on applications.
fn needs_inspector(config: &Config) -> bool {
    config.rules.iter().any(|rule| {
        let names = [&rule.applications, &rule.categories, &rule.hosts, &rule.ja3];
        names.iter().any(|names| !names.is_empty())
    })
}

fn start<I: Inspection>(config: &Config, waker: &Arc<Mutex<Waker>>) -> Result<I, Refusal> {
    let waker = Arc::clone(waker);
    let wake = move || waker.lock().unwrap_or_else(PoisonError::into_inner).wake();
    I::start(&config.inspection, wake).map_err(|reason| {
        Refusal::configuration(
            "inspection.helper",
            format!("rules depend on applications, but {reason}"),
        )
    })
}

/// Refuses changes of what the state's shape or the inspector depends on.
fn allows(old: &Config, new: &Config) -> Result<(), Refusal> {
    let fixed = |config: &Config| {
        [
            ("flows", config.flows),
            ("inspection.memory_mib", config.inspection.memory_mib),
        ]
    };
    for ((name, old), (_, new)) in fixed(old).into_iter().zip(fixed(new)) {
        if old != new {
            let reason =
                format!("is {old} and cannot change while the instance runs; start a new one");
            return Err(Refusal::configuration(name, reason));
        }
    }
    if old.inspection.helper != new.inspection.helper {
        let reason = "cannot change while the instance runs; start a new one";
        return Err(Refusal::configuration("inspection.helper", reason));
    }
    Ok(())
}
