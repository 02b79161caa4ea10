// SPDX-License-Identifier: GPL-2.0-or-later

//! Management datagrams for the firmware's agents.

use crate::{
    cmd::{
        ProcessMad,
        Wait, //
    },
    device::Data,
    hw::cmd::port::{
        MadIn,
        MAD_CONSUMED,
        MAD_HAS_SOURCE,
        MAD_IGNORE_BKEY,
        MAD_IGNORE_MKEY,
        MAD_REPLY, //
    },
    port,
    rdma::{
        Mad,
        MadReply, //
    }, //
};
use kernel::prelude::*;

/// Shows a MAD to the firmware, whose reply, if any, is written to `reply`.
pub(crate) fn process(
    data: &Data<'_>,
    port: u32,
    mad: &Mad<'_>,
    reply: &mut [u8; 256],
) -> Result<MadReply> {
    let mut input = MadIn {
        port: port::port_in(data, port)?.port,
        mad: *mad.bytes,
        ..MadIn::default()
    };
    if mad.ignore_mkey {
        input.flags |= MAD_IGNORE_MKEY;
    }
    if mad.ignore_bkey {
        input.flags |= MAD_IGNORE_BKEY;
    }
    if let Some(source) = &mad.source {
        input.flags |= MAD_HAS_SOURCE;
        input.slid = source.slid;
        input.src_qpn = source.src_qp;
        input.pkey_index = source.pkey_index;
        input.sl = source.sl;
    }

    let output = data.command::<ProcessMad>(input, Wait::Sleep)?;
    if output.result & MAD_REPLY != 0 {
        *reply = output.mad;
        Ok(MadReply::Reply)
    } else if output.result & MAD_CONSUMED != 0 {
        Ok(MadReply::Consumed)
    } else {
        Ok(MadReply::Ignored)
    }
}

/// Fields of a subnet management datagram, and the values of a query.
mod smp {
    /// BaseVersion, ClassVersion and MgmtClass: version 1, LID-routed subnet management.
    pub(super) const HEADER: [u8; 4] = [1, 1, 1, METHOD_GET];
    /// Method Get.
    const METHOD_GET: u8 = 1;
    /// Where AttributeID stands.
    pub(super) const ATTRIBUTE: usize = 16;
    /// NodeDescription.
    pub(super) const NODE_DESCRIPTION: u16 = 0x0010;
    /// Where Status stands.
    pub(super) const STATUS: usize = 4;
    /// Where the attribute's data begin.
    pub(super) const DATA: usize = 64;
}

/// Asks the firmware for the node description.
pub(crate) fn node_description(data: &Data<'_>) -> Result<[u8; 64]> {
    let mut query = [0; 256];
    query[..smp::HEADER.len()].copy_from_slice(&smp::HEADER);
    query[smp::ATTRIBUTE..][..2].copy_from_slice(&smp::NODE_DESCRIPTION.to_be_bytes());
    let mad = Mad {
        bytes: &query,
        source: None,
        ignore_mkey: true,
        ignore_bkey: true,
    };
    let mut reply = [0; 256];

    match process(data, 1, &mad, &mut reply)? {
        MadReply::Reply if reply[smp::STATUS..][..2] == [0, 0] => {
            let mut description = [0; 64];
            description.copy_from_slice(&reply[smp::DATA..][..64]);
            Ok(description)
        }
        _ => Err(EIO),
    }
}
