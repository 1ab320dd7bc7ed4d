//! Clients that wait for a move, and requests of others in the round in which it ends.

use std::time::Duration;

use oneswitch_core::{Claim, ExecutorRequest, MoveRequest, MoveStage, MoveUntil, PortView, HOME};

use super::saved::{answer_all, SERVER};
use super::*;
use crate::events::Reply;
use crate::server::build_core;

const PORT: u32 = 1;

/// An engine whose switch is in step.
fn engine_with_a_port(now: StdInstant) -> Engine {
    let config = Config::parse("server.toml", SERVER).unwrap();
    let mut core = build_core(&config, now).unwrap();
    core.switch_up(0, Bridge::Virt, now);
    core.switch_up(0, Bridge::Edge, now);
    let report = Report::new(&config, Vec::new(), String::new(), now);
    let mut engine = Engine::new(core, report, None);
    answer_until(&mut engine.core, now, Core::is_in_step);
    engine
}

/// Answers for the switch until this is so, without the end of a round of the engine.
fn answer_until(core: &mut Core, now: StdInstant, is_so: impl Fn(&Core) -> bool) {
    loop {
        core.end_of_batch(now);
        if is_so(core) {
            return;
        }
        let outputs = core.take_outputs();
        assert!(!outputs.is_empty(), "it came to rest before");
        answer_all(core, outputs, now);
        if is_so(core) {
            return;
        }
    }
}

fn moved_to(interface: &str, until: MoveUntil) -> Request {
    let request = MoveRequest {
        switch: "hypervisor".into(),
        interface: interface.into(),
        until,
        settle: Duration::ZERO,
        grace: Duration::ZERO,
        force: false,
        owner: None,
    };
    Request::Move(PORT, request)
}

fn executed_at_home() -> Request {
    let request = ExecutorRequest {
        executor: HOME.into(),
        until: MoveUntil::Done,
        settle: Duration::ZERO,
        grace: Duration::ZERO,
        force: false,
    };
    Request::Execute(PORT, request)
}

fn continued(until: MoveUntil) -> Request {
    Request::ContinueMove {
        number: PORT,
        until,
        force: false,
    }
}

fn request(engine: &mut Engine, request: Request, now: StdInstant) -> oneshot::Receiver<Reply> {
    let (reply, answer) = oneshot::channel();
    engine.take(Event::Request { request, reply }, now);
    answer
}

fn answered(mut answer: oneshot::Receiver<Reply>) -> PortView {
    match answer.try_recv().unwrap() {
        Ok(Answer::Port(port)) => port,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_move_that_ends_right_before_another_request_is_answered() {
    let removed = Request::RemovePort(PORT, Claim::default());
    for next in [
        moved_to("vm1", MoveUntil::Done),
        executed_at_home(),
        removed,
    ] {
        let now = StdInstant::now();
        let mut engine = engine_with_a_port(now);
        let waiting = request(&mut engine, moved_to("vm2", MoveUntil::Done), now);
        answer_until(&mut engine.core, now, |core| {
            core.ports()[0].moving.is_none()
        });
        let _next = request(&mut engine, next, now);
        engine.finish_round(now);
        assert_eq!(answered(waiting).interface, "vm2");
    }
}

#[test]
fn a_stage_that_is_reached_right_before_another_request_is_answered() {
    for next in [continued(MoveUntil::Done), Request::AbortMove(PORT)] {
        let now = StdInstant::now();
        let mut engine = engine_with_a_port(now);
        let first = request(&mut engine, moved_to("vm2", MoveUntil::Prepared), now);
        let is_prepared = |core: &Core| {
            let moving = core.ports().remove(0).moving;
            moving.is_some_and(|moving| moving.stage == MoveStage::Prepared)
        };
        answer_until(&mut engine.core, now, is_prepared);
        drop(first);
        let waiting = request(&mut engine, continued(MoveUntil::Prepared), now);
        let _next = request(&mut engine, next, now);
        engine.finish_round(now);
        assert!(answered(waiting).moving.is_some());
    }
}
