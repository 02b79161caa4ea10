// SPDX-License-Identifier: GPL-2.0-or-later
//! The tables at the end of the demonstration, for a person.

use super::report::{Program, Report};

/// Counters worth a line, in this order; others only if they are not zero.
const COUNTERS: &[&str] = &[
    "PortXmitData",
    "PortRcvData",
    "PortXmitPkts",
    "PortRcvPkts",
    "PortXmitWait",
    "PortXmitDiscards",
    "PortRcvErrors",
    "SymbolErrorCounter",
    "LinkDownedCounter",
];

/// The lines of both tables.
pub fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("{:<52} {}", "program", "figures")];
    for program in &report.programs {
        lines.push(format!(
            "{:<52} {}",
            program.argv.join(" "),
            if program.ok {
                figures(program)
            } else {
                "FAILED".to_owned()
            }
        ));
    }
    lines.push(String::new());
    let mut header = format!("{:<32}", "port");
    for port in &report.ports {
        header.push_str(&format!(
            "{:>20}",
            format!("{} {}/{}", port.vm, port.device, port.port)
        ));
    }
    lines.push(header);
    let row = |name: &str, cell: &dyn Fn(&super::report::Port) -> String| {
        let mut line = format!("{name:<32}");
        for port in &report.ports {
            line.push_str(&format!("{:>20}", cell(port)));
        }
        line
    };
    lines.push(row("LID", &|port| port.lid.to_string()));
    lines.push(row("state", &|port| port.state.clone()));
    lines.push(row("link layer", &|port| port.link_layer.clone()));
    let others = report
        .ports
        .iter()
        .flat_map(|port| port.counters.iter())
        .filter(|(name, value)| **value != 0 && !COUNTERS.contains(&name.as_str()))
        .map(|(name, _)| name.as_str());
    let mut names = COUNTERS.to_vec();
    for name in others {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        if report
            .ports
            .iter()
            .any(|port| port.counters.contains_key(name))
        {
            lines.push(row(name, &|port| {
                port.counters
                    .get(name)
                    .map_or_else(|| "-".to_owned(), u64::to_string)
            }));
        }
    }
    lines
}

/// The figures of one program, as a person reads them.
pub fn figures(program: &Program) -> String {
    let get = |name: &str| program.figures.get(name);
    if let Some(bandwidth) = get("bw_MBps") {
        return format!("{bandwidth:.0} MB/s");
    }
    if let (Some(min), Some(typical)) = (get("lat_min_us"), get("lat_typical_us")) {
        return format!("{min:.1} us at least, {typical:.1} us typically");
    }
    if let (Some(time), Some(rate)) = (get("iteration_us"), get("rate_Mbps")) {
        let slow = get("receiver_drains_MBps").map_or_else(String::new, |drain| {
            format!(" (the receiver drains {drain:.0} MB/s)")
        });
        return format!("{time:.1} us each, {rate:.0} Mbit/s{slow}");
    }
    "ok".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_plain_to_see() {
        let report = Report {
            programs: vec![Program {
                name: "x".into(),
                argv: vec!["x".into(), "b".into()],
                ..Program::default()
            }],
            ..Report::default()
        };
        assert!(lines(&report).iter().any(|line| line.contains("FAILED")));
    }

    #[test]
    fn figures_have_their_units() {
        let program = Program {
            figures: [("bw_MBps".to_owned(), 1234.6)].into(),
            ..Program::default()
        };
        assert_eq!(figures(&program), "1235 MB/s");
    }
}
