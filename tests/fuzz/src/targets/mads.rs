// SPDX-License-Identifier: GPL-2.0-or-later
//! Management datagrams: attributes read and written again, and the firmware's agents.

use ochre_hca::Config;
use ochre_hw::cmd::port::{MadIn, MadOut, MAD_REPLY};
use ochre_hw::cmd::Opcode;
use ochre_hw::regs;
use ochre_hw::Field;
use ochre_link::mem::{MemCable, MemConfig};
use ochre_link::PortConfig;
use ochre_wire::mad::notice::{
    BadKey, BadMKey, LinkDetails, LocalChange, Notice, NoticeHeader, SystemImageChange,
};
use ochre_wire::mad::pma::{ClassPortInfo, PortCounters, PortCountersExt};
use ochre_wire::mad::sma::{GuidInfo, NodeInfo, PKeyTable, PortInfo, SlToVl, VlArbitration};
use ochre_wire::mad::{attr, class, method, Mad};

use crate::bytes::Bytes;
use crate::common::host::Host;
use crate::note;

/// What is read, written and read again is the same; only reserved bits get lost.
macro_rules! attributes {
    ($bytes:expr, $($ty:ty[$len:literal],)*) => {
        $({
            let mut bytes = Bytes::new($bytes);
            let bytes = bytes.array::<$len>();
            let first = <$ty>::read(&bytes);
            let mut out = [0xff; $len];
            first.write(&mut out);
            assert_eq!(<$ty>::read(&out), first);
            assert!(bytes.iter().zip(out).all(|(a, b)| a & b == b));
        })*
    };
}

pub(super) fn run(input: &[u8]) {
    let (cable, _other) = MemCable::pair(MemConfig::default());
    let mut host = Host::with_memory(Config::default(), PortConfig::default(), cable, 64 << 10);
    host.enable();
    let mut input = Bytes::new(input);
    for _ in 0..32 {
        if input.is_empty() {
            break;
        }
        let (flags, port) = (input.u8(), input.u8());
        let bytes = input.array::<256>();
        attributes!(
            &bytes[64..],
            NodeInfo[64],
            PortInfo[64],
            GuidInfo[64],
            PKeyTable[64],
            SlToVl[64],
            VlArbitration[64],
            Notice[64],
            NoticeHeader[64],
            LinkDetails[54],
            LocalChange[54],
            SystemImageChange[54],
            BadMKey[54],
            BadKey[54],
            ClassPortInfo[192],
            PortCounters[192],
            PortCountersExt[192],
        );
        let request = Mad(bytes);
        let mad = MadIn {
            port,
            flags,
            slid: 1,
            src_qpn: 1,
            mad: request.0,
            ..MadIn::default()
        };
        match host.command(Opcode::ProcessMad, mad) {
            Err((status, field)) => note((status.raw(), field)),
            Ok(out) => {
                let out = MadOut::get(&out);
                let reply = Mad(out.mad);
                if out.result & MAD_REPLY != 0 {
                    assert_eq!(reply.tid(), request.tid(), "a reply has its request's ID");
                    assert_eq!(reply.class(), request.class());
                    note((request.class(), request.method(), request.attr_id()));
                    note((request.attr_id(), reply.status()));
                }
                note((out.result, request.class()));
            }
        }
        host.poll();
        assert_eq!(host.reg(regs::STATUS), regs::STATUS_READY);
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let smp = [
        attr::NODE_DESCRIPTION,
        attr::NODE_INFO,
        attr::GUID_INFO,
        attr::PORT_INFO,
        attr::PKEY_TABLE,
        attr::SL_TO_VL,
        attr::VL_ARBITRATION,
        attr::SM_INFO,
        attr::NOTICE,
    ];
    let perf = [1, 0x12, 0x1d];
    let mut seeds = Vec::new();
    let mut add = |mad: Mad| {
        let mut seed = vec![0, 1];
        seed.extend(mad.0);
        seeds.push(seed);
    };
    for method in [method::GET, method::SET] {
        for attribute in smp {
            for class in [class::SUBN_LID_ROUTED, class::SUBN_DIRECTED] {
                add(Mad::new(class, method, attribute, 1, 7));
            }
        }
        for attribute in perf {
            add(Mad::new(class::PERF, method, attribute, 0, 7));
        }
    }
    seeds
}
