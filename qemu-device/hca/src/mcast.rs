// SPDX-License-Identifier: GPL-2.0-or-later
//! Multicast groups and the QPs attached to them.

use std::collections::HashMap;

use ochre_wire::{Gid, Lid};

/// Groups by MGID and MLID.
#[derive(Debug)]
pub struct Groups {
    groups: HashMap<(Gid, Lid), Vec<u32>>,
    attachments: u32,
    max_groups: u32,
    max_qps: u32,
}

/// No room for another group, or for another QP in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Groups {
    /// No groups yet.
    pub fn new(max_groups: u32, max_qps: u32) -> Self {
        Groups {
            groups: HashMap::new(),
            attachments: 0,
            max_groups,
            max_qps,
        }
    }

    /// Attaches a QP; one that is attached already stays so. Whether it is new.
    pub fn attach(&mut self, mgid: Gid, mlid: Lid, qp: u32) -> Result<bool, Full> {
        let known = self.groups.get(&(mgid, mlid));
        match known {
            Some(qps) if qps.contains(&qp) => return Ok(false),
            Some(qps) if qps.len() >= self.max_qps as usize => return Err(Full),
            None if self.groups.len() >= self.max_groups as usize => return Err(Full),
            _ => {}
        }
        self.groups.entry((mgid, mlid)).or_default().push(qp);
        self.attachments += 1;
        Ok(true)
    }

    /// Detaches a QP: whether it was attached.
    pub fn detach(&mut self, mgid: Gid, mlid: Lid, qp: u32) -> bool {
        let Some(qps) = self.groups.get_mut(&(mgid, mlid)) else {
            return false;
        };
        let Some(at) = qps.iter().position(|&other| other == qp) else {
            return false;
        };
        qps.remove(at);
        if qps.is_empty() {
            self.groups.remove(&(mgid, mlid));
        }
        self.attachments -= 1;
        true
    }

    /// QPs attached to a group.
    pub fn members(&self, mgid: Gid, mlid: Lid) -> &[u32] {
        self.groups
            .get(&(mgid, mlid))
            .map_or(&[], |qps| qps.as_slice())
    }

    /// Attachments in all.
    pub fn attachments(&self) -> u32 {
        self.attachments
    }
}
