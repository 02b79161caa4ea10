// SPDX-License-Identifier: GPL-2.0-or-later
//! The table at the end of the bench, for a person.

use super::report::{short, Row};

/// The lines of the table.
pub fn lines(rows: &[Row]) -> Vec<String> {
    let mut cells = vec![[
        "test", "size", "QPs", "mode", "Ochre", "rxe", "unit", "ratio", "limit", "share", "target",
        "met",
    ]
    .map(str::to_owned)];
    cells.extend(rows.iter().map(row));
    let widths: Vec<usize> = (0..cells[0].len())
        .map(|column| {
            let lengths = cells.iter().map(|row| row[column].chars().count());
            lengths.max().unwrap_or(0)
        })
        .collect();
    cells
        .iter()
        .map(|row| {
            let padded: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    0 | 3 | 6 | 10 | 11 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            padded.join("  ").trim_end().to_owned()
        })
        .collect()
}

fn row(row: &Row) -> [String; 12] {
    let figure = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), short);
    [
        row.test.clone(),
        size(row.size),
        count(row.qps.into()),
        row.mode.clone(),
        figure(row.ochre),
        figure(row.rxe),
        row.unit.clone(),
        row.ratio
            .map_or_else(|| "-".to_owned(), |ratio| format!("{} x", short(ratio))),
        figure(row.limit),
        row.share_of_limit
            .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        row.target(),
        match row.met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        }
        .to_owned(),
    ]
}

fn count(count: u64) -> String {
    match count {
        0 => "-".to_owned(),
        count => count.to_string(),
    }
}

/// A number of bytes as people say it.
pub fn size(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        n if n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// How many targets are met, and which are not.
pub fn verdict(rows: &[Row]) -> Vec<String> {
    let held: Vec<&Row> = rows.iter().filter(|row| row.met().is_some()).collect();
    let missed: Vec<&&Row> = held.iter().filter(|row| row.met() == Some(false)).collect();
    let mut lines = vec![format!(
        "{} of {} targets are met{}",
        held.len() - missed.len(),
        held.len(),
        if missed.is_empty() { "" } else { "; not met:" }
    )];
    for row in missed {
        lines.push(format!(
            "  {} {} ({}): {} {}{}, target {}",
            row.test,
            size(row.size),
            row.mode,
            row.ochre.map_or_else(|| "no figure".to_owned(), short),
            row.unit,
            row.ratio
                .map_or_else(String::new, |ratio| format!(", {} x rxe", short(ratio))),
            row.target()
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::report::Bound;
    use super::*;

    #[test]
    fn columns_are_in_line_and_misses_are_loud() {
        let rows = [
            Row {
                test: "ib_write_bw".into(),
                size: 1 << 20,
                qps: 1,
                mode: "polling".into(),
                ochre: Some(3000.0),
                rxe: Some(32.0),
                unit: "MB/s".into(),
                limit: Some(11_000.0),
                bounds: vec![Bound::Ratio(100.0)],
                ..Row::default()
            }
            .compare(false),
            Row {
                test: "x".into(),
                ..Row::default()
            },
        ];
        let lines = lines(&rows);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("1 MiB") && lines[1].contains("93.8 x"));
        assert!(lines[1].ends_with("NO") && lines[1].contains("27 %"));
        assert_eq!(lines[0].find("unit"), lines[1].find("MB/s"));
        let verdict = verdict(&rows);
        assert!(verdict[0].starts_with("0 of 1"));
        assert!(verdict[1].contains("ib_write_bw 1 MiB"));
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(2), "2 B");
        assert_eq!(size(65536), "64 KiB");
        assert_eq!(size(8 << 20), "8 MiB");
        assert_eq!(size(0), "-");
    }
}
