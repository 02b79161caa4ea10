// SPDX-License-Identifier: GPL-2.0-or-later
//! The targets.

mod captures;
mod commands;
mod fault_rules;
mod handshake;
mod lab_protocol;
mod link_packets;
mod mads;
mod memory;
mod packets;
mod rings;
mod wire;
mod wqes;

use crate::Target;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "packets",
        what: "bytes of a packet, parsed and built again",
        run: packets::run,
        seeds: packets::seeds,
    },
    Target {
        name: "mads",
        what: "management datagrams for the firmware's agents, and their attributes",
        run: mads::run,
        seeds: mads::seeds,
    },
    Target {
        name: "link_packets",
        what: "frames of every kind into a port that is up",
        run: link_packets::run,
        seeds: link_packets::seeds,
    },
    Target {
        name: "wire",
        what: "packets from a link into QPs of every kind, and what they may write",
        run: wire::run,
        seeds: wire::seeds,
    },
    Target {
        name: "commands",
        what: "registers, doorbells, the command queue and the inputs of commands",
        run: commands::run,
        seeds: commands::seeds,
    },
    Target {
        name: "wqes",
        what: "work queues and their records, and what requests may write",
        run: wqes::run,
        seeds: wqes::seeds,
    },
    Target {
        name: "rings",
        what: "what a peer may write into the rings of a link in shared memory",
        run: rings::run,
        seeds: rings::seeds,
    },
    Target {
        name: "handshake",
        what: "what comes to the socket of a link in shared memory, with any descriptors",
        run: handshake::run,
        seeds: handshake::seeds,
    },
    Target {
        name: "fault_rules",
        what: "the text of wire faults",
        run: fault_rules::run,
        seeds: fault_rules::seeds,
    },
    Target {
        name: "lab_protocol",
        what: "the stream between the lab runner and its guests",
        run: lab_protocol::run,
        seeds: lab_protocol::seeds,
    },
    Target {
        name: "captures",
        what: "capture files",
        run: captures::run,
        seeds: captures::seeds,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::take_notes;

    fn notes_of(run: fn(&[u8]), inputs: &[Vec<u8>]) -> Vec<u64> {
        take_notes();
        inputs.iter().for_each(|input| run(input));
        take_notes()
    }

    /// The hash of a note.
    fn hash(outcome: impl std::hash::Hash) -> u64 {
        take_notes();
        crate::note(outcome);
        take_notes()[0]
    }

    #[test]
    fn every_target_is_well_with_its_seeds() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(seeds.len() > 4, "{} has seeds", target.name);
            assert!(!notes_of(target.run, &seeds).is_empty(), "{}", target.name);
        }
    }

    #[test]
    fn seeds_get_far_into_the_device() {
        use ochre_hw::cqe::{CqeOpcode, CqeStatus};
        let done = |opcode: CqeOpcode| hash((CqeStatus::Success.raw(), opcode.raw()));
        let refused = hash((CqeStatus::RemoteAccess.raw(), CqeOpcode::Write.raw()));
        let notes = notes_of(wqes::run, &wqes::seeds());
        for opcode in [
            CqeOpcode::Send,
            CqeOpcode::Write,
            CqeOpcode::Read,
            CqeOpcode::CompareSwap,
            CqeOpcode::FetchAdd,
            CqeOpcode::Recv,
            CqeOpcode::RecvWriteImm,
        ] {
            assert!(notes.contains(&done(opcode)), "{opcode:?} completes");
        }
        assert!(notes.contains(&refused), "a WRITE to constant memory fails");
        let notes = notes_of(wire::run, &wire::seeds());
        for opcode in [CqeOpcode::Recv, CqeOpcode::RecvWriteImm, CqeOpcode::Write] {
            assert!(notes.contains(&done(opcode)), "{opcode:?} from the wire");
        }
    }
}
