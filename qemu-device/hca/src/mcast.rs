// SPDX-License-Identifier: GPL-2.0-or-later
//! Multicast groups and the QPs attached to them.

use std::collections::HashMap;

use ochre_wire::{Gid, Lid};

/// Groups by MGID and MLID.
#[derive(Debug)]
pub struct Groups {
    groups: HashMap<(Gid, Lid), Vec<u32>>,
    by_qp: HashMap<u32, Vec<(Gid, Lid)>>,
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
            by_qp: HashMap::new(),
            attachments: 0,
            max_groups,
            max_qps,
        }
    }

    /// Attaches a QP; one that is attached already stays so.
    pub fn attach(&mut self, mgid: Gid, mlid: Lid, qp: u32) -> Result<(), Full> {
        let known = self.groups.get(&(mgid, mlid));
        match known {
            Some(qps) if qps.contains(&qp) => return Ok(()),
            Some(qps) if qps.len() >= self.max_qps as usize => return Err(Full),
            None if self.groups.len() >= self.max_groups as usize => return Err(Full),
            _ => {}
        }
        self.groups.entry((mgid, mlid)).or_default().push(qp);
        self.by_qp.entry(qp).or_default().push((mgid, mlid));
        self.attachments += 1;
        Ok(())
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
        if let Some(groups) = self.by_qp.get_mut(&qp) {
            groups.retain(|&group| group != (mgid, mlid));
            if groups.is_empty() {
                self.by_qp.remove(&qp);
            }
        }
        true
    }

    /// Detaches a QP from all its groups.
    pub fn detach_all(&mut self, qp: u32) {
        for (mgid, mlid) in self.by_qp.get(&qp).cloned().unwrap_or_default() {
            self.detach(mgid, mlid, qp);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MLID: Lid = Lid(0xc001);

    fn gid(n: u8) -> Gid {
        let mut gid = Gid([0; 16]);
        gid.0[0] = 0xff;
        gid.0[15] = n;
        gid
    }

    #[test]
    fn groups_are_told_apart_by_gid_and_lid() {
        let mut groups = Groups::new(2, 2);
        assert_eq!(groups.attach(gid(1), MLID, 5), Ok(()));
        assert_eq!(groups.attach(gid(1), MLID, 5), Ok(()));
        assert_eq!(groups.attach(gid(1), MLID, 6), Ok(()));
        assert_eq!(groups.attach(gid(1), MLID, 7), Err(Full));
        assert_eq!(groups.attach(gid(1), Lid(0xc002), 7), Ok(()));
        assert_eq!(groups.attach(gid(2), MLID, 7), Err(Full));
        assert_eq!(groups.attachments(), 3);
        assert_eq!(groups.members(gid(1), MLID), [5, 6]);
        assert!(!groups.detach(gid(2), MLID, 5));
        assert!(groups.detach(gid(1), MLID, 5));
        assert!(!groups.detach(gid(1), MLID, 5));
        groups.detach_all(6);
        groups.detach_all(7);
        assert_eq!(groups.attachments(), 0);
        assert!(groups.members(gid(1), MLID).is_empty());
        assert!(groups.groups.is_empty() && groups.by_qp.is_empty());
    }
}
