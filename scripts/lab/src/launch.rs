// SPDX-License-Identifier: GPL-2.0-or-later
//! The command line that boots one VM by virtme-ng.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::guard;
use crate::paths;
use crate::proto::{AGENT_PORT, USR_TAG};

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The host's virtualization.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl std::fmt::Display for Accel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// An HCA of a VM.
#[derive(Debug, Clone)]
pub struct Hca {
    /// Sockets of the links at its ports.
    pub links: Vec<PathBuf>,
    /// Its node GUID.
    pub guid: u64,
    /// File for a capture of its packets.
    pub capture: Option<PathBuf>,
    /// Further properties, as `name=value`.
    pub properties: Vec<String>,
}

impl Hca {
    /// The device as QEMU's command line describes it, without its name and bus.
    pub fn properties(&self) -> Vec<(String, String)> {
        let mut all = vec![("node-guid".to_owned(), format!("{:#018x}", self.guid))];
        if self.links.len() > 1 {
            all.push(("ports".into(), self.links.len().to_string()));
        }
        for (port, link) in self.links.iter().enumerate() {
            all.push((format!("link{port}"), link.display().to_string()));
        }
        if let Some(capture) = &self.capture {
            all.push(("capture".into(), capture.display().to_string()));
        }
        for property in &self.properties {
            let (name, value) = property.split_once('=').unwrap_or((property, "on"));
            all.push((name.to_owned(), value.to_owned()));
        }
        all
    }

    fn argument(&self, id: &str, bus: &str) -> String {
        let mut text = format!("ochre-hca,id={id},bus={bus}");
        for (name, value) in self.properties() {
            text.push_str(&format!(",{name}={}", value.replace(',', ",,")));
        }
        text
    }
}

/// The Ethernet between the VMs, for the handshakes of programs.
#[derive(Debug, Clone)]
pub struct Side {
    /// Socket that joins the two.
    pub socket: PathBuf,
    /// Whether this VM listens on it.
    pub server: bool,
    /// Number of the VM, the last byte of its addresses.
    pub number: u8,
}

/// Everything about one VM.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, also its host name.
    pub name: String,
    /// QEMU to run.
    pub qemu: PathBuf,
    /// Kernel image to boot.
    pub kernel: PathBuf,
    /// What executes it.
    pub accel: Accel,
    /// Memory, in MiB.
    pub memory: u32,
    /// Processors.
    pub cpus: u8,
    /// Its HCA.
    pub hca: Option<Hca>,
    /// Its Ethernet.
    pub side: Option<Side>,
    /// Further arguments for the kernel.
    pub kernel_arguments: Vec<String>,
    /// Further arguments for QEMU.
    pub qemu_arguments: Vec<String>,
}

/// Identifier of the HCA in QEMU.
pub const HCA_ID: &str = "hca0";

/// Identifier of the root port above the HCA.
pub const ROOT_PORT: &str = "rp0";

/// Arguments that make the stock kernel boot faster under translation, and show its faults on the
/// serial console; see the measurements in the README.
const KERNEL_ARGUMENTS: &[&str] = &[
    "loglevel=4",
    "earlyprintk=serial,ttyS0,115200",
    "panic=-1",
    "cryptomgr.notests",
    "tsc=reliable",
    "no_timer_check",
    "mitigations=off",
    "random.trust_cpu=on",
    "net.ifnames=0",
    "audit=0",
    "8250.nr_uarts=1",
];

/// The command that boots a VM; `run` is the folder of its sockets.
///
/// # Errors
/// When one of the lab's own programs is not built.
pub fn command(config: &Config, run: &Path) -> Result<Command> {
    let agent = paths::sibling("ochre-agent")?;
    let guard = paths::sibling("ochre-guard")?;
    let mut command = Command::new("virtme-run");
    command
        .env(guard::QEMU, &config.qemu)
        .env(guard::SOCKET, run.join("guard"))
        .env("TMPDIR", run)
        .arg("--kimg")
        .arg(&config.kernel)
        .args(["--mods", "auto", "--force-9p", "--disable-microvm"])
        // The initramfs starts the agent as the guest's init. Without a script virtme-ng makes one
        // virtio-serial device and not six, which cost the kernel a second under translation.
        .args([
            "--force-initramfs",
            "--disable-monitor",
            "--name",
            &config.name,
        ])
        .args(["--cpus", &config.cpus.to_string()])
        .args(["--memory", &format!("{}M", config.memory)])
        .args([
            "--overlay-rwdir=/etc",
            "--overlay-rwdir=/var",
            "--overlay-rwdir=/root",
        ])
        .arg("--qemu-bin")
        .arg(guard)
        .args(["--kopt", &format!("init={}", agent.display())]);
    if config.accel == Accel::Tcg {
        command.arg("--disable-kvm");
    }
    for argument in KERNEL_ARGUMENTS
        .iter()
        .copied()
        .chain(config.kernel_arguments.iter().map(String::as_str))
    {
        command.arg("--kopt").arg(argument);
    }
    // virtme-ng takes everything behind this as QEMU's.
    command.arg("--qemu-opts").args(qemu(config, run));
    Ok(command)
}

fn qemu(config: &Config, run: &Path) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |name: &str, value: String| {
        all.push(name.to_owned());
        all.push(value);
    };
    let socket = |name: &str| {
        let path = run.join(name);
        format!("socket,id={name},path={},server=off", path.display())
    };
    add(
        "-machine",
        "q35,i8042=off,sata=off,smbus=off,vmport=off".into(),
    );
    if config.accel == Accel::Tcg {
        add("-accel", "tcg,tb-size=256".into());
        add("-cpu", "max".into());
    }
    // A guest that restarts unasked has failed; see Vm::reboot for one that is asked.
    // Who looks at QEMU's threads sees which is the device's.
    add("-name", "debug-threads=on".into());
    add("-action", "reboot=shutdown".into());
    for folder in ["/usr/share/seabios", "/usr/share/qemu"] {
        add("-L", folder.into());
    }
    add("-chardev", socket("qmp"));
    add("-mon", "chardev=qmp,mode=control".into());
    add("-chardev", socket("agent"));
    add("-device", "virtio-serial-pci".into());
    add(
        "-device",
        format!("virtserialport,chardev=agent,name={AGENT_PORT}"),
    );
    // The guest does not cache the root file system, because it has to see what a build changes in the
    // checkout: there each page of a program is a request to QEMU. What it may cache it gets once more.
    add(
        "-fsdev",
        "local,id=usr,path=/usr,security_model=none,readonly=on,multidevs=remap".into(),
    );
    add(
        "-device",
        format!("virtio-9p-pci,fsdev=usr,mount_tag={USR_TAG}"),
    );
    if let Some(side) = &config.side {
        let path = side.socket.display();
        let role = if side.server {
            "server=on"
        } else {
            "server=off,reconnect-ms=100"
        };
        add(
            "-netdev",
            format!("stream,id=side,{role},addr.type=unix,addr.path={path}"),
        );
        add(
            "-device",
            format!(
                "virtio-net-pci,netdev=side,romfile=,mac=52:54:00:0c:0e:{:02x}",
                side.number
            ),
        );
    }
    add(
        "-device",
        format!("pcie-root-port,id={ROOT_PORT},chassis=1,slot=1"),
    );
    if let Some(hca) = &config.hca {
        add("-device", hca.argument(HCA_ID, ROOT_PORT));
    }
    all.extend(config.qemu_arguments.iter().cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            name: "a".into(),
            qemu: "/q".into(),
            kernel: "/k".into(),
            accel: Accel::Tcg,
            memory: 1024,
            cpus: 1,
            hca: Some(Hca {
                links: vec!["/run/l0".into(), "/run/l1".into()],
                guid: 0x12,
                capture: Some("/c,d.erf".into()),
                properties: vec!["crc=off".into()],
            }),
            side: Some(Side {
                socket: "/run/side".into(),
                server: true,
                number: 1,
            }),
            kernel_arguments: Vec::new(),
            qemu_arguments: vec!["-S".into()],
        }
    }

    #[test]
    fn the_hca_gets_its_properties_and_sits_under_the_root_port() {
        let arguments = qemu(&config(), Path::new("/r"));
        let hca = arguments
            .iter()
            .find(|argument| argument.starts_with("ochre-hca"))
            .unwrap();
        assert_eq!(
            hca,
            "ochre-hca,id=hca0,bus=rp0,node-guid=0x0000000000000012,ports=2,link0=/run/l0,\
             link1=/run/l1,capture=/c,,d.erf,crc=off"
        );
        assert_eq!(arguments.last().unwrap(), "-S");
    }

    #[test]
    fn one_side_listens_and_the_other_connects() {
        let mut config = config();
        let text = qemu(&config, Path::new("/r")).join(" ");
        assert!(text.contains("server=on,addr.type=unix,addr.path=/run/side"));
        config.side.as_mut().unwrap().server = false;
        let text = qemu(&config, Path::new("/r")).join(" ");
        assert!(text.contains("server=off,reconnect-ms=100"));
    }

    #[test]
    fn translation_gets_a_full_processor_and_kvm_keeps_its_own() {
        let mut config = config();
        assert!(qemu(&config, Path::new("/r")).contains(&"max".to_owned()));
        config.accel = Accel::Kvm;
        assert!(!qemu(&config, Path::new("/r")).contains(&"-cpu".to_owned()));
    }
}
