// SPDX-License-Identifier: GPL-2.0-or-later
//! Multicast groups that programs join and leave.

use ochre_hw::cmd::qp::Multicast;
use ochre_hw::cmd::Opcode;

use crate::common::pair::Pair;
use crate::common::rng::Rng;
use crate::datagrams::Peer;

/// A group.
pub struct Group {
    pub mgid: [u8; 16],
    pub mlid: u16,
    pub members: Vec<Peer>,
}

impl Group {
    /// Groups without members; the first two have one multicast LID.
    pub fn some() -> Vec<Self> {
        let group = |n: u8| {
            let mut mgid = [0; 16];
            mgid[..2].copy_from_slice(&[0xff, 0x12]);
            mgid[15] = n;
            Group {
                mgid,
                mlid: 0xc004 + u16::from(n / 2),
                members: Vec::new(),
            }
        };
        (0..3).map(group).collect()
    }

    /// Lets each program be a member or not, by chance.
    pub fn draw(&mut self, pair: &mut Pair, programs: &[Peer], rng: &mut Rng) {
        for program in programs {
            let (host, qp, _) = *program;
            let was = self.members.iter().position(|member| member == program);
            let opcode = match (was, rng.chance(50)) {
                (None, true) => {
                    self.members.push(*program);
                    Opcode::AttachMulticast
                }
                (Some(at), false) => {
                    self.members.remove(at);
                    Opcode::DetachMulticast
                }
                _ => continue,
            };
            let attachment = Multicast {
                mgid: self.mgid,
                qp,
                mlid: self.mlid,
                ..Multicast::default()
            };
            pair.host(host).command(opcode, attachment).unwrap();
        }
    }
}
