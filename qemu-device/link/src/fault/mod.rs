// SPDX-License-Identifier: GPL-2.0-or-later
//! Wire faults on demand: rules that drop, repeat, delay, damage or change the packets of a port.
//!
//! A [`RuleSet`] is parsed from text, one rule a line, and given to [`crate::Port::set_faults`]. The
//! rules act between the port and its cable, in both directions; packets that turn around inside the
//! port never meet them. The same rules, seed and traffic give the same faults. `FAULTS.md` beside this
//! crate is the page for users.
//!
//! # Where it sits
//!
//! ```text
//!     owner <-> Port: credits, lanes, checks, counters <-> capture <-> rules <-> cable
//!                                                          (of what is behind the rules)
//! ```
//!
//! - Sent packets are captured as the rules leave them, at the time they go: a dropped packet is not in
//!   the capture, a repeated one is there twice. Received packets are captured as they reach the port.
//! - A rule takes packets away, not credits: it is as if a switch on the way had dropped the packet and
//!   gone on with its flow control. A packet that is delayed keeps its credits until it arrives, so that
//!   the receive buffer bounds what can be under way, as on a long cable.
//!
//! - [`rule`]: what a rule says, and its text.
//! - [`parse`]: the text, and what is wrong with it.
//! - [`opcode`]: names of opcodes.

mod engine;
mod line;
pub mod opcode;
mod packet;
pub mod parse;
pub mod rule;
mod wire;

#[cfg(test)]
mod tests;

pub use engine::{Report, RuleReport};
pub(crate) use line::Note;
pub use opcode::OpcodeSet;
pub use parse::ParseError;
pub use rule::{Action, Condition, Crc, Direction, Mark, Place, Probability, Rule, RuleSet, Span};
pub(crate) use wire::Wire;
