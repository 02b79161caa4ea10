// SPDX-License-Identifier: GPL-2.0-or-later
//! The performance management agent.

use ochre_link::Counters;
use ochre_wire::mad::pma::{
    class_cap, ClassPortInfo, PortCounters, PortCountersExt, CLASS_CAP2_ADDITIONAL_EXTENDED,
};
use ochre_wire::mad::{attr, method, status, Mad, BASE_VERSION, CLASS_VERSION};

use super::agent::Agent;
use super::link::Link;
use super::{reply, Outcome};

/// Port number in a request that stands for all ports.
const ALL_PORTS: u8 = 0xff;
/// Response time: 4.096 us * 2^10, 4 ms.
const RESPONSE_TIME: u8 = 10;

/// Counters in the order of the bits of CounterSelect of PortCounters, then PortXmitWait, then
/// those that only PortCountersExtended has.
const COUNTERS: usize = 21;
const XMIT_DATA: usize = 12;
const XMIT_WAIT: usize = 16;
const UNICAST_XMIT: usize = 17;

fn list(c: &Counters) -> [u64; COUNTERS] {
    [
        c.symbol_errors,
        c.link_error_recovery,
        c.link_downed,
        c.rcv_errors,
        c.rcv_remote_physical_errors,
        c.rcv_switch_relay_errors,
        c.xmit_discards,
        c.xmit_constraint_errors,
        c.rcv_constraint_errors,
        c.local_link_integrity_errors,
        c.excessive_buffer_overrun_errors,
        c.vl15_dropped,
        c.xmit_data,
        c.rcv_data,
        c.xmit_pkts,
        c.rcv_pkts,
        c.xmit_wait,
        c.unicast_xmit_pkts,
        c.unicast_rcv_pkts,
        c.multicast_xmit_pkts,
        c.multicast_rcv_pkts,
    ]
}

/// What is taken off the link's counters: they never go back, those of the agent can be set.
#[derive(Debug)]
pub(super) struct Baselines {
    narrow: [u64; COUNTERS],
    wide: [u64; COUNTERS],
}

impl Baselines {
    /// All counters of the agent read 0 where those of the link are at `counters`.
    pub(super) fn at(counters: &Counters) -> Self {
        let now = list(counters);
        Baselines {
            narrow: now,
            wide: now,
        }
    }
}

fn above(counters: &[u64; COUNTERS], base: &[u64; COUNTERS]) -> [u64; COUNTERS] {
    core::array::from_fn(|i| counters[i].wrapping_sub(base[i]))
}

/// Handles a request of the performance management class that came to `port`, from 1.
pub(super) fn handle<L: Link>(
    agents: &mut [Agent],
    links: &mut [L],
    port: u8,
    mad: &Mad,
) -> Outcome {
    if mad.base_version() != BASE_VERSION || mad.class_version() != CLASS_VERSION {
        return reply(*mad, status::BAD_VERSION);
    }
    let set = match mad.method() {
        method::GET => false,
        method::SET => true,
        _ => return reply(*mad, status::BAD_METHOD),
    };
    let ports = agents.len().min(links.len());
    let (agents, links) = (&mut agents[..ports], &mut links[..ports]);
    let mut out = *mad;
    let code = match (mad.attr_id(), set) {
        (attr::CLASS_PORT_INFO, false) => class_port_info(&mut out),
        (attr::PORT_COUNTERS, _) => port_counters(agents, links, port, set, &mut out),
        (attr::PORT_COUNTERS_EXT, _) => port_counters_ext(agents, links, port, set, &mut out),
        _ => status::BAD_METHOD_ATTR,
    };
    reply(out, code)
}

fn class_port_info(mad: &mut Mad) -> u16 {
    if mad.attr_mod() != 0 {
        return status::BAD_VALUE;
    }
    ClassPortInfo {
        base_version: BASE_VERSION,
        class_version: CLASS_VERSION,
        capability_mask: class_cap::ALL_PORT_SELECT
            | class_cap::EXTENDED_WIDTH
            | class_cap::XMIT_WAIT,
        capability_mask2: CLASS_CAP2_ADDITIONAL_EXTENDED,
        resp_time_value: RESPONSE_TIME,
        ..ClassPortInfo::default()
    }
    .write(mad.pma_data_mut());
    status::OK
}

/// Ports, from 0, that a request selects.
fn selected(ports: usize, own: u8, select: u8) -> Option<std::ops::Range<usize>> {
    match select {
        ALL_PORTS => Some(0..ports),
        0 => selected(ports, own, own),
        n if usize::from(n) <= ports => Some(usize::from(n) - 1..usize::from(n)),
        _ => None,
    }
}

fn port_counters<L: Link>(
    agents: &mut [Agent],
    links: &mut [L],
    own: u8,
    set: bool,
    mad: &mut Mad,
) -> u16 {
    let request = PortCounters::read(mad.pma_data());
    let Some(range) = selected(agents.len(), own, request.port_select) else {
        return status::BAD_VALUE;
    };
    if mad.attr_mod() != 0 {
        return status::BAD_VALUE;
    }
    let select =
        u32::from(request.counter_select) | u32::from(request.counter_select2 & 1) << XMIT_WAIT;
    let values = [
        request.symbol_error.into(),
        request.link_error_recovery.into(),
        request.link_downed.into(),
        request.rcv_errors.into(),
        request.rcv_remote_physical_errors.into(),
        request.rcv_switch_relay_errors.into(),
        request.xmit_discards.into(),
        request.xmit_constraint_errors.into(),
        request.rcv_constraint_errors.into(),
        request.local_link_integrity_errors.into(),
        request.buffer_overrun_errors.into(),
        request.vl15_dropped.into(),
        request.xmit_data.into(),
        request.rcv_data.into(),
        request.xmit_pkts.into(),
        request.rcv_pkts.into(),
        request.xmit_wait.into(),
        0,
        0,
        0,
        0,
    ];
    let mut sum = [0_u64; COUNTERS];
    for (agent, link) in agents[range.clone()].iter_mut().zip(&mut links[range]) {
        let now = list(&link.counters());
        if set {
            set_values(&mut agent.baselines.narrow, &now, select, &values);
        }
        for (total, value) in sum.iter_mut().zip(above(&now, &agent.baselines.narrow)) {
            *total = total.saturating_add(value);
        }
    }
    let to8 = |v: u64| u8::try_from(v).unwrap_or(u8::MAX);
    let to16 = |v: u64| u16::try_from(v).unwrap_or(u16::MAX);
    let to32 = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
    PortCounters {
        port_select: request.port_select,
        counter_select: request.counter_select,
        symbol_error: to16(sum[0]),
        link_error_recovery: to8(sum[1]),
        link_downed: to8(sum[2]),
        rcv_errors: to16(sum[3]),
        rcv_remote_physical_errors: to16(sum[4]),
        rcv_switch_relay_errors: to16(sum[5]),
        xmit_discards: to16(sum[6]),
        xmit_constraint_errors: to8(sum[7]),
        rcv_constraint_errors: to8(sum[8]),
        counter_select2: request.counter_select2,
        local_link_integrity_errors: sum[9].min(15) as u8,
        buffer_overrun_errors: sum[10].min(15) as u8,
        vl15_dropped: to16(sum[11]),
        xmit_data: to32(sum[XMIT_DATA]),
        rcv_data: to32(sum[13]),
        xmit_pkts: to32(sum[14]),
        rcv_pkts: to32(sum[15]),
        xmit_wait: to32(sum[XMIT_WAIT]),
    }
    .write(mad.pma_data_mut());
    status::OK
}

fn port_counters_ext<L: Link>(
    agents: &mut [Agent],
    links: &mut [L],
    own: u8,
    set: bool,
    mad: &mut Mad,
) -> u16 {
    let request = PortCountersExt::read(mad.pma_data());
    let Some(range) = selected(agents.len(), own, request.port_select) else {
        return status::BAD_VALUE;
    };
    if mad.attr_mod() != 0 {
        return status::BAD_VALUE;
    }
    let main = u32::from(request.counter_select);
    let errors = request.counter_select2;
    let select = errors & 0xfff
        | (errors >> 12 & 1) << XMIT_WAIT
        | (main & 0xf) << XMIT_DATA
        | (main >> 4 & 0xf) << UNICAST_XMIT;
    let values = [
        request.symbol_error,
        request.link_error_recovery,
        request.link_downed,
        request.rcv_errors,
        request.rcv_remote_physical_errors,
        request.rcv_switch_relay_errors,
        request.xmit_discards,
        request.xmit_constraint_errors,
        request.rcv_constraint_errors,
        request.local_link_integrity_errors,
        request.buffer_overrun_errors,
        request.vl15_dropped,
        request.xmit_data,
        request.rcv_data,
        request.xmit_pkts,
        request.rcv_pkts,
        request.xmit_wait,
        request.unicast_xmit_pkts,
        request.unicast_rcv_pkts,
        request.multicast_xmit_pkts,
        request.multicast_rcv_pkts,
    ];
    let mut sum = [0_u64; COUNTERS];
    for (agent, link) in agents[range.clone()].iter_mut().zip(&mut links[range]) {
        let now = list(&link.counters());
        if set {
            set_values(&mut agent.baselines.wide, &now, select, &values);
        }
        for (total, value) in sum.iter_mut().zip(above(&now, &agent.baselines.wide)) {
            *total = total.wrapping_add(value);
        }
    }
    PortCountersExt {
        port_select: request.port_select,
        counter_select: request.counter_select,
        counter_select2: request.counter_select2,
        symbol_error: sum[0],
        link_error_recovery: sum[1],
        link_downed: sum[2],
        rcv_errors: sum[3],
        rcv_remote_physical_errors: sum[4],
        rcv_switch_relay_errors: sum[5],
        xmit_discards: sum[6],
        xmit_constraint_errors: sum[7],
        rcv_constraint_errors: sum[8],
        local_link_integrity_errors: sum[9],
        buffer_overrun_errors: sum[10],
        vl15_dropped: sum[11],
        xmit_data: sum[XMIT_DATA],
        rcv_data: sum[13],
        xmit_pkts: sum[14],
        rcv_pkts: sum[15],
        xmit_wait: sum[XMIT_WAIT],
        unicast_xmit_pkts: sum[UNICAST_XMIT],
        unicast_rcv_pkts: sum[18],
        multicast_xmit_pkts: sum[19],
        multicast_rcv_pkts: sum[20],
    }
    .write(mad.pma_data_mut());
    status::OK
}

/// Makes the selected counters read `values` from now on.
fn set_values(
    base: &mut [u64; COUNTERS],
    now: &[u64; COUNTERS],
    select: u32,
    values: &[u64; COUNTERS],
) {
    for i in (0..COUNTERS).filter(|i| select >> i & 1 != 0) {
        base[i] = now[i].wrapping_sub(values[i]);
    }
}
