use super::*;

fn drain(controller: &mut Controller, settled: u64) -> Vec<u8> {
    let mut sent = Vec::new();
    while let Some(frames) = controller.pop_ready(|batch| batch <= settled) {
        sent.extend(frames);
    }
    sent
}

#[test]
fn replies_leave_in_the_order_of_their_requests() {
    let mut controller = Controller::default();
    let places: Vec<u64> = [1, 1, 2]
        .into_iter()
        .map(|batch| controller.reserve(batch))
        .collect();
    controller.fill(places[1], vec![2]);
    controller.fill(places[2], vec![3]);
    assert_eq!(drain(&mut controller, 1), []);
    controller.fill(places[0], vec![1]);
    assert_eq!(drain(&mut controller, 1), [1, 2]);
    assert_eq!(drain(&mut controller, 2), [3]);
    controller.fill(places[0], vec![9]);
    assert_eq!(drain(&mut controller, 9), [], "long gone");
}

#[test]
fn errors_leave_where_their_messages_were() {
    let mut controller = Controller::default();
    let before = controller.reserve(0);
    let place = controller.place();
    let after = controller.reserve(1);
    controller.refuse(place, &[2]);
    controller.refuse(place, &[3]);
    controller.fill(after, vec![4]);
    assert_eq!(drain(&mut controller, 1), []);
    controller.fill(before, vec![1]);
    assert_eq!(drain(&mut controller, 0), [1, 2, 3]);
    assert_eq!(drain(&mut controller, 1), [4]);
    // Two messages and no reply after them; the second error comes when the first has left.
    let place = controller.place();
    controller.refuse(place, &[5]);
    assert_eq!(drain(&mut controller, 1), [5]);
    let after = controller.reserve(1);
    controller.refuse(place, &[6]);
    controller.fill(after, vec![7]);
    assert_eq!(drain(&mut controller, 1), [6, 7]);
}

#[test]
fn masks_are_those_of_the_role() {
    let mut controller = Controller::default();
    assert!(controller.wants(Asynchronous::PacketIn, 1));
    assert!(!controller.wants(Asynchronous::PacketIn, 2), "invalid TTL");
    assert!(controller.wants(Asynchronous::FlowRemoved, 3));
    assert!(!controller.wants(Asynchronous::FlowRemoved, 200));
    controller.role = ControllerRole::Slave;
    assert!(!controller.wants(Asynchronous::PacketIn, 1));
    assert!(controller.wants(Asynchronous::PortStatus, 2));
}
