// SPDX-License-Identifier: GPL-2.0-or-later
//! Where the lab finds what it boots, and where it leaves its logs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{anyhow, bail, Context, Result};

use crate::cleanup;

/// The checkout.
///
/// # Errors
/// When the lab runs outside of one.
pub fn top() -> Result<PathBuf> {
    if let Some(top) = env::var_os("OCHRE_TOP") {
        return Ok(top.into());
    }
    let here = env::current_dir().context("no working directory")?;
    here.ancestors()
        .find(|folder| folder.join("drivers/infiniband/hw/ochre").is_dir())
        .map(Path::to_owned)
        .ok_or_else(|| {
            anyhow!(
                "{} is not in a checkout of Ochre; set OCHRE_TOP to one",
                here.display()
            )
        })
}

/// The folder for everything that set-up makes.
///
/// # Errors
/// When neither the environment nor the home folder names one.
pub fn cache() -> Result<PathBuf> {
    if let Some(cache) = env::var_os("OCHRE_CACHE") {
        return Ok(cache.into());
    }
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(env::var_os("HOME").context("neither OCHRE_CACHE nor HOME is set")?)
            .join(".cache"),
    };
    Ok(base.join("ochre"))
}

/// The folder for logs, captures and reports; made if it is not there.
///
/// # Errors
/// When it cannot be made.
pub fn build(name: &str) -> Result<PathBuf> {
    let folder = top()?.join("build").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// The QEMU that has our device.
///
/// # Errors
/// When there is none.
pub fn qemu(chosen: Option<&Path>) -> Result<PathBuf> {
    let path = match chosen {
        Some(path) => path.to_owned(),
        None => cache()?.join("qemu/build/qemu-system-x86_64"),
    };
    existing(path, "QEMU", "run 'make setup', or name one with --qemu")
}

/// What names the debug kernel where a kernel image may be named.
const DEBUG: &str = "debug";

/// A kernel to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its image.
    pub image: PathBuf,
    /// Whether it is the debug kernel, with a module of its own.
    pub debug: bool,
}

/// The kernel to boot: the one given, `KERNEL`, or the stock one of the root file system.
///
/// # Errors
/// When there is none.
pub fn kernel(chosen: Option<&Path>) -> Result<Kernel> {
    let stock = |image| Kernel {
        image,
        debug: false,
    };
    let (path, remedy) = match (chosen, env::var_os("KERNEL")) {
        (Some(path), _) => (path.to_owned(), "check --kernel"),
        (None, Some(path)) if !path.is_empty() => {
            (PathBuf::from(path), "check the variable KERNEL")
        }
        (None, _) => return stock_kernel().map(stock),
    };
    if path == Path::new(DEBUG) {
        let image = cache()?.join("linux-debug/arch/x86/boot/bzImage");
        let image = existing(image, "debug kernel", "run 'make kernel-debug'")?;
        return Ok(Kernel { image, debug: true });
    }
    existing(path, "kernel image", remedy).map(stock)
}

fn stock_kernel() -> Result<PathBuf> {
    let mut images: Vec<_> = fs::read_dir("/boot")
        .context("cannot list /boot")?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-7.3"))
        })
        .collect();
    images.sort();
    images.pop().ok_or_else(|| {
        anyhow!(
            "no stock kernel /boot/vmlinuz-7.3* here; run 'make setup', or name one with --kernel"
        )
    })
}

/// The kernel module for the stock kernel or for the debug kernel.
///
/// # Errors
/// When it is not built.
pub fn module(chosen: Option<&Path>, debug: bool) -> Result<PathBuf> {
    if let Some(path) = chosen {
        return existing(path.to_owned(), "kernel module", "check --module");
    }
    let (folder, remedy) = if debug {
        ("module-debug", "run 'scripts/setup.sh moduledebug'")
    } else {
        ("module", "run 'make setup', or name one with --module")
    };
    existing(
        top()?.join("build").join(folder).join("ochre.ko"),
        "kernel module",
        remedy,
    )
}

/// The provider for libibverbs.
///
/// # Errors
/// When it is not built.
pub fn provider(chosen: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = chosen {
        return existing(path.to_owned(), "libibverbs provider", "check --provider");
    }
    existing(
        top()?.join("build/provider/libochre-rdmav34.so"),
        "libibverbs provider",
        "run 'make setup', or name one with --provider",
    )
}

/// The folder of this program, where its siblings are too.
///
/// # Errors
/// When the system does not tell.
pub fn programs() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program's own path")?;
    program
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| anyhow!("{} has no folder", program.display()))
}

/// A program built together with this one.
///
/// # Errors
/// When it is not there.
pub fn sibling(name: &str) -> Result<PathBuf> {
    existing(
        programs()?.join(name),
        name,
        "build the whole crate ochre-lab",
    )
}

fn existing(path: PathBuf, what: &str, remedy: &str) -> Result<PathBuf> {
    if path.exists() {
        Ok(path)
    } else {
        bail!("there is no {what} at {}; {remedy}", path.display())
    }
}

/// Makes a folder for sockets, with a path short enough for them, removed when the lab ends.
///
/// # Errors
/// When it cannot be made.
pub fn run_folder() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    remove_stale();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(format!("/tmp/ochre-lab-{}-{count}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    cleanup::add_folder(&folder);
    Ok(folder)
}

/// Removes the folders of labs that were killed before they could do it.
fn remove_stale() {
    let Ok(entries) = fs::read_dir("/tmp") else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(owner) = name
            .to_string_lossy()
            .strip_prefix("ochre-lab-")
            .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok())
        else {
            continue;
        };
        if !Path::new(&format!("/proc/{owner}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
