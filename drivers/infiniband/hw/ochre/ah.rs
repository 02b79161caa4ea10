// SPDX-License-Identifier: GPL-2.0-or-later

//! Address handles.

use crate::{
    abi::CreateAhResp,
    cmd::{
        number,
        CreateAh,
        DestroyAh,
        Wait, //
    },
    device::Data,
    hw::{
        cmd::qp,
        verbs::{
            AddressVector,
            AV_GRH, //
        },
    },
    pd::Pd,
    rdma::{
        AhAttr,
        GlobalRoute,
        Udata, //
    },
    Ochre, //
};
use kernel::prelude::*;

/// Largest service level.
const MAX_SL: u8 = 15;
/// Bits of a flow label.
const FLOW_LABEL: u32 = 0xf_ffff;

/// Private data of an address handle.
pub(crate) struct Ah {
    number: u32,
    attr: AhAttr,
}

impl Ah {
    /// The device's number of the handle.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What the handle was made of.
    pub(crate) fn attr(&self) -> &AhAttr {
        &self.attr
    }
}

/// A path as the device knows it; [`EINVAL`] where it leads nowhere.
pub(crate) fn to_hw(data: &Data<'_>, attr: &AhAttr) -> Result<AddressVector> {
    let port = u8::try_from(attr.port).map_err(|_| EINVAL)?;
    if !(1..=data.limits.ports).contains(&port) || attr.sl > MAX_SL {
        return Err(EINVAL);
    }

    let mut av = AddressVector {
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        port,
        static_rate: attr.static_rate,
        ..AddressVector::default()
    };
    if let Some(grh) = &attr.grh {
        if u16::from(grh.sgid_index) >= data.limits.gids || grh.flow_label & !FLOW_LABEL != 0 {
            return Err(EINVAL);
        }
        av.dgid = grh.dgid;
        av.flow_label = grh.flow_label;
        av.sgid_index = grh.sgid_index;
        av.hop_limit = grh.hop_limit;
        av.traffic_class = grh.traffic_class;
        av.flags = AV_GRH;
    }
    Ok(av)
}

/// A path of the device's as the verbs know it.
pub(crate) fn from_hw(av: &AddressVector) -> AhAttr {
    AhAttr {
        dlid: av.dlid,
        src_path_bits: av.src_path_bits,
        sl: av.sl,
        static_rate: av.static_rate,
        port: av.port.into(),
        grh: (av.flags & AV_GRH != 0).then_some(GlobalRoute {
            dgid: av.dgid,
            flow_label: av.flow_label,
            sgid_index: av.sgid_index,
            hop_limit: av.hop_limit,
            traffic_class: av.traffic_class,
        }),
    }
}

fn wait(sleepable: bool) -> Wait {
    if sleepable {
        Wait::Sleep
    } else {
        Wait::Poll
    }
}

/// Makes an address handle.
pub(crate) fn create(
    data: &Data<'_>,
    pd: &Pd,
    attr: &AhAttr,
    sleepable: bool,
    udata: &Udata<'_, Ochre>,
) -> Result<Ah> {
    udata.no_input()?;
    let input = qp::CreateAh {
        av: to_hw(data, attr)?,
        pd: pd.number(),
        ..qp::CreateAh::default()
    };
    let number = data.command::<CreateAh>(input, wait(sleepable))?.number;
    let ah = Ah {
        number,
        attr: *attr,
    };

    let response = CreateAhResp {
        ahn: number,
        ..CreateAhResp::default()
    };
    if let Err(e) = udata.respond(&response.to_bytes()) {
        destroy(data, &ah, sleepable);
        return Err(e);
    }
    Ok(ah)
}

/// The handle is going.
pub(crate) fn destroy(data: &Data<'_>, ah: &Ah, sleepable: bool) {
    // A handle uses no memory of ours: where it cannot be destroyed, that is in the log, and it
    // goes with the device.
    let _ = data.command::<DestroyAh>(number(ah.number), wait(sleepable));
}
