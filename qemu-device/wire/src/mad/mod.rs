// SPDX-License-Identifier: GPL-2.0-or-later
//! Management datagrams: the common header, subnet management packets and attributes.

pub(crate) mod fields;
pub mod notice;
pub mod pma;
pub mod sma;

use crate::bytes::{be16, be32, be64, put16, put32, put64};
use crate::types::Lid;

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;

/// Management classes.
pub mod class {
    /// Subnet management, LID-routed.
    pub const SUBN_LID_ROUTED: u8 = 0x01;
    /// Subnet management, directed-route.
    pub const SUBN_DIRECTED: u8 = 0x81;
    /// Subnet administration.
    pub const SUBN_ADM: u8 = 0x03;
    /// Performance management.
    pub const PERF: u8 = 0x04;
}

/// Methods. Responses have [`method::RESPONSE`] set.
pub mod method {
    /// Get
    pub const GET: u8 = 0x01;
    /// Set
    pub const SET: u8 = 0x02;
    /// Send
    pub const SEND: u8 = 0x03;
    /// Trap
    pub const TRAP: u8 = 0x05;
    /// Report
    pub const REPORT: u8 = 0x06;
    /// TrapRepress
    pub const TRAP_REPRESS: u8 = 0x07;
    /// The response bit.
    pub const RESPONSE: u8 = 0x80;
    /// GetResp, which also answers Set.
    pub const GET_RESP: u8 = 0x81;
}

/// Status codes common to all classes (low byte of the status field).
pub mod status {
    /// No error.
    pub const OK: u16 = 0;
    /// The receiver is busy; the request was discarded.
    pub const BUSY: u16 = 0x0001;
    /// Base or class version not supported, or the two do not go together.
    pub const BAD_VERSION: u16 = 0x0004;
    /// Method not supported.
    pub const BAD_METHOD: u16 = 0x0008;
    /// Attribute not supported with this method.
    pub const BAD_METHOD_ATTR: u16 = 0x000c;
    /// A field of the attribute or its modifier has an invalid value.
    pub const BAD_VALUE: u16 = 0x001c;
    /// Directed-route SMPs only: set on the way back.
    pub const DIRECTION: u16 = 0x8000;
}

/// Attribute identifiers.
pub mod attr {
    /// ClassPortInfo
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    /// Notice
    pub const NOTICE: u16 = 0x0002;
    /// NodeDescription
    pub const NODE_DESCRIPTION: u16 = 0x0010;
    /// NodeInfo
    pub const NODE_INFO: u16 = 0x0011;
    /// SwitchInfo
    pub const SWITCH_INFO: u16 = 0x0012;
    /// GUIDInfo
    pub const GUID_INFO: u16 = 0x0014;
    /// PortInfo
    pub const PORT_INFO: u16 = 0x0015;
    /// P_KeyTable
    pub const PKEY_TABLE: u16 = 0x0016;
    /// SLtoVLMappingTable
    pub const SL_TO_VL: u16 = 0x0017;
    /// VLArbitrationTable
    pub const VL_ARBITRATION: u16 = 0x0018;
    /// SMInfo
    pub const SM_INFO: u16 = 0x0020;
    /// VendorDiag
    pub const VENDOR_DIAG: u16 = 0x0030;
    /// LedInfo
    pub const LED_INFO: u16 = 0x0031;
    /// Performance management: PortCounters
    pub const PORT_COUNTERS: u16 = 0x0012;
    /// Performance management: PortCountersExtended
    pub const PORT_COUNTERS_EXT: u16 = 0x001d;
}

/// The only base version.
pub const BASE_VERSION: u8 = 1;
/// Class version of the subnet and performance management classes.
pub const CLASS_VERSION: u8 = 1;

/// A management datagram, with access to the fields of its common header and, for subnet
/// management packets, of the rest.
///
/// Any 256 bytes are a `Mad`; whoever handles one checks versions, class and method.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mad(pub [u8; MAD_LEN]);

impl core::fmt::Debug for Mad {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Mad {{ class {:#04x}, method {:#04x}, status {:#06x}, tid {:#018x}, attr {:#06x}, mod {:#010x} }}",
            self.class(),
            self.method(),
            self.status(),
            self.tid(),
            self.attr_id(),
            self.attr_mod()
        )
    }
}

impl Default for Mad {
    fn default() -> Self {
        Mad([0; MAD_LEN])
    }
}

/// Offset of the attribute data in subnet and performance management datagrams.
const DATA: usize = 64;

impl Mad {
    /// A request with current versions and no data.
    pub fn new(class: u8, method: u8, attr_id: u16, attr_mod: u32, tid: u64) -> Self {
        let mut m = Mad::default();
        m.0[0] = BASE_VERSION;
        m.0[1] = class;
        m.0[2] = CLASS_VERSION;
        m.0[3] = method;
        put64(&mut m.0, 8, tid);
        put16(&mut m.0, 16, attr_id);
        put32(&mut m.0, 20, attr_mod);
        m
    }

    /// Version of the common header.
    pub fn base_version(&self) -> u8 {
        self.0[0]
    }

    /// Management class.
    pub fn class(&self) -> u8 {
        self.0[1]
    }

    /// Version of the class.
    pub fn class_version(&self) -> u8 {
        self.0[2]
    }

    /// Method with the response bit.
    pub fn method(&self) -> u8 {
        self.0[3]
    }

    /// Writes the method.
    pub fn set_method(&mut self, method: u8) {
        self.0[3] = method;
    }

    /// Whether this answers a request. TrapRepress is a request of its own.
    pub fn is_response(&self) -> bool {
        self.method() & method::RESPONSE != 0
    }

    /// Status; in directed-route SMPs the top bit is the direction.
    pub fn status(&self) -> u16 {
        be16(&self.0, 4)
    }

    /// Writes the status, direction bit included.
    pub fn set_status(&mut self, status: u16) {
        put16(&mut self.0, 4, status);
    }

    /// Transaction.
    pub fn tid(&self) -> u64 {
        be64(&self.0, 8)
    }

    /// Attribute.
    pub fn attr_id(&self) -> u16 {
        be16(&self.0, 16)
    }

    /// Attribute modifier.
    pub fn attr_mod(&self) -> u32 {
        be32(&self.0, 20)
    }

    /// Writes the attribute modifier.
    pub fn set_attr_mod(&mut self, v: u32) {
        put32(&mut self.0, 20, v);
    }

    /// Whether the class is subnet management, of either routing.
    pub fn is_smp(&self) -> bool {
        matches!(self.class(), class::SUBN_LID_ROUTED | class::SUBN_DIRECTED)
    }

    /// Whether the class is directed-route subnet management.
    pub fn is_directed(&self) -> bool {
        self.class() == class::SUBN_DIRECTED
    }

    /// SMP: management key.
    pub fn m_key(&self) -> u64 {
        be64(&self.0, 24)
    }

    /// SMP: writes the management key.
    pub fn set_m_key(&mut self, key: u64) {
        put64(&mut self.0, 24, key);
    }

    /// SMP: attribute data.
    pub fn smp_data(&self) -> &[u8; 64] {
        sub(&self.0, DATA)
    }

    /// SMP: attribute data.
    pub fn smp_data_mut(&mut self) -> &mut [u8; 64] {
        sub_mut(&mut self.0, DATA)
    }

    /// Performance management: attribute data.
    pub fn pma_data(&self) -> &[u8; 192] {
        sub(&self.0, DATA)
    }

    /// Performance management: attribute data.
    pub fn pma_data_mut(&mut self) -> &mut [u8; 192] {
        sub_mut(&mut self.0, DATA)
    }

    /// Directed route: on the way back.
    pub fn is_returning(&self) -> bool {
        self.status() & status::DIRECTION != 0
    }

    /// Directed route: hop pointer.
    pub fn hop_pointer(&self) -> u8 {
        self.0[6]
    }

    /// Directed route: writes the hop pointer.
    pub fn set_hop_pointer(&mut self, v: u8) {
        self.0[6] = v;
    }

    /// Directed route: hop count.
    pub fn hop_count(&self) -> u8 {
        self.0[7]
    }

    /// Directed route: writes the hop count.
    pub fn set_hop_count(&mut self, v: u8) {
        self.0[7] = v;
    }

    /// Directed route: LID of the source, permissive if the route starts directed.
    pub fn dr_slid(&self) -> Lid {
        Lid(be16(&self.0, 32))
    }

    /// Directed route: LID of the destination, permissive if the route ends directed.
    pub fn dr_dlid(&self) -> Lid {
        Lid(be16(&self.0, 34))
    }

    /// Directed route: writes source and destination LID.
    pub fn set_dr_lids(&mut self, slid: Lid, dlid: Lid) {
        put16(&mut self.0, 32, slid.0);
        put16(&mut self.0, 34, dlid.0);
    }

    /// Directed route: ports to leave through, by hop; entry 0 is not used.
    pub fn initial_path(&self) -> &[u8; 64] {
        sub(&self.0, 128)
    }

    /// Directed route: ports to leave through, by hop; entry 0 is not used.
    pub fn initial_path_mut(&mut self) -> &mut [u8; 64] {
        sub_mut(&mut self.0, 128)
    }

    /// Directed route: ports entered through, by hop; entry 0 is not used.
    pub fn return_path(&self) -> &[u8; 64] {
        sub(&self.0, 192)
    }

    /// Directed route: ports entered through, by hop; entry 0 is not used.
    pub fn return_path_mut(&mut self) -> &mut [u8; 64] {
        sub_mut(&mut self.0, 192)
    }
}

/// `N` bytes at `at`; every caller stays inside.
fn sub<const N: usize>(b: &[u8; MAD_LEN], at: usize) -> &[u8; N] {
    match b[at..].first_chunk() {
        Some(s) => s,
        None => unreachable!("field inside the datagram"),
    }
}

fn sub_mut<const N: usize>(b: &mut [u8; MAD_LEN], at: usize) -> &mut [u8; N] {
    match b[at..].first_chunk_mut() {
        Some(s) => s,
        None => unreachable!("field inside the datagram"),
    }
}
