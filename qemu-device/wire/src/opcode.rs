// SPDX-License-Identifier: GPL-2.0-or-later
//! BTH opcodes: transport service in the top 3 bits, operation in the low 5.

/// Transport service of a packet. Reliable datagram is obsolete and not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection
    Rc = 0,
    /// Unreliable connection
    Uc = 1,
    /// Unreliable datagram
    Ud = 3,
    /// Extended reliable connection
    Xrc = 5,
}

/// Operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names are the specification's
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Ack = 0x11,
    AtomicAck = 0x12,
    CmpSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInv = 0x16,
    SendOnlyInv = 0x17,
}

use Operation as Op;

const RETH: u16 = 1 << 0;
const AETH: u16 = 1 << 1;
const ATOMIC: u16 = 1 << 2;
const ATOMIC_ACK: u16 = 1 << 3;
const IMM: u16 = 1 << 4;
const IETH: u16 = 1 << 5;
const PAYLOAD: u16 = 1 << 6;
const START: u16 = 1 << 7;
const END: u16 = 1 << 8;
const RESPONSE: u16 = 1 << 9;

/// Flags of each operation, by its 5-bit code; 0 for a code that is not used.
const FLAGS: [u16; 32] = {
    let mut t = [0; 32];
    t[Op::SendFirst as usize] = START | PAYLOAD;
    t[Op::SendMiddle as usize] = PAYLOAD;
    t[Op::SendLast as usize] = END | PAYLOAD;
    t[Op::SendLastImm as usize] = END | PAYLOAD | IMM;
    t[Op::SendOnly as usize] = START | END | PAYLOAD;
    t[Op::SendOnlyImm as usize] = START | END | PAYLOAD | IMM;
    t[Op::WriteFirst as usize] = START | PAYLOAD | RETH;
    t[Op::WriteMiddle as usize] = PAYLOAD;
    t[Op::WriteLast as usize] = END | PAYLOAD;
    t[Op::WriteLastImm as usize] = END | PAYLOAD | IMM;
    t[Op::WriteOnly as usize] = START | END | PAYLOAD | RETH;
    t[Op::WriteOnlyImm as usize] = START | END | PAYLOAD | RETH | IMM;
    t[Op::ReadRequest as usize] = START | END | RETH;
    t[Op::ReadResponseFirst as usize] = RESPONSE | START | PAYLOAD | AETH;
    t[Op::ReadResponseMiddle as usize] = RESPONSE | PAYLOAD;
    t[Op::ReadResponseLast as usize] = RESPONSE | END | PAYLOAD | AETH;
    t[Op::ReadResponseOnly as usize] = RESPONSE | START | END | PAYLOAD | AETH;
    t[Op::Ack as usize] = RESPONSE | START | END | AETH;
    t[Op::AtomicAck as usize] = RESPONSE | START | END | AETH | ATOMIC_ACK;
    t[Op::CmpSwap as usize] = START | END | ATOMIC;
    t[Op::FetchAdd as usize] = START | END | ATOMIC;
    t[Op::SendLastInv as usize] = END | PAYLOAD | IETH;
    t[Op::SendOnlyInv as usize] = START | END | PAYLOAD | IETH;
    t
};

impl Operation {
    /// The operation with this 5-bit code, if it is one.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Op::SendFirst,
            0x01 => Op::SendMiddle,
            0x02 => Op::SendLast,
            0x03 => Op::SendLastImm,
            0x04 => Op::SendOnly,
            0x05 => Op::SendOnlyImm,
            0x06 => Op::WriteFirst,
            0x07 => Op::WriteMiddle,
            0x08 => Op::WriteLast,
            0x09 => Op::WriteLastImm,
            0x0a => Op::WriteOnly,
            0x0b => Op::WriteOnlyImm,
            0x0c => Op::ReadRequest,
            0x0d => Op::ReadResponseFirst,
            0x0e => Op::ReadResponseMiddle,
            0x0f => Op::ReadResponseLast,
            0x10 => Op::ReadResponseOnly,
            0x11 => Op::Ack,
            0x12 => Op::AtomicAck,
            0x13 => Op::CmpSwap,
            0x14 => Op::FetchAdd,
            0x16 => Op::SendLastInv,
            0x17 => Op::SendOnlyInv,
            _ => return None,
        })
    }

    #[inline]
    const fn has(self, flag: u16) -> bool {
        FLAGS[self as usize] & flag != 0
    }

    /// Carries a RETH.
    #[inline]
    pub const fn has_reth(self) -> bool {
        self.has(RETH)
    }

    /// Carries an AETH.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        self.has(AETH)
    }

    /// Carries an AtomicETH.
    #[inline]
    pub const fn has_atomic(self) -> bool {
        self.has(ATOMIC)
    }

    /// Carries an AtomicAckETH.
    #[inline]
    pub const fn has_atomic_ack(self) -> bool {
        self.has(ATOMIC_ACK)
    }

    /// Carries immediate data.
    #[inline]
    pub const fn has_imm(self) -> bool {
        self.has(IMM)
    }

    /// Carries an IETH (key to invalidate).
    #[inline]
    pub const fn has_ieth(self) -> bool {
        self.has(IETH)
    }

    /// May carry payload.
    #[inline]
    pub const fn has_payload(self) -> bool {
        self.has(PAYLOAD)
    }

    /// First packet of a message (First, Only, and the single-packet operations).
    #[inline]
    pub const fn starts_message(self) -> bool {
        self.has(START)
    }

    /// Last packet of a message (Last, Only, and the single-packet operations).
    #[inline]
    pub const fn ends_message(self) -> bool {
        self.has(END)
    }

    /// Goes from responder to requester.
    #[inline]
    pub const fn is_response(self) -> bool {
        self.has(RESPONSE)
    }

    /// Any packet of a SEND.
    #[inline]
    pub const fn is_send(self) -> bool {
        matches!(self as u8, 0x00..=0x05 | 0x16 | 0x17)
    }

    /// Any packet of an RDMA WRITE.
    #[inline]
    pub const fn is_write(self) -> bool {
        matches!(self as u8, 0x06..=0x0b)
    }

    /// Any packet of an RDMA READ response.
    #[inline]
    pub const fn is_read_response(self) -> bool {
        matches!(self as u8, 0x0d..=0x10)
    }

    /// Compare-and-swap or fetch-and-add request.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        self.has_atomic()
    }
}

/// Transport service and operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode {
    /// The service.
    pub transport: Transport,
    /// What the packet does.
    pub op: Operation,
}

impl Opcode {
    /// `op` over `transport`.
    #[inline]
    pub const fn new(transport: Transport, op: Operation) -> Self {
        Opcode { transport, op }
    }

    /// `op` over RC.
    #[inline]
    pub const fn rc(op: Operation) -> Self {
        Opcode::new(Transport::Rc, op)
    }

    /// `op` over UC.
    #[inline]
    pub const fn uc(op: Operation) -> Self {
        Opcode::new(Transport::Uc, op)
    }

    /// SEND Only over UD.
    pub const UD_SEND_ONLY: Opcode = Opcode::new(Transport::Ud, Op::SendOnly);
    /// SEND Only with immediate over UD.
    pub const UD_SEND_ONLY_IMM: Opcode = Opcode::new(Transport::Ud, Op::SendOnlyImm);

    /// The opcode of a BTH, if the transport is known and has the operation.
    #[inline]
    pub const fn from_u8(v: u8) -> Option<Self> {
        let transport = match v >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            3 => Transport::Ud,
            5 => Transport::Xrc,
            _ => return None,
        };
        match Operation::from_code(v & 0x1f) {
            Some(op) if Opcode::new(transport, op).is_defined() => Some(Opcode::new(transport, op)),
            _ => None,
        }
    }

    /// Whether the transport has this operation.
    #[inline]
    pub const fn is_defined(self) -> bool {
        match self.transport {
            Transport::Rc | Transport::Xrc => true,
            Transport::Uc => (self.op as u8) < Op::ReadRequest as u8,
            Transport::Ud => matches!(self.op, Op::SendOnly | Op::SendOnlyImm),
        }
    }

    /// The byte of the BTH.
    #[inline]
    pub const fn to_u8(self) -> u8 {
        (self.transport as u8) << 5 | self.op as u8
    }

    /// Carries a DETH.
    #[inline]
    pub const fn has_deth(self) -> bool {
        matches!(self.transport, Transport::Ud)
    }

    /// Carries an XRCETH: XRC requests do, responses do not.
    #[inline]
    pub const fn has_xrceth(self) -> bool {
        matches!(self.transport, Transport::Xrc) && !self.op.is_response()
    }

    /// Bytes of the extended headers that follow the BTH.
    #[inline]
    pub const fn ext_len(self) -> usize {
        EXT_LEN[self.op as usize] as usize
            + match self.transport {
                Transport::Ud => 8,
                Transport::Xrc if !self.op.is_response() => 4,
                _ => 0,
            }
    }
}

const EXT_LEN: [u8; 32] = {
    let mut t = [0; 32];
    let mut i = 0;
    while i < 32 {
        let f = FLAGS[i];
        let mut n = 0;
        if f & RETH != 0 {
            n += 16;
        }
        if f & ATOMIC != 0 {
            n += 28;
        }
        if f & AETH != 0 {
            n += 4;
        }
        if f & ATOMIC_ACK != 0 {
            n += 8;
        }
        if f & IMM != 0 {
            n += 4;
        }
        if f & IETH != 0 {
            n += 4;
        }
        t[i] = n;
        i += 1;
    }
    t
};
