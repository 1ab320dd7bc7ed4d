use super::*;

fn drain(controller: &mut Controller, settled: u64) -> Vec<u8> {
    let mut sent = Vec::new();
    while let Some(frames) = controller.pop_ready(|batch| batch <= settled) {
        sent.extend(frames);
    }
    assert!(!controller.is_ready(|batch| batch <= settled));
    if controller.slots.is_empty() {
        assert_eq!(controller.kept(), 0);
    }
    sent
}

#[test]
fn everything_that_is_kept_is_counted() {
    let mut controller = Controller::new(Greeting::CONTROLLER);
    let place = controller.reserve(1, 0);
    let slot = controller.kept();
    assert!(slot > 0);
    controller.refuse(place, 0, vec![0; 100]);
    controller.reserve_bytes(1_000);
    controller.fill(place, vec![vec![0; 300], vec![0; 400]].into());
    assert_eq!(controller.kept(), slot + 1_800);
    controller.give_back(1_000);
    let mut kept = vec![controller.kept()];
    while controller.pop_ready(|_| true).is_some() {
        kept.push(controller.kept());
    }
    assert_eq!(kept, [slot + 800, slot + 700, slot + 400, 0]);
}

#[test]
fn the_first_packet_in_of_a_series_that_is_dropped_is_told_apart() {
    let mut controller = Controller::new(Greeting::CONTROLLER);
    let full = PACKET_IN_WINDOW;
    let admitted: Vec<_> = [
        (0, 8),
        (full - 8, 8),
        (full - 7, 8),
        (full, 8),
        (WINDOW + 1, 8),
        (full, 8),
        (WINDOW, 8),
        (full, 8),
    ]
    .into_iter()
    .map(|(unsent, length)| controller.admit_packet_in(unsent, length))
    .collect();
    use Admission::{Drop, DropFirst, Send};
    assert_eq!(
        admitted,
        [Send, Send, DropFirst, Drop, Send, Drop, Send, DropFirst]
    );
    assert_eq!(controller.packet_ins_dropped, 4);
}

#[test]
fn replies_leave_in_the_order_of_their_requests() {
    let mut controller = Controller::new(Greeting::CONTROLLER);
    let places: Vec<u64> = [1, 1, 2]
        .into_iter()
        .map(|batch| controller.reserve(batch, 0))
        .collect();
    controller.fill(places[1], vec![2].into());
    controller.fill(places[2], vec![3].into());
    assert_eq!(drain(&mut controller, 1), []);
    controller.fill(places[0], vec![1].into());
    assert_eq!(drain(&mut controller, 1), [1, 2]);
    assert_eq!(drain(&mut controller, 2), [3]);
    controller.fill(places[0], vec![9].into());
    assert_eq!(drain(&mut controller, 9), [], "long gone");
}

#[test]
fn errors_leave_where_their_messages_were() {
    let mut controller = Controller::new(Greeting::CONTROLLER);
    let before = controller.reserve(0, 0);
    let place = controller.place();
    let after = controller.reserve(1, 0);
    controller.refuse(place, 0, vec![2]);
    controller.refuse(place, 0, vec![3]);
    controller.fill(after, vec![4].into());
    assert_eq!(drain(&mut controller, 1), []);
    controller.fill(before, vec![1].into());
    assert_eq!(drain(&mut controller, 0), [1, 2, 3]);
    assert_eq!(drain(&mut controller, 1), [4]);
    // Two messages and no reply after them; the second error comes when the first has left.
    let place = controller.place();
    controller.refuse(place, 0, vec![5]);
    assert_eq!(drain(&mut controller, 1), [5]);
    let after = controller.reserve(1, 0);
    controller.refuse(place, 0, vec![6]);
    controller.fill(after, vec![7].into());
    assert_eq!(drain(&mut controller, 1), [6, 7]);
}

#[test]
fn masks_are_those_of_the_role() {
    let mut controller = Controller::new(Greeting::CONTROLLER);
    assert!(controller.wants(Asynchronous::PacketIn, 1));
    assert!(!controller.wants(Asynchronous::PacketIn, 2), "invalid TTL");
    assert!(controller.wants(Asynchronous::FlowRemoved, 3));
    assert!(!controller.wants(Asynchronous::FlowRemoved, 200));
    controller.role = ControllerRole::Slave;
    assert!(!controller.wants(Asynchronous::PacketIn, 1));
    assert!(controller.wants(Asynchronous::PortStatus, 2));
}

#[test]
fn a_service_connection_is_told_nothing_until_it_sets_miss_send_len() {
    let service = Greeting {
        is_service: true,
        ..Greeting::CONTROLLER
    };
    let mut controller = Controller::new(service);
    assert_eq!(controller.miss_send_len, 0);
    assert!(!controller.wants(Asynchronous::PortStatus, 0));
    controller.miss_send_len = 1;
    assert!(controller.wants(Asynchronous::PortStatus, 0));
}
