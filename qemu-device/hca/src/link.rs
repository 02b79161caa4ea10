// SPDX-License-Identifier: GPL-2.0-or-later
//! The sending side of a port for engines.

use ochre_link::{Cable, Port, Seal, TxStall};
use ochre_wire::{write_trailer, Build, MAX_PACKET};

use crate::seams::{SendError, Transmit};

/// A port's link, to send on.
pub(crate) struct LinkTx<'a, C: Cable> {
    link: &'a mut Port<C>,
    /// Multicast packets turn around too: QPs of this device are attached to groups.
    multicast_loopback: bool,
}

impl<'a, C: Cable> LinkTx<'a, C> {
    pub(crate) fn new(link: &'a mut Port<C>, multicast_loopback: bool) -> Self {
        LinkTx {
            link,
            multicast_loopback,
        }
    }

    /// Whether VL15 and QP0 go together, as they have to.
    fn lane_fits(build: &Build) -> bool {
        build.vl.is_management() == (build.bth.dest_qp == ochre_wire::Qpn::SMI)
    }

    /// The copy of a multicast packet for this port's own QPs; discarded where there is no room.
    fn turn_around(&mut self, build: &Build, packet: &[u8]) {
        let Ok(slot) = self.link.tx_begin_loopback(build.vl, packet.len()) else {
            return self.link.discard(1);
        };
        slot.copy_from_slice(packet);
        self.link.tx_commit(Seal::Done);
    }
}

impl<C: Cable> Transmit for LinkTx<'_, C> {
    fn send<E>(
        &mut self,
        build: &Build,
        payload: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), SendError<E>> {
        if !Self::lane_fits(build) {
            self.link.discard(1);
            return Ok(());
        }
        let crc = self.link.config().crc;
        let len = build.packet_len(payload);
        let slot = match self.link.tx_begin(build.vl, build.dlid, len) {
            Ok(slot) => slot,
            Err(TxStall::NoCredits(_) | TxStall::RingFull) => return Err(SendError::NoCredit),
            Err(_) => {
                self.link.discard(1);
                return Ok(());
            }
        };
        let Ok(headers) = build.write_headers(payload, slot) else {
            self.link.tx_abort();
            self.link.discard(1);
            return Ok(());
        };
        let end = headers + payload;
        if let Err(error) = fill(&mut slot[headers..end]) {
            self.link.tx_abort();
            return Err(SendError::Fill(error));
        }
        // The payload is in the first-level cache now.
        if !crc || write_trailer(slot, headers, payload).is_err() {
            slot[end..].fill(0);
        }
        if self.multicast_loopback && build.dlid.is_multicast() {
            let mut copy = [0; MAX_PACKET];
            copy[..len].copy_from_slice(slot);
            self.link.tx_commit(Seal::Done);
            self.turn_around(build, &copy[..len]);
        } else {
            self.link.tx_commit(Seal::Done);
        }
        Ok(())
    }
}
