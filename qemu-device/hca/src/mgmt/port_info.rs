// SPDX-License-Identifier: GPL-2.0-or-later
//! PortInfo: reading it, and changing a port as a subnet manager asks.

use ochre_hw::eqe::EventType;
use ochre_link::{PhysState, PortState, Speeds, Widths};
use ochre_wire::mad::sma::{phys_state, port_state, PortInfo};
use ochre_wire::mad::{method, status, Mad};
use ochre_wire::{Mtu, Sl};

use super::agent::Agent;
use super::link::Link;
use crate::port::PortContext;

/// Response time of the agent: 4.096 us * 2^16, 268 ms; a host that emulates may be slow.
const RESPONSE_TIME: u8 = 16;
/// LinkRoundTripLatency of a port that does not measure it.
const LATENCY_UNKNOWN: u32 = 0xff_ffff;

/// LinkWidthEnabled: all that are supported.
const ALL_WIDTHS: u8 = 0xff;
/// LinkSpeedEnabled: all that are supported.
const ALL_SPEEDS: u8 = 15;
/// LinkSpeedExtEnabled: all that are supported.
const ALL_EXT_SPEEDS: u8 = 31;
/// LinkSpeedExtEnabled: none.
const NO_EXT_SPEEDS: u8 = 30;
/// LinkSpeedActive while an extended speed is in use.
const SPEED_QDR: u8 = 4;
/// LinkSpeedExtActive for speeds beyond what the field can name.
const SPEED_EXT_NDR: u8 = 8;

/// VLCap and OperationalVLs: code of a number of data lanes.
fn vl_code(lanes: u8) -> u8 {
    match lanes {
        0 | 1 => 1,
        2 | 3 => 2,
        4..=7 => 3,
        8..=14 => 4,
        _ => 5,
    }
}

/// Number of data lanes of a code.
fn lanes_of(code: u8) -> Option<u8> {
    [1, 2, 4, 8, 15]
        .get(usize::from(code).checked_sub(1)?)
        .copied()
}

/// The attribute as it is now, M_Key included.
pub(super) fn current<L: Link>(agent: &Agent, port: &PortContext, link: &L) -> PortInfo {
    let (widths, speeds) = (link.widths(), link.speeds());
    let mut speed_active = speeds.active.basic();
    let mut ext_active = speeds.active.ext();
    if speed_active == 0 {
        speed_active = SPEED_QDR;
        if ext_active == 0 && speeds.active == Speeds::XDR {
            ext_active = SPEED_EXT_NDR;
        }
    }
    let arbitration = Agent::arbitration_cap(link) as u8;
    PortInfo {
        m_key: agent.m_key,
        gid_prefix: port.gid_prefix,
        lid: port.lid,
        master_sm_lid: port.sm_lid,
        capability_mask: agent.capability_mask,
        diag_code: 0,
        m_key_lease_period: agent.m_key_lease,
        local_port_num: port.number,
        link_width_enabled: widths.enabled.0,
        link_width_supported: widths.supported.0,
        link_width_active: widths.active.0,
        link_speed_supported: speeds.supported.basic(),
        port_state: link.state().code(),
        port_physical_state: link.phys_state().code(),
        link_down_default_state: link.down_default().code(),
        m_key_protect_bits: agent.m_key_protect,
        lmc: port.lmc,
        link_speed_active: speed_active,
        link_speed_enabled: speeds.enabled.basic(),
        neighbor_mtu: port.mtu.code(),
        master_sm_sl: port.sm_sl.get(),
        vl_cap: vl_code(link.data_vls()),
        init_type: 0,
        vl_high_limit: agent.vl_high_limit,
        vl_arbitration_high_cap: arbitration,
        vl_arbitration_low_cap: arbitration,
        init_type_reply: agent.init_type_reply,
        mtu_cap: link.mtu_cap().code(),
        vl_stall_count: 0,
        hoq_life: 0,
        operational_vls: vl_code(link.operational_vls()),
        partition_enforcement_inbound: false,
        partition_enforcement_outbound: false,
        filter_raw_inbound: false,
        filter_raw_outbound: false,
        m_key_violations: agent.m_key_violations,
        p_key_violations: port.pkey_violations,
        q_key_violations: port.qkey_violations,
        guid_cap: port.guids.len().min(255) as u8,
        client_reregister: false,
        multicast_pkey_trap_suppression: agent.multicast_pkey_trap_suppression,
        subnet_timeout: agent.subnet_timeout,
        resp_time_value: RESPONSE_TIME,
        local_phy_errors: agent.local_phy_errors,
        overrun_errors: agent.overrun_errors,
        max_credit_hint: 0,
        link_round_trip_latency: LATENCY_UNKNOWN,
        capability_mask2: agent.capability_mask2,
        link_speed_ext_active: ext_active,
        link_speed_ext_supported: speeds.supported.ext(),
        link_speed_ext_enabled: speeds.enabled.ext(),
    }
}

/// Answers a Get by a holder of `key`: at protection level 1 and above only the right key shows
/// the M_Key.
pub(super) fn get<L: Link>(agent: &Agent, port: &PortContext, link: &L, key: u64, mad: &mut Mad) {
    let mut info = current(agent, port, link);
    if agent.m_key_protect != 0 && agent.m_key != key && mad.method() == method::GET {
        info.m_key = 0;
    }
    info.write(mad.smp_data_mut());
}

/// What a Set changes, checked.
struct Change {
    widths: Option<Widths>,
    speeds: Speeds,
    down_default: Option<PhysState>,
    mtu: Mtu,
    lanes: Option<u8>,
    state: Option<PortState>,
    down: Option<PhysState>,
}

/// Checks all fields that can be wrong; `None` if one is.
fn check<L: Link>(new: &PortInfo, port: &PortContext, link: &L) -> Option<Change> {
    if new.lid != port.lid && !new.lid.is_unicast() {
        return None;
    }
    if new.master_sm_lid != port.sm_lid && !new.master_sm_lid.is_unicast() {
        return None;
    }
    let widths = match (new.link_width_enabled, link.widths().supported) {
        (0, _) => None,
        (ALL_WIDTHS, supported) => Some(supported),
        (some, supported) if some & !supported.0 == 0 => Some(Widths(some)),
        _ => return None,
    };
    let speeds = link.speeds();
    let basic = match (new.link_speed_enabled, speeds.supported.basic()) {
        (0, _) => speeds.enabled.basic(),
        (ALL_SPEEDS, supported) => supported,
        (some, supported) if some & !supported == 0 => some,
        _ => return None,
    };
    let ext = match (new.link_speed_ext_enabled, speeds.supported.ext()) {
        (0, _) => speeds.enabled.ext(),
        (NO_EXT_SPEEDS, _) => 0,
        (ALL_EXT_SPEEDS, supported) => supported,
        (some, supported) if some & !supported == 0 => some,
        _ => return None,
    };
    let down_default = match new.link_down_default_state {
        0 => None,
        phys_state::SLEEP => Some(PhysState::Sleep),
        phys_state::POLLING => Some(PhysState::Polling),
        _ => return None,
    };
    let mtu = Mtu::from_code(new.neighbor_mtu).filter(|m| *m <= link.mtu_cap())?;
    let lanes = match new.operational_vls {
        0 => None,
        code => Some(lanes_of(code).filter(|n| *n <= link.data_vls())?),
    };
    let down = match new.port_physical_state {
        phys_state::NO_CHANGE => None,
        phys_state::SLEEP => Some(PhysState::Sleep),
        phys_state::POLLING => Some(PhysState::Polling),
        phys_state::DISABLED => Some(PhysState::Disabled),
        _ => return None,
    };
    let state = match new.port_state {
        // The physical state alone: as with Down.
        port_state::NO_CHANGE => None,
        port_state::DOWN => Some(PortState::Down),
        wanted => {
            // Initialize cannot be asked for, and a state is not asked for with a way down.
            if down.is_some() {
                return None;
            }
            let wanted = PortState::from_code(wanted)?;
            link.state().set(wanted).ok()?;
            Some(wanted)
        }
    };
    Some(Change {
        widths,
        speeds: speeds.enabled.with(basic, ext),
        down_default,
        mtu,
        lanes,
        state,
        down,
    })
}

/// Carries out a Set, or refuses all of it; the data of `mad` become those of the answer. Gives the
/// status.
pub(super) fn set<L: Link>(
    agent: &mut Agent,
    port: &mut PortContext,
    link: &mut L,
    mad: &mut Mad,
) -> u16 {
    let new = PortInfo::read(mad.smp_data());
    let Some(change) = check(&new, port, link) else {
        current(agent, port, link).write(mad.smp_data_mut());
        return status::BAD_VALUE;
    };

    agent.m_key = new.m_key;
    agent.m_key_protect = new.m_key_protect_bits;
    agent.m_key_lease = new.m_key_lease_period;
    agent.lease_end = None;
    agent.subnet_timeout = new.subnet_timeout;
    agent.init_type_reply = new.init_type_reply;
    agent.multicast_pkey_trap_suppression = new.multicast_pkey_trap_suppression;
    // Violation counters can only be cleared.
    if new.m_key_violations == 0 {
        agent.m_key_violations = 0;
    }
    if new.p_key_violations == 0 {
        port.pkey_violations = 0;
    }
    if new.q_key_violations == 0 {
        port.qkey_violations = 0;
    }

    if new.gid_prefix != port.gid_prefix {
        port.gid_prefix = new.gid_prefix;
        agent.event(EventType::GidChange);
    }
    if new.lid != port.lid || new.lmc != port.lmc {
        port.lid = new.lid;
        port.lmc = new.lmc;
        link.set_lid(new.lid, new.lmc);
        agent.event(EventType::LidChange);
    }
    let sm_sl = Sl::new(new.master_sm_sl);
    if new.master_sm_lid != port.sm_lid || sm_sl != port.sm_sl {
        port.sm_lid = new.master_sm_lid;
        port.sm_sl = sm_sl;
        agent.event(EventType::SmChange);
    }
    if new.client_reregister {
        agent.event(EventType::ClientReregister);
    }

    if let Some(widths) = change.widths.filter(|w| *w != link.widths().enabled) {
        link.enable_widths(widths);
    }
    if change.speeds != link.speeds().enabled {
        link.enable_speeds(change.speeds);
    }
    if let Some(state) = change.down_default {
        link.set_down_default(state);
    }
    if change.mtu != port.mtu {
        port.mtu = change.mtu;
        link.set_mtu(change.mtu);
    }
    if let Some(lanes) = change.lanes.filter(|n| *n != link.operational_vls()) {
        link.set_operational_vls(lanes);
        agent.apply_sl_to_vl(port, link);
    }
    if new.vl_high_limit != agent.vl_high_limit {
        agent.vl_high_limit = new.vl_high_limit;
        agent.apply_arbitration(link);
    }
    let thresholds = (new.local_phy_errors, new.overrun_errors);
    if thresholds != (agent.local_phy_errors, agent.overrun_errors) {
        (agent.local_phy_errors, agent.overrun_errors) = thresholds;
        link.set_error_thresholds(thresholds.0, thresholds.1);
    }

    match (change.state, change.down) {
        // The answer has to leave first: see `Mgmt::poll`.
        (Some(PortState::Down), None) => agent.link_down = Some(link.down_default()),
        (_, Some(state)) => agent.link_down = Some(state),
        (Some(state), None) => {
            if link.set_state(state).is_err() {
                current(agent, port, link).write(mad.smp_data_mut());
                return status::BAD_VALUE;
            }
        }
        (None, None) => {}
    }
    let mut info = current(agent, port, link);
    info.client_reregister = new.client_reregister;
    info.write(mad.smp_data_mut());
    status::OK
}
