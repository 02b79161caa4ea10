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
