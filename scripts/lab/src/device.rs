// SPDX-License-Identifier: GPL-2.0-or-later
//! Makes the RDMA device of a guest usable: modules, addresses, the provider for libibverbs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::shell;
use crate::paths;
use crate::patience;
use crate::vm::Vm;

/// Which RDMA device the guests get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The Ochre HCA with these parts.
    Ochre {
        /// The kernel module.
        module: PathBuf,
        /// The provider for libibverbs.
        provider: PathBuf,
    },
    /// Linux's software RoCE over the Ethernet between the VMs, to compare with.
    Rxe,
    /// None.
    None,
}

impl Kind {
    /// The Ochre HCA with what is built for the stock or the debug kernel, or with the files named.
    ///
    /// # Errors
    /// When something is not built.
    pub fn ochre(module: Option<&Path>, debug: bool, provider: Option<&Path>) -> Result<Self> {
        Ok(Self::Ochre {
            module: paths::module(module, debug)?,
            provider: paths::provider(provider)?,
        })
    }

    /// Name of the device in the guests.
    pub fn device(&self) -> &'static str {
        match self {
            Self::Ochre { .. } => "ochre_0",
            Self::Rxe => "rxe_0",
            Self::None => "",
        }
    }

    /// The shell script that brings the guest with this number to a usable device.
    fn script(&self, number: u8) -> String {
        let mut script = format!(
            "set -e\n\
             mountpoint -q /tmp || mount -t tmpfs tmpfs /tmp\n\
             modprobe -a virtio_net ib_uverbs ib_umad rdma_ucm\n\
             if [ -e /sys/class/net/eth0 ]; then\n\
             \tip -batch - <<-END\n\
             \tlink set lo up\n\
             \taddr add {}/24 dev eth0\n\
             \tlink set eth0 up\n\
             \tEND\n\
             fi\n",
            address(number)
        );
        match self {
            Self::Ochre { module, provider } => {
                let module = module.display();
                let provider = provider.display();
                script.push_str(&format!(
                    "mkdir -p /run/ochre\n\
                     ln -sf '{provider}' /run/ochre/libochre-rdmav34.so\n\
                     echo 'driver /run/ochre/libochre' > /etc/libibverbs.d/ochre.driver\n\
                     insmod '{module}'\n\
                     n=0\n\
                     while ! ls /sys/class/infiniband/ochre_0 /dev/infiniband/uverbs0 /dev/infiniband/umad0 >/dev/null 2>&1; do\n\
                     \tn=$((n + 1))\n\
                     \tif [ $n -gt {} ]; then\n\
                     \t\techo 'the module is loaded but there is no device ochre_0' >&2\n\
                     \t\texit 1\n\
                     \tfi\n\
                     \tsleep 0.05\n\
                     done\n",
                    100 * patience::factor()
                ));
            }
            Self::Rxe => script.push_str(
                "modprobe rdma_rxe\n\
                 rdma link add rxe_0 type rxe netdev eth0\n",
            ),
            Self::None => {}
        }
        script
    }
}

/// Address of the VM with this number on the Ethernet between the VMs.
pub fn address(number: u8) -> String {
    format!("192.168.64.{number}")
}

/// Brings a guest that is up to a usable device.
///
/// # Errors
/// The script's last words, and the end of the kernel's log.
pub fn prepare(vm: &Vm, kind: &Kind, number: u8) -> Result<()> {
    let since = vm.records(0).len();
    shell(vm, &kind.script(number), false)?
        .wait(Duration::from_secs(60))?
        .success("preparing the device")
        .map(drop)
        .with_context(|| {
            let records = vm.records(since);
            let tail: Vec<_> = records
                .iter()
                .rev()
                .take(12)
                .rev()
                .map(|record| format!("    {}", record.text))
                .collect();
            format!(
                "VM {}: no usable RDMA device; the kernel's log ends with:\n{}",
                vm.name(),
                tail.join("\n")
            )
        })
}
