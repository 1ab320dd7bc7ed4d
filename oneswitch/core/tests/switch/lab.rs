//! A core over fake switches, and controllers that read what it sends.

use crate::build::{executor_request, move_request};
use crate::fake::FakeBridge;
use crate::verdicts::cookies;
use oneswitch_core::{
    Bridge, ControllerId, Core, CoreConfig, Destination, Greeting, JournalError, LinkConfig,
    LinkKind, MoveUntil, PortConfig, Restored, SharedState, SwitchConfig, HOME,
};
use openflow13::{decode, encode, Header, Message, Port};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Virtual ports that every switch has patch ports for.
pub const PATCHES: u32 = 9;
pub const PATCH: u32 = 100;
pub const MULTICAST_PATCH: u32 = 99;
pub const PCIE: u32 = 50;
/// The time on the wall when a lab starts.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);
pub const GRACE: Duration = Duration::from_millis(500);

pub struct Fake {
    pub virt: FakeBridge,
    pub edge: FakeBridge,
}

pub struct Lab {
    pub core: Core,
    pub switches: Vec<Fake>,
    pub now: Instant,
    /// The unread messages of each controller.
    inboxes: BTreeMap<u64, Vec<Vec<u8>>>,
    pub disconnects: usize,
    /// The messages that switches got on connections of OpenFlow 1.5.
    pub properties: Vec<(usize, Vec<u8>)>,
    /// Messages over OpenFlow 1.0 to switches.
    pub version10: Vec<(usize, Vec<u8>)>,
    /// Whether they answer there.
    pub answers_newer: bool,
    newer: Vec<(usize, Vec<u8>)>,
    /// Questions about ports to `edge` over OpenFlow 1.4 that are not answered yet.
    pub asked_newer: Vec<(usize, Vec<u8>)>,
    /// The type of each sNIC's link.
    pub links: Vec<LinkKind>,
    shared_state: SharedState,
    /// As the daemon keeps it.
    pub journal: Vec<u8>,
    /// Whether it saves the port map, too, in every round.
    pub saves_ports: bool,
    start: Instant,
}

pub type Answer = (Header, Message);

pub fn switch_name(index: usize) -> String {
    match index {
        0 => "hypervisor".into(),
        n => format!("snic{}", n - 1),
    }
}

/// As requests name it; `None`: the home.
pub fn executor_name(executor: Option<usize>) -> String {
    executor.map_or(HOME.into(), switch_name)
}

pub fn port(number: u32, name: &str) -> Port {
    Port {
        number,
        hw_addr: [2, 0, 0, 0, (number >> 8) as u8, number as u8],
        name: Port::name_bytes(name),
        ..Port::default()
    }
}

fn fake(index: usize, count: usize) -> Fake {
    let (mut virt, mut edge) = (FakeBridge::default(), FakeBridge::default());
    let put = |bridge: &mut FakeBridge, number, name: String| {
        bridge.ports.insert(number, port(number, &name));
    };
    for n in 1..=PATCHES {
        put(&mut virt, n, format!("virt-{n}"));
        put(&mut edge, PATCH + n, format!("edge-{n}"));
        put(&mut edge, n, format!("if{n}"));
    }
    put(&mut virt, 0xfe00, "virt-mc".into());
    put(&mut edge, MULTICAST_PATCH, "edge-mc".into());
    if index == 0 {
        (1..count).for_each(|n| put(&mut edge, PCIE + n as u32, format!("pcie-snic{}", n - 1)));
    } else {
        put(&mut edge, PCIE, "pf0hpf".into());
    }
    Fake { virt, edge }
}

fn config(links: &[LinkKind], shared_state: SharedState, ports: Vec<PortConfig>) -> CoreConfig {
    let link = |index: usize| LinkConfig {
        hypervisor: format!("pcie-snic{}", index - 1),
        local: "pf0hpf".into(),
        kind: links[index - 1],
    };
    let switch = |index: usize| SwitchConfig {
        name: switch_name(index),
        link: (index > 0).then(|| link(index)),
    };
    CoreConfig {
        datapath_id: 0xa1,
        executor: HOME.into(),
        shared_state,
        switches: (0..=links.len()).map(switch).collect(),
        ports,
    }
}

impl Lab {
    /// `homes`: the switch of virtual ports 1, 2, ...; port N is on interface ifN. Everything is connected, controller 1 too.
    pub fn new(switches: usize, homes: &[usize]) -> Self {
        let mut lab = Self::dark(switches, homes);
        lab.begin();
        lab
    }

    /// As [`Self::new`], with an sNIC at each of these links.
    pub fn over(links: &[LinkKind], homes: &[usize]) -> Self {
        let mut lab = Self::dark_with(SharedState::Refuse, links, homes);
        lab.begin();
        lab
    }

    /// Connects everything, controller 1 too.
    fn begin(&mut self) {
        (0..self.switches.len()).for_each(|s| self.connect(s));
        self.controller_up(1);
        self.run();
        self.take(1);
    }

    /// Nothing is connected yet.
    pub fn dark(switches: usize, homes: &[usize]) -> Self {
        let links = vec![LinkKind::Probed; switches - 1];
        Self::dark_with(SharedState::Refuse, &links, homes)
    }

    /// As [`Self::new`], where ports are gathered for state that they share.
    pub fn gathering(switches: usize, homes: &[usize], at: Option<usize>) -> Self {
        Self::gathering_with(switches, homes, at, false)
    }

    /// `meters`: for meters, too.
    pub fn gathering_with(
        switches: usize,
        homes: &[usize],
        at: Option<usize>,
        meters: bool,
    ) -> Self {
        let at = at.map(switch_name);
        let shared_state = SharedState::Gather { at, meters };
        let links = vec![LinkKind::Probed; switches - 1];
        let mut lab = Self::dark_with(shared_state, &links, homes);
        lab.begin();
        lab
    }

    fn dark_with(shared_state: SharedState, links: &[LinkKind], homes: &[usize]) -> Self {
        let switches = links.len() + 1;
        let ports = (1..).zip(homes).map(|(number, home)| PortConfig {
            number,
            name: format!("p{number}"),
            switch: switch_name(*home),
            interface: format!("if{number}"),
            executor: None,
            gathered_from: None,
            owner: None,
        });
        let config = config(links, shared_state.clone(), ports.collect());
        let now = Instant::now();
        let mut core = Core::new(config, now).unwrap();
        core.keep_journal(now, EPOCH);
        let journal = core.snapshot();
        Self {
            core,
            links: links.to_vec(),
            shared_state,
            journal,
            saves_ports: true,
            start: now,
            switches: (0..switches).map(|s| fake(s, switches)).collect(),
            now,
            inboxes: BTreeMap::new(),
            disconnects: 0,
            properties: Vec::new(),
            version10: Vec::new(),
            answers_newer: false,
            newer: Vec::new(),
            asked_newer: Vec::new(),
        }
    }

    pub fn bridge(&mut self, switch: usize, bridge: Bridge) -> &mut FakeBridge {
        let fake = &mut self.switches[switch];
        match bridge {
            Bridge::Virt => &mut fake.virt,
            Bridge::Edge => &mut fake.edge,
        }
    }

    pub fn virt(&mut self, switch: usize) -> &mut FakeBridge {
        self.bridge(switch, Bridge::Virt)
    }

    pub fn edge(&mut self, switch: usize) -> &mut FakeBridge {
        self.bridge(switch, Bridge::Edge)
    }

    /// Returns the cookies of the rules on each switch.
    pub fn cookies(&self) -> Vec<Vec<u64>> {
        self.switches.iter().map(|s| cookies(&s.virt)).collect()
    }

    pub fn connect(&mut self, switch: usize) {
        for bridge in [Bridge::Virt, Bridge::Edge] {
            self.connect_bridge(switch, bridge);
        }
    }

    pub fn connect_bridge(&mut self, switch: usize, bridge: Bridge) {
        self.bridge(switch, bridge).connected = true;
        self.core.switch_up(switch, bridge, self.now);
    }

    pub fn disconnect(&mut self, switch: usize) {
        for bridge in [Bridge::Virt, Bridge::Edge] {
            self.disconnect_bridge(switch, bridge);
        }
    }

    pub fn disconnect_bridge(&mut self, switch: usize, bridge: Bridge) {
        let fake = self.bridge(switch, bridge);
        fake.connected = false;
        fake.input.clear();
        fake.output.clear();
        self.core.switch_down(switch, bridge, self.now);
    }

    pub fn controller_up(&mut self, id: u64) {
        self.controller_of_version(id, Greeting::CONTROLLER.version);
    }

    pub fn controller_of_version(&mut self, id: u64, version: u8) {
        self.inboxes.insert(id, Vec::new());
        let greeting = Greeting {
            version,
            ..Greeting::CONTROLLER
        };
        self.core
            .controller_up(ControllerId(id), greeting, self.now);
    }

    pub fn controller_down(&mut self, id: u64) {
        self.inboxes.remove(&id);
        self.core.controller_down(ControllerId(id), self.now);
    }

    /// Gives a controller's message to the core; nothing is delivered yet.
    pub fn send(&mut self, id: u64, xid: u32, message: &Message) {
        let frame = encode(xid, message).unwrap();
        self.send_raw(id, &frame);
    }

    pub fn send_raw(&mut self, id: u64, frame: &[u8]) {
        self.core
            .controller_message(ControllerId(id), frame, self.now);
    }

    /// One controller message and everything that follows; what the controller got.
    pub fn ask(&mut self, xid: u32, message: &Message) -> Vec<Answer> {
        self.send(1, xid, message);
        self.run();
        self.take(1)
    }

    /// One round of the core; whether something moved.
    pub fn round(&mut self) -> bool {
        let mut moved = self.flush();
        for (switch, frame) in std::mem::take(&mut self.newer) {
            moved = true;
            self.core.properties_told(switch, &frame, self.now);
        }
        for switch in 0..self.switches.len() {
            for bridge in [Bridge::Virt, Bridge::Edge] {
                let fake = self.bridge(switch, bridge);
                if !fake.slow {
                    fake.work();
                }
                for frame in std::mem::take(&mut fake.output) {
                    moved = true;
                    self.core.switch_message(switch, bridge, &frame, self.now);
                }
            }
        }
        moved
    }

    /// Ends the core's round and carries what it wrote to where it belongs.
    pub fn flush(&mut self) -> bool {
        self.core.keep_journal(self.now, self.wall());
        self.core.end_of_batch(self.now);
        if self.saves_ports {
            self.core.ports_are_saved(self.core.ports_revision());
        }
        self.journal.extend(self.core.take_journal());
        let outputs = self.core.take_outputs();
        let moved = !outputs.is_empty();
        for (to, bytes) in outputs {
            for frame in frames(&bytes) {
                match to {
                    Destination::Controller(id) => self
                        .inboxes
                        .get_mut(&id.0)
                        .expect("a controller that is there")
                        .push(frame),
                    Destination::Version10(switch) => self.version10.push((switch, frame)),
                    Destination::Properties(switch) => {
                        if self.answers_newer {
                            self.answer_newer(switch, &frame);
                        }
                        self.properties.push((switch, frame));
                    }
                    Destination::PortCounters(switch) => self.asked_newer.push((switch, frame)),
                    Destination::Switch(switch, bridge) => {
                        let fake = self.bridge(switch, bridge);
                        assert!(fake.connected, "sent to a switch that is down");
                        fake.input.push_back(frame);
                    }
                }
            }
        }
        assert_eq!(self.core.take_switch_disconnects(), []);
        self.disconnects += self.core.take_disconnects().len();
        moved
    }

    /// Connects to every switch over OpenFlow 1.5.
    pub fn link_newer(&mut self) {
        self.answers_newer = true;
        for switch in 0..self.switches.len() {
            self.core.properties_up(switch, self.now);
        }
    }

    fn answer_newer(&mut self, switch: usize, frame: &[u8]) {
        use openflow13::openflow15::{decode, encode, Request};
        use openflow13::{openflow10, openflow14};
        let frame = match decode(frame, openflow13::AsyncMasks::NONE) {
            Ok(Request::Describe(frame, _)) => frame,
            Ok(Request::Shared(openflow14::Request::Frame(frame))) => frame,
            other => panic!("{other:?}"),
        };
        let virt = &mut self.switches[switch].virt;
        let others = std::mem::take(&mut virt.output);
        virt.handle(&frame);
        for reply in std::mem::replace(&mut virt.output, others) {
            let form = openflow10::StatsForm::Standard;
            let frames = match openflow13::decode(&reply).unwrap() {
                (header, Message::Error(error)) => {
                    let offending = [openflow13::openflow15::VERSION];
                    vec![openflow13::encode_error(
                        header.xid,
                        error.error,
                        &offending,
                    )]
                }
                _ => encode(&reply, openflow10::PacketInFormat::Standard, form),
            };
            let told = frames.into_iter().map(|frame| (switch, frame));
            self.newer.extend(told);
        }
    }

    /// The time on the wall.
    pub fn wall(&self) -> Duration {
        EPOCH + (self.now - self.start)
    }

    /// A core with the same ports that has read `journal`.
    pub fn restored(&self, journal: &[u8]) -> Result<(Core, Restored), JournalError> {
        self.restored_with(self.core.port_configs(), journal)
    }

    fn restored_with(
        &self,
        ports: Vec<PortConfig>,
        journal: &[u8],
    ) -> Result<(Core, Restored), JournalError> {
        let config = config(&self.links, self.shared_state.clone(), ports);
        let mut core = Core::new(config, self.now).unwrap();
        core.keep_journal(self.now, self.wall());
        let restored = core.restore(journal, self.now, self.wall())?;
        Ok((core, restored))
    }

    /// The daemon is killed and starts again. Its controllers connect again.
    pub fn restart(&mut self) {
        self.restart_with(self.core.port_configs());
    }

    /// As [`Self::restart`], with the port map that was saved last.
    pub fn restart_with(&mut self, ports: Vec<PortConfig>) {
        let (core, _) = self.restored_with(ports, &self.journal).unwrap();
        self.core = core;
        for switch in 0..self.switches.len() {
            for bridge in [Bridge::Virt, Bridge::Edge] {
                let fake = self.bridge(switch, bridge);
                fake.input.clear();
                fake.output.clear();
                if fake.connected {
                    self.core.switch_up(switch, bridge, self.now);
                }
            }
        }
        for id in self.inboxes.keys() {
            self.core
                .controller_up(ControllerId(*id), Greeting::CONTROLLER, self.now);
        }
    }

    /// Until nothing moves any more.
    pub fn run(&mut self) {
        for _ in 0..200 {
            if !self.round() {
                return self.check_budgets();
            }
        }
        panic!("it never comes to rest");
    }

    /// Where every switch has answered, nothing is kept for controllers.
    fn check_budgets(&self) {
        let owes = |s: &Fake| s.virt.slow || s.edge.slow;
        if self.switches.iter().any(owes) || !self.asked_newer.is_empty() {
            return;
        }
        for id in self.inboxes.keys().map(|id| ControllerId(*id)) {
            let waits = self.core.withholds_replies_of(id);
            assert!(waits || self.core.kept_for(id) == 0, "of {id:?}");
        }
    }

    /// Rounds until this is so.
    pub fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            assert!(self.round(), "it came to rest before");
        }
    }

    /// Lets time pass, with the core's deadlines kept.
    pub fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        self.run();
        while let Some(deadline) = self.core.next_deadline().filter(|d| *d <= end) {
            self.now = self.now.max(deadline);
            self.core.tick(self.now);
            self.run();
        }
        self.now = end;
        self.run();
    }

    pub fn take_raw(&mut self, id: u64) -> Vec<Vec<u8>> {
        std::mem::take(
            self.inboxes
                .get_mut(&id)
                .expect("a controller that is there"),
        )
    }

    pub fn take(&mut self, id: u64) -> Vec<Answer> {
        self.take_raw(id)
            .iter()
            .map(|f| decode(f).unwrap())
            .collect()
    }

    /// The flow_removed messages that a controller got; what else it got is dropped.
    pub fn take_removals(&mut self, id: u64) -> Vec<Answer> {
        let is_removal = |(_, message): &Answer| matches!(message, Message::FlowRemoved(_));
        let answers = self.take(id).into_iter();
        answers.filter(is_removal).collect()
    }

    pub fn begin_move(&mut self, number: u32, switch: usize, interface: u32, until: MoveUntil) {
        let request = move_request(&switch_name(switch), &format!("if{interface}"), until);
        self.core.begin_move(number, request, self.now).unwrap();
    }

    pub fn begin_executor_change(
        &mut self,
        number: u32,
        executor: Option<usize>,
        until: MoveUntil,
    ) {
        let request = executor_request(&executor_name(executor), until);
        let begun = self.core.begin_executor_change(number, &request, self.now);
        begun.unwrap();
    }

    /// Continues a port's move to its next stop.
    pub fn continue_move(&mut self, number: u32, until: MoveUntil) {
        let now = self.now;
        self.core.continue_move(number, until, now).unwrap();
        self.run();
    }

    pub fn finish_move(&mut self, number: u32) {
        self.continue_move(number, MoveUntil::Done);
        self.wait(2 * GRACE);
    }

    /// A whole change of the executor (`None`: the home), with its end checked.
    pub fn execute_at(&mut self, number: u32, executor: Option<usize>) {
        self.begin_executor_change(number, executor, MoveUntil::Done);
        self.wait(2 * GRACE);
        assert_eq!(self.core.move_outcome(number), Some(Ok(())));
    }

    /// A whole move, with its end checked.
    pub fn move_port(&mut self, number: u32, switch: usize, interface: u32) {
        self.begin_move(number, switch, interface, MoveUntil::Done);
        self.wait(2 * GRACE);
        assert_eq!(self.core.move_outcome(number), Some(Ok(())));
    }
}

/// The whole messages in `bytes`.
pub fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(header) = Header::parse(bytes) {
        let (frame, rest) = bytes.split_at(usize::from(header.length));
        frames.push(frame.to_vec());
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}
