// SPDX-License-Identifier: GPL-2.0-or-later

//! Makes the bindings of libibverbs from its public header.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("verbs.rs");
    let status = Command::new("bindgen")
        .args(["--allowlist-function", "ibv_.*"])
        .args(["--allowlist-type", "ibv_.*"])
        .args(["--default-enum-style", "consts"])
        .args([
            "--no-prepend-enum-name",
            "--use-core",
            "--with-derive-default",
        ])
        .args([
            "--no-doc-comments",
            "--no-layout-tests",
            "--wrap-unsafe-ops",
        ])
        .args(["--rust-target", "1.82", "-o"])
        .arg(&out)
        .arg("/usr/include/infiniband/verbs.h")
        .status()
        .unwrap_or_else(|e| {
            panic!("cannot run bindgen ({e}): build inside the root, by scripts/enter.sh")
        });
    assert!(status.success(), "bindgen failed on infiniband/verbs.h");
    println!("cargo:rustc-link-lib=ibverbs");
}
