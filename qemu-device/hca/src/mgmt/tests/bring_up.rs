// SPDX-License-Identifier: GPL-2.0-or-later
//! Two adapters back to back, brought up step by step as OpenSM does it from the first of them: the
//! local node through the driver, the neighbour by directed route, then LIDs, Armed and Active.

use ochre_wire::mad::sma::NodeInfo;

use super::*;

struct Subnet {
    a: Device,
    b: Device,
}

impl Subnet {
    /// A request from the subnet manager on `a`, by `path`, through what the kernel does to it.
    fn ask(&mut self, m: u8, attr_id: u16, attr_mod: u32, path: &[u8], data: &[u8; 64]) -> Mad {
        let mut mad = directed(m, attr_id, attr_mod, path);
        *mad.smp_data_mut() = *data;
        let out = if path.is_empty() {
            self.a.handle_from(1, &mad, &HOST)
        } else {
            let permissive = Source::Wire(Address {
                slid: Lid::PERMISSIVE,
                dlid: Lid::PERMISSIVE,
                sl: Sl::new(0),
                pkey: PKey::DEFAULT,
                src_qp: Qpn::SMI,
                dest_qp: Qpn::SMI,
                grh: None,
            });
            self.b.handle_from(1, &mad, &permissive)
        };
        let Outcome::Reply(mut out) = out else {
            panic!("{out:?}")
        };
        assert_eq!(out.status(), status::DIRECTION, "{out:?}");
        if !path.is_empty() {
            // At the end of the way back `a` leaves it to its host.
            assert_eq!(out.hop_pointer(), 1);
            assert_eq!(self.a.handle(&out), Outcome::PassToHost);
            out.set_hop_pointer(0);
        }
        out
    }

    fn port_info(&mut self, path: &[u8]) -> PortInfo {
        PortInfo::read(
            self.ask(method::GET, attr::PORT_INFO, 0, path, &[0; 64])
                .smp_data(),
        )
    }

    fn set(&mut self, path: &[u8], edit: impl FnOnce(&mut PortInfo)) -> PortInfo {
        let mut pi = self.port_info(path);
        pi.port_state = 0;
        pi.port_physical_state = 0;
        pi.link_down_default_state = 2;
        edit(&mut pi);
        let mut data = [0; 64];
        pi.write(&mut data);
        PortInfo::read(
            self.ask(method::SET, attr::PORT_INFO, 1, path, &data)
                .smp_data(),
        )
    }
}

#[test]
fn to_active() {
    let mut net = Subnet {
        a: Device::with(1, 1, 0x100),
        b: Device::with(1, 1, 0x200),
    };
    let paths: [(&[u8], u64, Lid); 2] = [(&[], 0x100, Lid(1)), (&[1], 0x200, Lid(2))];
    for (path, guid, _) in paths {
        let out = net.ask(method::GET, attr::NODE_INFO, 0, path, &[0; 64]);
        assert_eq!(NodeInfo::read(out.smp_data()).node_guid, Guid(guid));
        net.ask(method::GET, attr::NODE_DESCRIPTION, 0, path, &[0; 64]);
        net.ask(method::GET, attr::GUID_INFO, 0, path, &[0; 64]);
        net.ask(method::GET, attr::PKEY_TABLE, 0, path, &[0; 64]);
        let pi = net.port_info(path);
        assert_eq!(pi.port_state, 2);
        // Otherwise OpenSM would send the port down to let the change take effect.
        assert_eq!(
            (pi.neighbor_mtu, pi.operational_vls),
            (pi.mtu_cap, pi.vl_cap)
        );
    }
    for (path, _, lid) in paths {
        let pi = net.set(path, |pi| {
            pi.lid = lid;
            pi.master_sm_lid = Lid(1);
            pi.subnet_timeout = 18;
            pi.client_reregister = true;
        });
        assert_eq!((pi.lid, pi.port_state), (lid, 2));
    }
    for state in [3, 4] {
        for (path, _, _) in paths {
            let pi = net.set(path, |pi| pi.port_state = state);
            assert_eq!(pi.port_state, state);
        }
    }
    for (d, lid) in [(&mut net.a, Lid(1)), (&mut net.b, Lid(2))] {
        assert!(d.ports[0].active);
        assert_eq!((d.ports[0].lid, d.links[0].lid.0), (lid, lid));
        assert_eq!(d.ports[0].sm_lid, Lid(1));
        assert_eq!(d.poll(), None, "nothing to complain about");
        let mut events = Vec::new();
        while let Some(e) = d.event() {
            events.push(e);
        }
        assert_eq!(
            events,
            [
                EventType::LidChange,
                EventType::SmChange,
                EventType::PortActive,
                EventType::ClientReregister,
            ]
        );
    }
}

#[test]
fn replies_go_back_where_requests_came_from() {
    let address = Address {
        slid: Lid(9),
        dlid: Lid(4),
        sl: Sl::new(1),
        pkey: PKey::DEFAULT,
        src_qp: Qpn::new(0x123),
        dest_qp: Qpn::GSI,
        grh: None,
    };
    let mut mapping = [Vl::VL0; 16];
    mapping[1] = Vl::new(2);
    let build = address.reply(&mapping, ochre_wire::Psn::new(5));
    assert_eq!((build.slid, build.dlid), (Lid(4), Lid(9)));
    assert_eq!((build.vl, build.bth.dest_qp), (Vl::new(2), Qpn::new(0x123)));
    assert_eq!(build.ext.deth.src_qp, Qpn::GSI);
    assert_eq!(build.ext.deth.qkey, ochre_wire::QKey::GSI);
    let smi = Address {
        dest_qp: Qpn::SMI,
        src_qp: Qpn::SMI,
        ..address
    };
    let build = smi.reply(&mapping, ochre_wire::Psn::new(5));
    assert_eq!(build.vl, Vl::VL15);
    assert_eq!(build.ext.deth.qkey, ochre_wire::QKey(0));
}
