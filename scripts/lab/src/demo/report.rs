// SPDX-License-Identifier: GPL-2.0-or-later
//! What the demonstration found, for programs: `build/demo/report.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// The whole report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// What executed the guests: `kvm` or `tcg`.
    pub accel: String,
    /// Release of the guests' kernel.
    pub kernel: String,
    /// Version of QEMU.
    pub qemu: String,
    /// The demonstration's whole time, in seconds.
    pub wall_s: f64,
    /// File with the captured packets.
    pub capture: String,
    /// The ports of the fabric.
    pub ports: Vec<Port>,
    /// The programs that ran.
    pub programs: Vec<Program>,
    /// The flow-control show.
    pub flow_control: FlowControl,
}

/// One port of one HCA.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Port {
    /// Its VM.
    pub vm: String,
    /// Its device.
    pub device: String,
    /// Its number, from 1.
    pub port: u8,
    /// Its local identifier.
    pub lid: u16,
    /// Its logical state: `ACTIVE` when all is well.
    pub state: String,
    /// Its link layer: `InfiniBand`.
    pub link_layer: String,
    /// Its counters, by the names of the performance management class.
    pub counters: BTreeMap<String, u64>,
}

/// One program that ran.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its arguments on the client's side, the program itself first.
    pub argv: Vec<String>,
    /// Whether both sides ended well and said what they should.
    pub ok: bool,
    /// What it measured; the unit is in the key.
    pub figures: BTreeMap<String, f64>,
}

/// What happened when a receiver drained slowly.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FlowControl {
    /// How far the sender's `PortXmitWait` rose, in ticks.
    pub xmit_wait: u64,
    /// Packets that either port discarded or received in error meanwhile.
    pub packets_dropped: u64,
    /// Whether the data arrived as it was sent.
    pub data_ok: bool,
}

impl FlowControl {
    /// Whether flow control did what it must.
    pub fn ok(&self) -> bool {
        self.xmit_wait > 0 && self.packets_dropped == 0 && self.data_ok
    }
}

impl Report {
    /// What is not as it should be; nothing when all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.ports.is_empty() {
            faults.push("no port was seen".to_owned());
        }
        for port in &self.ports {
            let name = format!("port {} of {} in VM {}", port.port, port.device, port.vm);
            if port.state != "ACTIVE" {
                faults.push(format!("{name} is {}, not ACTIVE", port.state));
            }
            if port.lid == 0 {
                faults.push(format!("{name} has no LID"));
            }
            if port.link_layer != "InfiniBand" {
                faults.push(format!("{name} has link layer {}", port.link_layer));
            }
        }
        if self.programs.is_empty() {
            faults.push("no program ran".to_owned());
        }
        for program in self.programs.iter().filter(|program| !program.ok) {
            faults.push(format!("{} failed", program.argv.join(" ")));
        }
        let flow = &self.flow_control;
        if flow.xmit_wait == 0 {
            faults.push("flow control: PortXmitWait did not rise".to_owned());
        }
        if flow.packets_dropped > 0 {
            faults.push(format!(
                "flow control: {} packets were dropped",
                flow.packets_dropped
            ));
        }
        if !flow.data_ok {
            faults.push("flow control: the data did not arrive as it was sent".to_owned());
        }
        faults
    }

    /// Writes the report, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("report")?;
        text.push('\n');
        let new = path.with_extension("json.new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Report {
        Report {
            ports: vec![Port {
                vm: "a".into(),
                device: "ochre_0".into(),
                port: 1,
                lid: 1,
                state: "ACTIVE".into(),
                link_layer: "InfiniBand".into(),
                counters: BTreeMap::new(),
            }],
            programs: vec![Program {
                name: "ib_write_bw".into(),
                argv: vec!["ib_write_bw".into()],
                ok: true,
                figures: [("bw_MBps".to_owned(), 1234.5)].into(),
            }],
            flow_control: FlowControl {
                xmit_wait: 1,
                packets_dropped: 0,
                data_ok: true,
            },
            ..Report::default()
        }
    }

    #[test]
    fn a_good_report_has_no_fault() {
        assert_eq!(good().faults(), Vec::<String>::new());
    }

    #[test]
    fn every_part_can_be_at_fault() {
        let mut report = good();
        report.ports[0].state = "INIT".into();
        assert_eq!(report.faults().len(), 1);
        report.ports[0].lid = 0;
        assert_eq!(report.faults().len(), 2);
        report.programs[0].ok = false;
        assert_eq!(report.faults().len(), 3);
        report.flow_control = FlowControl::default();
        assert_eq!(report.faults().len(), 5);
        assert_eq!(Report::default().faults().len(), 4);
    }

    #[test]
    fn the_fields_are_those_that_programs_read() {
        let value = serde_json::to_value(good()).unwrap();
        for field in [
            "accel",
            "kernel",
            "qemu",
            "wall_s",
            "capture",
            "ports",
            "programs",
            "flow_control",
        ] {
            assert!(value.get(field).is_some(), "{field}");
        }
        assert_eq!(value["programs"][0]["figures"]["bw_MBps"], 1234.5);
        assert_eq!(value["flow_control"]["data_ok"], true);
    }
}
