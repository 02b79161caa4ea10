// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! Makes the bindings of libibverbs' private interface from rdma-core's own headers.
//!
//! `RDMA_CORE_INCLUDE` names the folder that holds `infiniband/driver.h`; by default it is where
//! `make setup` puts it, `rdma-core/include` under `OCHRE_CACHE`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn include_dir() -> PathBuf {
    if let Some(dir) = env::var_os("RDMA_CORE_INCLUDE") {
        return dir.into();
    }
    let cache = env::var_os("OCHRE_CACHE").map(PathBuf::from).or_else(|| {
        let home = env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache")))?;
        Some(home.join("ochre"))
    });
    cache.unwrap_or_default().join("rdma-core/include")
}

fn main() {
    for name in ["RDMA_CORE_INCLUDE", "OCHRE_CACHE"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let include = include_dir();
    let header = include.join("infiniband/driver.h");
    assert!(
        header.is_file(),
        "there is no {}: run 'make setup', or let RDMA_CORE_INCLUDE name the folder of rdma-core's private headers",
        header.display()
    );
    println!("cargo:rerun-if-changed={}", header.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("verbs.rs");
    let status = Command::new("bindgen")
        .arg(&header)
        .args([
            "--allowlist-function",
            "verbs_.*|_verbs_init.*|ibv_cmd_.*|ibv_dontfork_range|ibv_dofork_range",
            "--allowlist-type",
            "ibv_.*|ib_uverbs_.*|verbs_.*",
            "--allowlist-var",
            "VERBS_MATCH_.*",
            "--wrap-unsafe-ops",
            "--default-enum-style",
            "consts",
            "--no-prepend-enum-name",
            "--use-core",
            "--with-derive-default",
            "--no-doc-comments",
            "--rust-target",
            "1.82",
            "-o",
        ])
        .arg(&out)
        .arg("--")
        .arg("-I")
        .arg(&include)
        .arg("-D_GNU_SOURCE")
        .status()
        .unwrap_or_else(|e| panic!("cannot run bindgen ({e}): the provider is built inside the root, by scripts/enter.sh"));
    assert!(status.success(), "bindgen failed on {}", header.display());
    println!("cargo:rustc-link-lib=ibverbs");
}
