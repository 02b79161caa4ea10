// SPDX-License-Identifier: GPL-2.0-or-later
//! Many QPs and memory regions in one guest: that they can be made, and that the last costs no more
//! than the first.

use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::Deserialize;

use super::report::{Bound, Row};
use crate::lab::run;
use crate::paths;
use crate::vm::Vm;

/// Objects of a whole bench; a quick one makes a tenth.
const QPS: u32 = 10_000;
const MRS: u32 = 100_000;

/// How long it may take under translation.
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Debug, Deserialize)]
struct Made {
    qps: u32,
    qp_first_us: f64,
    qp_last_us: f64,
    mrs: u32,
    mr_first_us: f64,
    mr_last_us: f64,
}

/// Makes the objects on a device of a guest.
///
/// # Errors
/// When one cannot be made, or two are the same.
pub fn rows(vm: &Vm, device: &str, quick: bool) -> Result<Vec<Row>> {
    let part = if quick { 10 } else { 1 };
    let (qps, mrs) = (QPS / part, MRS / part);
    let script = paths::top()?.join("tests/bench/objects.py");
    let script = script.to_string_lossy();
    let (some, many) = (qps.to_string(), mrs.to_string());
    let finished = run(vm, &["python3", &script, device, &some, &many], LIMIT)?
        .success("making many objects")?;
    let made: Made = serde_json::from_str(&finished.out)
        .with_context(|| format!("objects.py said: {}", finished.out))?;
    if (made.qps, made.mrs) != (qps, mrs) {
        bail!(
            "{qps} QPs and {mrs} regions were made, and only {} and {} have numbers of their own",
            made.qps,
            made.mrs
        );
    }
    Ok(made.rows())
}

impl Made {
    fn rows(&self) -> Vec<Row> {
        let row = |test: &str, mode: String, figure: f64, bounds| Row {
            test: test.into(),
            mode,
            ochre: Some(figure),
            unit: "us".into(),
            bounds,
            ..Row::default()
        };
        let grown = |first: f64| vec![Bound::AtMost((first * 1.2 * 10.0).round() / 10.0)];
        vec![
            row(
                "create_qp",
                format!("first tenth of {}", self.qps),
                self.qp_first_us,
                Vec::new(),
            ),
            row(
                "create_qp",
                format!("last tenth of {}", self.qps),
                self.qp_last_us,
                grown(self.qp_first_us),
            ),
            row(
                "register_mr",
                format!("first tenth of {}", self.mrs),
                self.mr_first_us,
                Vec::new(),
            ),
            row(
                "register_mr",
                format!("last tenth of {}", self.mrs),
                self.mr_last_us,
                grown(self.mr_first_us),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_may_cost_a_fifth_more() {
        let made = |last| Made {
            qps: 10,
            qp_first_us: 100.0,
            qp_last_us: last,
            mrs: 10,
            mr_first_us: 1.0,
            mr_last_us: 1.0,
        };
        assert_eq!(made(119.0).rows()[1].met(), Some(true));
        assert_eq!(made(121.0).rows()[1].met(), Some(false));
    }
}
