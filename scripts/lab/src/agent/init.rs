// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent as the guest's first process.
//!
//! virtme-ng's own init spends most of a boot under translation on things that a guest of the lab has
//! no use for. Its initramfs starts whatever `init=` comes first on the kernel's command line: the
//! agent, which mounts what programs expect, starts itself once more to serve the host, and reaps what
//! nobody waits for.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::wait::{wait, WaitStatus};
use nix::unistd::Pid;

use crate::proto::USR_TAG;

/// File systems of the kernel: type, place, options.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/run", "mode=755"),
    ("devpts", "/dev/pts", ""),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("configfs", "/sys/kernel/config", ""),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
];

/// Folders that the guest may change; the changes are lost with it. The checkout and the cache may be
/// in one of them, so none is hidden by an empty file system.
const WRITABLE: &[&str] = &["/etc", "/var", "/root", "/tmp"];

/// Where `/usr` of the root file system is seen, and what of it somebody may change while the guest runs.
const ROOT_USR: &str = "/run/root-usr";
const CHANGING: &[&str] = &["local", "src"];

/// Names of the VMs on the Ethernet between them.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n192.168.64.1 a\n192.168.64.2 b\n";

/// Whether this process is the guest's first.
pub(super) fn is_first() -> bool {
    std::process::id() == 1
}

/// Sets the guest up, runs the agent, and powers the guest off when the agent ends.
///
/// # Errors
/// When the agent cannot be started.
pub(super) fn run() -> io::Result<()> {
    for &(kind, place, options) in MOUNTS {
        let _ = fs::create_dir(place);
        // A file system that is a module not loaded yet has no place.
        if Path::new(place).is_dir() {
            attach(kind, place, options);
        }
    }
    cache_usr();
    for &folder in WRITABLE {
        let scratch = format!("/run/writable{folder}");
        let (upper, work) = (format!("{scratch}/upper"), format!("{scratch}/work"));
        let made = fs::create_dir_all(&upper).and_then(|()| fs::create_dir_all(&work));
        if let Err(error) = made {
            eprintln!("ochre-agent: {scratch}: {error}");
        }
        let options = format!("lowerdir={folder},upperdir={upper},workdir={work}");
        attach("overlay", folder, &options);
    }
    if let Some(modules) = kernel_argument("virtme_link_mods") {
        link_modules(&modules);
    }
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ] {
        if !Path::new(link).exists() {
            let _ = std::os::unix::fs::symlink(target, link);
        }
    }
    let _ = fs::create_dir_all("/run/lock");
    let _ = fs::write("/etc/hosts", HOSTS);
    if let Some(name) = kernel_argument("virtme_hostname") {
        let _ = fs::write("/proc/sys/kernel/hostname", &name);
        let _ = fs::write("/etc/hostname", format!("{name}\n"));
    }

    let agent = Command::new("/proc/self/exe")
        .arg0("ochre-agent")
        .env_clear()
        .envs([
            (
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            ("HOME", "/root"),
            ("USER", "root"),
            ("SHELL", "/bin/bash"),
            ("TERM", "linux"),
            ("LANG", "C.UTF-8"),
        ])
        .current_dir("/")
        .spawn()?;
    let agent = i32::try_from(agent.id()).map(Pid::from_raw);
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) if Ok(pid) == agent => {
                break;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    nix::unistd::sync();
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(errno) => Err(errno.into()),
    }
}

/// Lays a `/usr` that the guest caches over that of the root file system: under translation programs start
/// several times as fast. Folders of it that may change while the guest runs stay as they are.
fn cache_usr() {
    let mounted = fs::create_dir_all(ROOT_USR).and_then(|()| {
        bind("/usr", ROOT_USR)?;
        let options = "trans=virtio,version=9p2000.L,access=any,cache=loose,msize=512000";
        mount(
            Some(USR_TAG),
            "/usr",
            Some("9p"),
            MsFlags::MS_RDONLY,
            Some(options),
        )?;
        for folder in CHANGING {
            bind(&format!("{ROOT_USR}/{folder}"), &format!("/usr/{folder}"))?;
        }
        Ok(())
    });
    if let Err(error) = mounted {
        eprintln!("ochre-agent: /usr is not cached, or not whole: {error}");
    }
}

fn bind(from: &str, to: &str) -> io::Result<()> {
    let none = None::<&str>;
    mount(Some(from), to, none, MsFlags::MS_BIND, none)?;
    Ok(())
}

fn attach(kind: &str, place: &str, options: &str) {
    let mounted = mount(
        Some(kind),
        place,
        Some(kind),
        MsFlags::empty(),
        Some(options),
    );
    match mounted {
        Ok(()) | Err(Errno::EBUSY) => {}
        Err(errno) => eprintln!("ochre-agent: cannot mount {kind} on {place}: {errno}"),
    }
}

/// The modules of a kernel that was built in a tree of its own are in that tree: virtme-ng says where.
fn link_modules(tree: &str) {
    const MODULES: &str = "/usr/lib/modules";
    attach("tmpfs", MODULES, "mode=755");
    let linked = release()
        .and_then(|release| std::os::unix::fs::symlink(tree, Path::new(MODULES).join(release)));
    if let Err(error) = linked {
        eprintln!("ochre-agent: no kernel modules from {tree}: {error}");
    }
}

/// The kernel's release.
fn release() -> io::Result<String> {
    let name = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(name.trim_end().to_owned())
}

/// Value of a kernel argument.
fn kernel_argument(name: &str) -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").ok()?;
    line.split_whitespace()
        .filter_map(|argument| argument.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}
