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
        cmd::{
            device::QueryDeviceOut,
            qp, //
        },
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

/// A path as a device with these limits knows it; [`EINVAL`] where it leads nowhere.
pub(crate) fn to_hw(limits: &QueryDeviceOut, attr: &AhAttr) -> Result<AddressVector> {
    let port = u8::try_from(attr.port).map_err(|_| EINVAL)?;
    if !(1..=limits.ports).contains(&port) || attr.sl > MAX_SL {
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
        if u16::from(grh.sgid_index) >= limits.gids || grh.flow_label & !FLOW_LABEL != 0 {
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
        av: to_hw(&data.limits, attr)?,
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

#[kunit_tests(ochre_ah)]
mod tests {
    use super::*;

    fn limits() -> QueryDeviceOut {
        QueryDeviceOut {
            ports: 2,
            gids: 8,
            ..QueryDeviceOut::default()
        }
    }

    fn path() -> AhAttr {
        AhAttr {
            dlid: 0x1234,
            src_path_bits: 5,
            sl: 15,
            static_rate: 2,
            port: 2,
            grh: Some(GlobalRoute {
                dgid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
                flow_label: 0xf_ffff,
                sgid_index: 7,
                hop_limit: 64,
                traffic_class: 0xa5,
            }),
        }
    }

    #[test]
    fn a_path_comes_back_as_it_was() -> Result {
        let local = AhAttr {
            grh: None,
            ..path()
        };
        assert_eq!(from_hw(&to_hw(&limits(), &path())?), path());
        assert_eq!(from_hw(&to_hw(&limits(), &local)?), local);
        assert_eq!(to_hw(&limits(), &local)?.flags, 0);
        Ok(())
    }

    #[test]
    fn ports_of_the_device_only() {
        for port in [0, 3, 256, 257, u32::MAX] {
            assert!(to_hw(&limits(), &AhAttr { port, ..path() }) == Err(EINVAL));
        }
    }

    #[test]
    fn service_levels_have_four_bits() {
        assert!(to_hw(&limits(), &AhAttr { sl: 16, ..path() }) == Err(EINVAL));
    }

    #[test]
    fn a_global_route_needs_a_gid_of_the_port_and_a_label_of_20_bits() {
        let route = |change: fn(&mut GlobalRoute)| {
            let mut path = path();
            if let Some(grh) = &mut path.grh {
                change(grh);
            }
            to_hw(&limits(), &path)
        };
        assert!(route(|grh| grh.sgid_index = 8) == Err(EINVAL));
        assert!(route(|grh| grh.sgid_index = 255) == Err(EINVAL));
        assert!(route(|grh| grh.flow_label = 0x10_0000) == Err(EINVAL));
        assert!(route(|grh| grh.sgid_index = 0).is_ok());
    }
}
