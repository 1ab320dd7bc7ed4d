use super::*;
use crate::server::ports::{Executor, Location, PortMap};

#[test]
fn a_controller_sees_the_port_and_not_the_interface() {
    let mut map = PortMap::default();
    let home = Location {
        switch: 1,
        interface: "i".into(),
    };
    map.insert(Some(7), "vm7".into(), home, "snic0", Executor::Home)
        .unwrap();
    let port = map.get_mut(7).unwrap();
    port.hw_addr = Some([2; 6]);
    let physical = Port {
        number: 40,
        hw_addr: [9; 6],
        config: config::PORT_DOWN,
        ..Port::default()
    };
    let view = port.view(Some(&physical), false);
    assert_eq!((view.number, view.hw_addr, view.config), (7, [2; 6], 0));
    assert_eq!(view.name_str(), "vm7");
    assert_eq!(port.view(None, false).state, state::LINK_DOWN);
    let cut_off = port.view(Some(&physical), true);
    assert_eq!(cut_off.state, state::LINK_DOWN);
}
