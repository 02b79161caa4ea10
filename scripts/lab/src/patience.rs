// SPDX-License-Identifier: GPL-2.0-or-later
//! How much longer than written things may take.
//!
//! Time limits in the lab and in its tests are written for the stock kernel on a fast machine with nothing else
//! to do. Where something waits, it multiplies its limit by one factor: that of the kernel, or the variable
//! `OCHRE_PATIENCE`, which scripts and programs started by a lab get too. A limit ends what hangs and measures
//! nothing, so the factor allows for a machine that is slow and shared.

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{bail, Result};

/// Names the factor.
pub const VARIABLE: &str = "OCHRE_PATIENCE";

/// The factor for the stock kernel.
const STOCK_KERNEL: u32 = 3;
/// The factor for a kernel that checks every access to memory and every lock.
const DEBUG_KERNEL: u32 = 12;

static FACTOR: AtomicU32 = AtomicU32::new(STOCK_KERNEL);

/// Takes the factor from the variable; without it, it is what the kernel needs.
///
/// # Errors
/// When the variable is no number from 1 to 1000.
pub fn choose(debug_kernel: bool) -> Result<()> {
    let factor = match env::var(VARIABLE) {
        Ok(text) => parse(&text)?,
        Err(_) if debug_kernel => DEBUG_KERNEL,
        Err(_) => STOCK_KERNEL,
    };
    FACTOR.store(factor, Ordering::Relaxed);
    Ok(())
}

fn parse(text: &str) -> Result<u32> {
    match text.parse() {
        Ok(factor @ 1..=1000) => Ok(factor),
        _ => bail!("{VARIABLE} is '{text}'; it can be a number from 1 to 1000"),
    }
}

/// The factor.
pub fn factor() -> u32 {
    FACTOR.load(Ordering::Relaxed)
}

/// A time limit as long as it has to be here.
pub fn of(limit: Duration) -> Duration {
    limit.saturating_mul(factor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_a_sane_number() {
        assert_eq!(parse("1").unwrap(), 1);
        assert_eq!(parse("1000").unwrap(), 1000);
        for text in ["0", "1001", "-1", "2.5", "", "slow"] {
            assert!(parse(text).unwrap_err().to_string().contains(VARIABLE));
        }
    }
}
