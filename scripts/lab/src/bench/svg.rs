// SPDX-License-Identifier: GPL-2.0-or-later
//! Draws the bench: bars on a logarithmic scale, Ochre beside rxe, with the machine's limit.

use std::fmt::Write;

use super::report::{short, Row};
use super::table::size;

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 12.0;
const GROUP: f64 = 38.0;
const HEAD: f64 = 74.0;
const FOOT: f64 = 34.0;

const OCHRE: &str = "#b5651d";
const RXE: &str = "#7f8fa6";
const LIMIT: &str = "#2d3436";

/// One chart: rows of one unit that have something to be compared with.
struct Panel<'a> {
    title: &'static str,
    rows: Vec<&'a Row>,
}

impl Panel<'_> {
    fn height(&self) -> f64 {
        HEAD + FOOT + GROUP * self.rows.len() as f64
    }

    /// The powers of ten around all figures.
    fn range(&self) -> Option<(i32, i32)> {
        let figures: Vec<f64> = self
            .rows
            .iter()
            .flat_map(|row| [row.ochre, row.rxe, row.limit])
            .flatten()
            .filter(|figure| figure.is_finite() && *figure > 0.0)
            .collect();
        let low = figures.iter().copied().min_by(f64::total_cmp)?;
        let high = figures.iter().copied().max_by(f64::total_cmp)?;
        let (low, high) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Some((low, high.max(low + 1)))
    }
}

/// The drawing; empty panels are left out.
pub fn draw(rows: &[Row], subtitle: &str) -> String {
    let compared = |unit: &str| -> Vec<&Row> {
        rows.iter()
            .filter(|row| row.unit == unit && (row.rxe.is_some() || row.limit.is_some()))
            .collect()
    };
    let panels: Vec<Panel<'_>> = [
        ("Bandwidth, MB/s (longer is better)", "MB/s"),
        ("Message rate, millions a second (longer is better)", "M/s"),
        ("Latency, microseconds one way (shorter is better)", "us"),
    ]
    .into_iter()
    .map(|(title, unit)| Panel {
        title,
        rows: compared(unit),
    })
    .filter(|panel| panel.range().is_some())
    .collect();
    let height = 84.0 + panels.iter().map(Panel::height).sum::<f64>();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    text(
        &mut out,
        20.0,
        30.0,
        "start",
        20,
        "Ochre and software RoCE (rxe), side by side",
    );
    text(&mut out, 20.0, 52.0, "start", 12, subtitle);
    legend(&mut out);
    let mut top = 84.0;
    for panel in &panels {
        chart(&mut out, panel, top);
        top += panel.height();
    }
    out.push_str("</svg>\n");
    out
}

fn legend(out: &mut String) {
    let mut x = 20.0;
    for (color, label) in [
        (OCHRE, "Ochre"),
        (RXE, "rxe over virtio-net, MTU 9000"),
        (LIMIT, "limit of the machine"),
    ] {
        let (width, y) = if color == LIMIT {
            (3.0, 61.0)
        } else {
            (14.0, 62.0)
        };
        rect(out, x, y, width, 12.0, color);
        text(out, x + width + 6.0, 72.0, "start", 12, label);
        x += width + 30.0 + 7.0 * label.len() as f64;
    }
}

fn chart(out: &mut String, panel: &Panel<'_>, top: f64) {
    let Some((low, high)) = panel.range() else {
        return;
    };
    let bottom = top + panel.height() - FOOT;
    let place = |figure: f64| {
        let part = (figure.log10() - f64::from(low)) / f64::from(high - low);
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    text(out, 20.0, top + 34.0, "start", 15, panel.title);
    for power in low..=high {
        let x = place(10f64.powi(power));
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#dfe6e9\"/>",
            top + HEAD - 8.0
        );
        text(out, x, top + HEAD - 14.0, "middle", 11, &tick(power));
    }
    for (n, row) in panel.rows.iter().enumerate() {
        let y = top + HEAD + GROUP * n as f64;
        let mut label = format!("{} {}", row.test, size(row.size));
        if row.qps > 1 {
            let _ = write!(label, ", {} QPs", row.qps);
        }
        text(out, LEFT - 10.0, y + 11.0, "end", 12, &label);
        text(out, LEFT - 10.0, y + 25.0, "end", 10, &row.mode);
        for (line, figure, color) in [(0.0, row.ochre, OCHRE), (1.0, row.rxe, RXE)] {
            let Some(figure) = figure.filter(|figure| *figure > 0.0) else {
                continue;
            };
            let (x, y) = (place(figure), y + line * (BAR + 1.0));
            rect(out, LEFT, y, (x - LEFT).max(1.0), BAR, color);
            let mut label = short(figure);
            if color == OCHRE {
                if let Some(ratio) = row.ratio {
                    let _ = write!(label, " ({} x)", short(ratio));
                }
            }
            text(out, x + 6.0, y + 10.0, "start", 11, &label);
        }
        if let Some(limit) = row.limit.filter(|limit| *limit > 0.0) {
            rect(
                out,
                place(limit) - 1.5,
                y - 2.0,
                3.0,
                2.0 * BAR + 5.0,
                LIMIT,
            );
        }
    }
}

fn tick(power: i32) -> String {
    if power < 0 {
        format!("{:.*}", power.unsigned_abs() as usize, 10f64.powi(power))
    } else {
        format!("{:.0}", 10f64.powi(power))
    }
}

fn rect(out: &mut String, x: f64, y: f64, width: f64, height: f64, color: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, points: u32, words: &str) {
    let escaped = words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{points}\" \
         fill=\"#2d3436\">{escaped}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ochre: f64, rxe: f64) -> Row {
        Row {
            test: "ib_write_bw".into(),
            size: 2,
            qps: 16,
            mode: "polling <&>".into(),
            ochre: Some(ochre),
            rxe: Some(rxe),
            unit: "MB/s".into(),
            limit: Some(10_000.0),
            ..Row::default()
        }
        .compare(false)
    }

    /// Width of the bar of this colour behind the legend's.
    fn bar(svg: &str, color: &str) -> f64 {
        let line = svg
            .lines()
            .filter(|line| line.starts_with("<rect") && line.contains(color))
            .nth(1)
            .unwrap();
        let (_, rest) = line.split_once(" width=\"").unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn bars_are_on_a_logarithmic_scale() {
        let svg = draw(&[row(1000.0, 10.0)], "");
        let (ochre, rxe) = (bar(&svg, OCHRE), bar(&svg, RXE));
        // From 10^1 to 10^4: rxe stands at the left edge, Ochre at two thirds.
        assert_eq!(rxe, 1.0);
        assert!((ochre - (WIDTH - LEFT - RIGHT) * 2.0 / 3.0).abs() < 0.2);
        assert!(svg.contains("1000 (100 x)"));
    }

    #[test]
    fn words_are_escaped_and_tags_closed() {
        let svg = draw(&[row(1.0, 2.0)], "a < b");
        assert!(svg.contains("polling &lt;&amp;&gt;") && svg.contains("a &lt; b"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn nothing_to_compare_is_no_chart() {
        assert!(!draw(&[Row::default()], "").contains("Bandwidth"));
        let zero = Row {
            ochre: Some(0.0),
            ..row(0.0, 0.0)
        };
        let svg = draw(&[zero], "");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
