// SPDX-License-Identifier: GPL-2.0-or-later
//! The checks of the link layer on a received data packet.

use ochre_wire::{check_crcs, CrcCheck, Lid, Lnh, Lrh, Mtu, Vcrc, Vl};

use crate::cable::{Frame, MAX_OVERHEAD};
use crate::state::PortState;

use super::Role;

/// What a packet is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) role: Role,
    pub(super) state: PortState,
    pub(super) crc: bool,
    pub(super) operational: u8,
    pub(super) mtu: Mtu,
    pub(super) lid: Lid,
    pub(super) lmc: u8,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// Its sender marked it as bad.
    Marked,
    /// The link damaged it.
    Damaged,
    /// Length, lane or version make no sense.
    Malformed,
    /// The port state does not let it pass.
    State,
    /// It is for another port.
    NotOurs,
}

/// What the LRH says that the port needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) vl: Vl,
    pub(super) dlid: Lid,
}

/// Largest packet from LRH to VCRC. VL15 carries packets of 256 bytes of payload whatever the MTU.
pub(super) fn most_bytes(vl: Vl, mtu: Mtu) -> usize {
    let mtu = if vl.is_management() { Mtu::Mtu256 } else { mtu };
    mtu.bytes() + MAX_OVERHEAD
}

/// Checks a frame: whether its ICRC is right, where the packet may pass. The meta data are there
/// whenever the LRH could be read, so that credits of dropped packets are counted too.
pub(super) fn check(
    bytes: &[u8],
    frame: Frame,
    rules: &Rules,
) -> (Option<Meta>, Result<bool, Reject>) {
    let Some(lrh) = bytes.first_chunk::<{ Lrh::LEN }>().map(Lrh::read) else {
        return (None, Err(Reject::Malformed));
    };
    let meta = Meta {
        vl: lrh.vl,
        dlid: lrh.dlid,
    };
    (Some(meta), verdict(bytes, frame, &lrh, rules))
}

fn verdict(bytes: &[u8], frame: Frame, lrh: &Lrh, rules: &Rules) -> Result<bool, Reject> {
    if frame == Frame::BadData {
        return Err(Reject::Marked);
    }
    let icrc_ok = match rules.crc.then(|| check_crcs(bytes)) {
        Some(CrcCheck::BadVcrc) => return Err(Reject::Damaged),
        Some(CrcCheck::BadIcrc) => false,
        Some(CrcCheck::Good) | None => true,
    };
    let management = lrh.vl.is_management();
    if lrh.lver != 0
        || usize::from(lrh.pkt_len) * 4 + Vcrc::LEN != bytes.len()
        || bytes.len() > most_bytes(lrh.vl, rules.mtu)
        || !(management || lrh.vl.get() < rules.operational)
        // Subnet management packets have no GRH and are not raw.
        || (management && lrh.lnh != Lnh::Local)
    {
        return Err(Reject::Malformed);
    }
    if !rules.state.may_receive(lrh.vl) {
        return Err(Reject::State);
    }
    let ours = rules.role == Role::Switch
        || lrh.dlid.is_in(rules.lid, rules.lmc)
        || lrh.dlid.is_multicast()
        || lrh.dlid == Lid::PERMISSIVE;
    if ours {
        Ok(icrc_ok)
    } else {
        Err(Reject::NotOurs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ochre_wire::Sl;

    const RULES: Rules = Rules {
        role: Role::Adapter,
        state: PortState::Active,
        crc: true,
        operational: 2,
        mtu: Mtu::Mtu256,
        lid: Lid(8),
        lmc: 1,
    };

    fn packet(edit: impl FnOnce(&mut Lrh), bytes: usize) -> Vec<u8> {
        let mut p = vec![0; bytes];
        let mut lrh = Lrh {
            vl: Vl::VL0,
            lver: 0,
            sl: Sl::new(0),
            lnh: Lnh::Local,
            dlid: Lid(9),
            pkt_len: ((bytes - 2) / 4) as u16,
            slid: Lid(3),
        };
        edit(&mut lrh);
        lrh.write(p.first_chunk_mut().unwrap());
        seal(&mut p);
        p
    }

    fn seal(p: &mut [u8]) {
        let (body, crc) = p.split_last_chunk_mut().unwrap();
        let mut v = Vcrc::new();
        v.update(body);
        *crc = v.finish();
    }

    fn verdict_of(p: &[u8], rules: &Rules) -> Result<(), Reject> {
        check(p, Frame::Data, rules).1.map(|_| ())
    }

    #[test]
    fn good_packets() {
        for dlid in [8, 9, 0xc000, 0xffff] {
            let p = packet(|l| l.dlid = Lid(dlid), 26);
            assert_eq!(verdict_of(&p, &RULES), Ok(()));
        }
        let p = packet(|l| l.vl = Vl::VL15, 256 + 26);
        let (meta, ok) = check(&p, Frame::Data, &RULES);
        assert_eq!(ok, Ok(false), "its ICRC was never written");
        assert_eq!(meta.unwrap().vl, Vl::VL15);
        let switch = Rules {
            role: Role::Switch,
            ..RULES
        };
        let p = packet(|l| l.dlid = Lid(77), 26);
        assert_eq!(verdict_of(&p, &switch), Ok(()));
    }

    #[test]
    fn every_reason() {
        let good = packet(|_| (), 26);
        assert_eq!(check(&good, Frame::BadData, &RULES).1, Err(Reject::Marked));
        assert_eq!(
            check(&good[..7], Frame::Data, &RULES),
            (None, Err(Reject::Malformed))
        );
        let mut p = good.clone();
        p[20] ^= 1;
        assert_eq!(verdict_of(&p, &RULES), Err(Reject::Damaged));
        let off = Rules {
            crc: false,
            ..RULES
        };
        assert_eq!(verdict_of(&p, &off), Ok(()));

        let cases: [(&str, Vec<u8>, Reject); 7] = [
            ("version", packet(|l| l.lver = 1, 26), Reject::Malformed),
            ("length", packet(|l| l.pkt_len += 1, 26), Reject::Malformed),
            ("lane", packet(|l| l.vl = Vl::new(2), 26), Reject::Malformed),
            ("long", packet(|_| (), 256 + 126 + 4), Reject::Malformed),
            (
                "long on VL15",
                packet(|l| l.vl = Vl::VL15, 256 + 126 + 4),
                Reject::Malformed,
            ),
            (
                "GRH on VL15",
                packet(
                    |l| {
                        l.vl = Vl::VL15;
                        l.lnh = Lnh::Global;
                    },
                    256 + 66,
                ),
                Reject::Malformed,
            ),
            (
                "other port",
                packet(|l| l.dlid = Lid(10), 26),
                Reject::NotOurs,
            ),
        ];
        for (what, p, why) in cases {
            assert_eq!(verdict_of(&p, &RULES), Err(why), "{what}");
        }
    }

    #[test]
    fn states() {
        let data = packet(|_| (), 26);
        let smp = packet(|l| l.vl = Vl::VL15, 282);
        for (state, want) in [
            (PortState::Down, [false, false]),
            (PortState::Initialize, [false, true]),
            (PortState::Armed, [true, true]),
            (PortState::Active, [true, true]),
        ] {
            let rules = Rules { state, ..RULES };
            for (p, pass) in [(&data, want[0]), (&smp, want[1])] {
                let want = if pass { Ok(()) } else { Err(Reject::State) };
                assert_eq!(verdict_of(p, &rules), want, "{state:?}");
            }
        }
    }
}
