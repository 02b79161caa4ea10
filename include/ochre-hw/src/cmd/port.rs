// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Commands on ports.

use super::Field;

hw_struct! {
    /// Input of commands that name one port.
    pub struct PortIn, size 8 {
        /// Port, from 1.
        0x00 => port: u8,
        /// MBZ.
        0x01 => reserved: [u8; 7],
    }
}

hw_struct! {
    /// Input of commands that name an entry of a port's table.
    pub struct TableIn, size 8 {
        /// Port, from 1.
        0x00 => port: u8,
        /// MBZ.
        0x01 => reserved0: u8,
        /// Index.
        0x02 => index: u16,
        /// MBZ.
        0x04 => reserved1: [u8; 4],
    }
}

hw_struct! {
    /// Output of QUERY_PORT. Encodings are those of PortInfo.
    pub struct QueryPortOut, size 64 {
        /// GID prefix, as a number.
        0x00 => subnet_prefix: u64,
        /// Port GUID, as a number.
        0x08 => port_guid: u64,
        /// PortInfo CapabilityMask.
        0x10 => capability_mask: u32,
        /// Longest message, bytes.
        0x14 => max_message: u32,
        /// Own LID.
        0x18 => lid: u16,
        /// LID of the master subnet manager.
        0x1a => sm_lid: u16,
        /// P_Key violations.
        0x1c => pkey_violations: u16,
        /// Q_Key violations.
        0x1e => qkey_violations: u16,
        /// Link speed as in `enum ib_port_speed` (1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR).
        0x20 => active_speed: u16,
        /// P_Keys.
        0x22 => pkeys: u16,
        /// GIDs.
        0x24 => gids: u16,
        /// Port state: 1 Down, 2 Initialize, 3 Armed, 4 Active.
        0x26 => state: u8,
        /// Physical state: 1 Sleep, 2 Polling, 3 Disabled, 4 PortConfigurationTraining, 5 LinkUp, 6 LinkErrorRecovery.
        0x27 => phys_state: u8,
        /// Largest MTU: 1 (256 bytes) to 5 (4096).
        0x28 => max_mtu: u8,
        /// MTU in use, likewise.
        0x29 => active_mtu: u8,
        /// LID mask control.
        0x2a => lmc: u8,
        /// Service level of the subnet manager.
        0x2b => sm_sl: u8,
        /// Link width as in `enum ib_port_width` (1 1x, 2 4x, 4 8x, 8 12x, 16 2x).
        0x2c => active_width: u8,
        /// VLCap of PortInfo.
        0x2d => vl_cap: u8,
        /// SubnetTimeOut of PortInfo.
        0x2e => subnet_timeout: u8,
        /// InitTypeReply of PortInfo.
        0x2f => init_type_reply: u8,
        /// Zero.
        0x30 => reserved: [u8; 16],
    }
}

/// [`ModifyPort::flags`]: set the Q_Key violation counter to 0.
pub const RESET_QKEY_VIOLATIONS: u32 = 1 << 0;

hw_struct! {
    /// Input of MODIFY_PORT.
    pub struct ModifyPort, size 24 {
        /// Port, from 1.
        0x00 => port: u8,
        /// MBZ.
        0x01 => reserved0: [u8; 3],
        /// `RESET_QKEY_VIOLATIONS`, or 0.
        0x04 => flags: u32,
        /// Bits of CapabilityMask to set.
        0x08 => set_capabilities: u32,
        /// Bits of CapabilityMask to clear.
        0x0c => clear_capabilities: u32,
        /// MBZ.
        0x10 => reserved1: [u8; 8],
    }
}

hw_struct! {
    /// Output of QUERY_GID.
    pub struct QueryGidOut, size 16 {
        /// The GID in wire order.
        0x00 => gid: [u8; 16],
    }
}

hw_struct! {
    /// Output of QUERY_PKEY.
    pub struct QueryPkeyOut, size 8 {
        /// The P_Key.
        0x00 => pkey: u16,
        /// Zero.
        0x02 => reserved: [u8; 6],
    }
}

/// [`MadIn::flags`]: do not check the M_Key.
pub const MAD_IGNORE_MKEY: u8 = 1 << 0;
/// [`MadIn::flags`]: do not check the B_Key.
pub const MAD_IGNORE_BKEY: u8 = 1 << 1;
/// [`MadIn::flags`]: the MAD came in a packet, whose addresses are given.
pub const MAD_HAS_SOURCE: u8 = 1 << 2;

hw_struct! {
    /// Input of PROCESS_MAD: a MAD for the firmware's agents.
    pub struct MadIn, size 272 {
        /// Port, from 1.
        0x00 => port: u8,
        /// `MAD_*`.
        0x01 => flags: u8,
        /// LID of the sender, with `MAD_HAS_SOURCE`.
        0x02 => slid: u16,
        /// QP of the sender, likewise.
        0x04 => src_qpn: u32,
        /// Index of its P_Key, likewise.
        0x08 => pkey_index: u16,
        /// Its service level, likewise.
        0x0a => sl: u8,
        /// MBZ.
        0x0b => reserved: [u8; 5],
        /// The MAD in wire order.
        0x10 => mad: [u8; 256],
    }
}

/// [`MadOut::result`]: the firmware knows the class and has looked at the MAD.
pub const MAD_SUCCESS: u32 = 1 << 0;
/// [`MadOut::result`]: `mad` holds the reply.
pub const MAD_REPLY: u32 = 1 << 1;
/// [`MadOut::result`]: nobody else is to see the MAD.
pub const MAD_CONSUMED: u32 = 1 << 2;

hw_struct! {
    /// Output of PROCESS_MAD.
    pub struct MadOut, size 264 {
        /// `MAD_*`, the bits of `enum ib_mad_result`; 0: nothing of the firmware's.
        0x00 => result: u32,
        /// Zero.
        0x04 => reserved: u32,
        /// The reply in wire order.
        0x08 => mad: [u8; 256],
    }
}

hw_enum! {
    /// Counters of a port beyond those of the PMA, in the order of [`QueryCountersOut`]: what the
    /// driver shows under `hw_counters`.
    pub enum Counter: u8 {
        /// Requests sent again after a local ACK time-out.
        LocalAckTimeouts = 0,
        /// NAKs for a PSN sequence error received.
        PacketSeqErrors = 1,
        /// RNR NAKs received.
        RnrNakReceived = 2,
        /// RNR NAKs sent.
        RnrNakSent = 3,
        /// Requests that came twice.
        DuplicateRequests = 4,
        /// Requests out of order.
        OutOfSequence = 5,
        /// Responses that showed a lost READ or atomic response.
        ImpliedNakSeqErrors = 6,
        /// Requests refused for a key, an address or a right.
        RemoteAccessErrors = 7,
        /// Requests refused as invalid.
        RemoteInvalidRequests = 8,
        /// Requesters that gave up after all retries.
        RetryExceeded = 9,
        /// Packets dropped for a bad ICRC.
        IcrcErrors = 10,
        /// Packets dropped because no QP takes them.
        NoQp = 11,
        /// UD packets dropped for want of a receive.
        UdDropped = 12,
        /// CQs that overran.
        CqOverruns = 13,
        /// Doorbells written.
        Doorbells = 14,
        /// Interrupts raised.
        Interrupts = 15,
    }
}

impl Counter {
    /// The counter's name under `hw_counters`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LocalAckTimeouts => "local_ack_timeout_err",
            Self::PacketSeqErrors => "packet_seq_err",
            Self::RnrNakReceived => "rnr_nak_retry_err",
            Self::RnrNakSent => "rnr_nak_sent",
            Self::DuplicateRequests => "duplicate_request",
            Self::OutOfSequence => "out_of_sequence",
            Self::ImpliedNakSeqErrors => "implied_nak_seq_err",
            Self::RemoteAccessErrors => "resp_remote_access_errors",
            Self::RemoteInvalidRequests => "resp_remote_invalid_request",
            Self::RetryExceeded => "req_transport_retries_exceeded",
            Self::IcrcErrors => "rx_icrc_errors",
            Self::NoQp => "rx_no_qp",
            Self::UdDropped => "rx_ud_dropped",
            Self::CqOverruns => "cq_overruns",
            Self::Doorbells => "doorbells",
            Self::Interrupts => "interrupts",
        }
    }
}

/// Room for counters in [`QueryCountersOut`]: those of [`Counter`], and space for more.
pub const COUNTER_SLOTS: usize = 32;

hw_struct! {
    /// Output of QUERY_COUNTERS: 64-bit little-endian values at 8 times the number of each [`Counter`].
    pub struct QueryCountersOut, size 256 {
        /// The values.
        0x00 => values: [u8; 256],
    }
}

impl QueryCountersOut {
    /// Value of a counter.
    pub fn value(&self, counter: Counter) -> u64 {
        u64::get(&self.values[counter.raw() as usize * 8..])
    }

    /// Sets the value of a counter.
    pub fn set_value(&mut self, counter: Counter, value: u64) {
        value.put(&mut self.values[counter.raw() as usize * 8..]);
    }
}
