// SPDX-License-Identifier: GPL-2.0-or-later
//! What the bench found: rows for `build/bench/report.json`, and what they are held to.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What a figure is held to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// So many times better than rxe.
    Ratio(f64),
    /// This share of the machine's limit.
    Share(f64),
    /// No more than this, in the row's unit.
    AtMost(f64),
    /// No less than this, in the row's unit.
    AtLeast(f64),
}

/// The row's place among the tests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Program, or part of the device.
    pub test: String,
    /// Bytes of a message.
    pub size: u64,
    /// Number of QPs.
    pub qps: u32,
    /// How it waits, and which figure it is.
    pub mode: String,
    /// Ochre's figure: the median of the rounds.
    pub ochre: Option<f64>,
    /// The figure of software RoCE over virtio-net: the median of the rounds.
    pub rxe: Option<f64>,
    /// Unit of `ochre`, `rxe` and `limit`.
    pub unit: String,
    /// How many times better Ochre is than rxe: above 1 it is, whatever the unit.
    pub ratio: Option<f64>,
    /// What the machine itself can do: a copy in memory, a wake-up between two processes.
    pub limit: Option<f64>,
    /// How near Ochre comes to it: 1 is as good as the machine.
    pub share_of_limit: Option<f64>,
    /// What it is held to.
    #[serde(skip)]
    pub bounds: Vec<Bound>,
}

impl Row {
    /// Fills in ratio and share; `less` says that less is better.
    pub fn compare(mut self, less: bool) -> Self {
        let better = |ours: f64, other: f64| {
            let ratio = if less { other / ours } else { ours / other };
            ratio.is_finite().then_some(round(ratio))
        };
        self.ratio = self
            .ochre
            .zip(self.rxe)
            .and_then(|(ours, rxe)| better(ours, rxe));
        self.share_of_limit = self
            .ochre
            .zip(self.limit)
            .and_then(|(ours, limit)| better(ours, limit));
        self
    }

    /// What the row is held to, for a person; empty if nothing.
    pub fn target(&self) -> String {
        let texts: Vec<String> = self
            .bounds
            .iter()
            .map(|bound| match bound {
                Bound::Ratio(ratio) => format!("{ratio} x rxe"),
                Bound::Share(share) => format!("{:.0} % of limit", share * 100.0),
                Bound::AtMost(most) => format!("<= {} {}", short(*most), self.unit),
                Bound::AtLeast(least) => format!(">= {} {}", short(*least), self.unit),
            })
            .collect();
        texts.join(", ")
    }

    /// Whether all that the row is held to is met; nothing if it is held to nothing.
    pub fn met(&self) -> Option<bool> {
        let reaches = |figure: Option<f64>, least: f64| figure.is_some_and(|f| f >= least);
        (!self.bounds.is_empty()).then(|| {
            self.bounds.iter().all(|bound| match *bound {
                Bound::Ratio(ratio) => reaches(self.ratio, ratio),
                Bound::Share(share) => reaches(self.share_of_limit, share),
                Bound::AtMost(most) => self.ochre.is_some_and(|figure| figure <= most),
                Bound::AtLeast(least) => reaches(self.ochre, least),
            })
        })
    }
}

/// All rounds of one row.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Samples {
    /// As in the report.
    pub test: String,
    /// As in the report.
    pub size: u64,
    /// As in the report.
    pub qps: u32,
    /// As in the report.
    pub mode: String,
    /// As in the report.
    pub unit: String,
    /// Ochre's figures, round by round.
    pub ochre: Vec<f64>,
    /// The least of them.
    pub ochre_min: Option<f64>,
    /// The figures of rxe, round by round.
    pub rxe: Vec<f64>,
    /// The least of them.
    pub rxe_min: Option<f64>,
}

/// The middle one of some figures, or the mean of the middle two.
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 0 {
        round((sorted[middle - 1] + upper) / 2.0)
    } else {
        upper
    })
}

/// The least of some figures.
pub fn least(figures: &[f64]) -> Option<f64> {
    figures.iter().copied().min_by(f64::total_cmp)
}

/// To four digits behind the point, as far as anything here is exact.
pub fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// A figure with three digits that count.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Writes something as JSON.
///
/// # Errors
/// When the file cannot be written.
pub fn write<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ochre: f64, rxe: f64, limit: f64) -> Row {
        Row {
            ochre: Some(ochre),
            rxe: Some(rxe),
            limit: Some(limit),
            unit: "us".into(),
            ..Row::default()
        }
    }

    #[test]
    fn a_ratio_above_one_is_always_better() {
        let faster = row(1000.0, 10.0, 4000.0).compare(false);
        assert_eq!(
            (faster.ratio, faster.share_of_limit),
            (Some(100.0), Some(0.25))
        );
        let sooner = row(10.0, 400.0, 5.0).compare(true);
        assert_eq!(
            (sooner.ratio, sooner.share_of_limit),
            (Some(40.0), Some(0.5))
        );
        let nothing = row(0.0, 400.0, 5.0).compare(true);
        assert_eq!(nothing.ratio, None);
    }

    #[test]
    fn a_row_is_met_only_if_every_bound_is() {
        let mut row = row(10.0, 200.0, 5.0).compare(true);
        assert_eq!((row.met(), row.target()), (None, String::new()));
        row.bounds = vec![Bound::Ratio(15.0), Bound::AtMost(12.0)];
        assert_eq!(row.met(), Some(true));
        assert_eq!(row.target(), "15 x rxe, <= 12.0 us");
        row.bounds.push(Bound::AtMost(9.0));
        assert_eq!(row.met(), Some(false));
        row.bounds = vec![Bound::AtLeast(10.0), Bound::Share(0.5)];
        assert_eq!(row.met(), Some(true));
        row.ochre = None;
        assert_eq!(row.met(), Some(false));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(least(&[4.0, 1.0, 2.0]), Some(1.0));
    }

    #[test]
    fn the_report_has_the_names_that_programs_look_for() {
        let value = serde_json::to_value(row(1.0, 2.0, 3.0)).unwrap();
        let names: Vec<&str> = value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut wanted = [
            "test",
            "size",
            "qps",
            "mode",
            "ochre",
            "rxe",
            "unit",
            "ratio",
            "limit",
            "share_of_limit",
        ];
        wanted.sort_unstable();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(names, wanted);
    }
}
