// SPDX-License-Identifier: GPL-2.0-or-later

//! A machine with a slot that devices are plugged into while it lives.

use serde_json::json;

use super::hca::Hca;
use super::machine::Machine;

/// Where the root port is.
const SLOT: u8 = 4;

/// A machine with a root port, which leads to bus 1.
pub struct RootPort {
    pub machine: Machine,
    /// Offset of its slot's control register.
    control: u32,
}

impl RootPort {
    /// Starts it, and does to the port what firmware does.
    pub fn start() -> Self {
        let port = format!("pcie-root-port,id=rp,slot=1,addr={SLOT}");
        // The port's own hot-plug, not the one by ACPI.
        let native = "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off";
        let mut machine = Machine::start(&["-global", native, "-device", &port]);
        // Bus numbers and the bridge's memory window.
        machine.config_store(0, SLOT, 0x18, 0x0001_0100);
        machine.config_store(0, SLOT, 0x20, 0xe030_e000);
        machine.config_store(0, SLOT, 0x24, 0x0001_fff1);
        machine.config_store(0, SLOT, 4, 6);
        let express = machine.capability(0, SLOT, 0x10);
        let control = express.expect("no PCI Express capability") + 0x18;
        RootPort { machine, control }
    }

    /// Plugs a device with this link in.
    pub fn plug(&mut self, link: &str) -> Hca {
        // Power and attention indicators on, power on.
        self.machine.config_store(0, SLOT, self.control, 0x0140);
        let device = json!({ "driver": "ochre-hca", "id": "hot", "bus": "rp", "link0": link });
        self.machine
            .qmp("device_add", device)
            .expect("cannot plug it in");
        Hca::probe(&mut self.machine, 1, 0)
    }

    /// Unplugs it, with the guest's consent.
    pub fn unplug(&mut self) {
        self.machine
            .qmp("device_del", json!({ "id": "hot" }))
            .expect("cannot unplug it");
        // What a guest does then: power off, indicator off.
        self.machine.config_store(0, SLOT, self.control, 0x0740);
        self.machine.qmp_event("DEVICE_DELETED");
    }
}
