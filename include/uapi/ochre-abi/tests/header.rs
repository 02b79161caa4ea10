// SPDX-License-Identifier: GPL-2.0-or-later OR BSD-2-Clause

//! The Rust twin is laid out as the C header: the C compiler is asked about each field.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use ochre_abi::*;

/// C structure, its size in Rust, its fields in Rust.
type Twin = (&'static str, usize, &'static [(&'static str, usize, usize)]);

macro_rules! twins {
    ($($c:literal => $rust:ty),* $(,)?) => {
        &[$(($c, size_of::<$rust>(), <$rust>::FIELDS)),*]
    };
}

const TWINS: &[Twin] = twins! {
    "ochre_alloc_ucontext_req" => AllocUcontextReq,
    "ochre_alloc_ucontext_resp" => AllocUcontextResp,
    "ochre_alloc_pd_resp" => AllocPdResp,
    "ochre_create_cq_req" => CreateCqReq,
    "ochre_create_cq_resp" => CreateCqResp,
    "ochre_create_qp_req" => CreateQpReq,
    "ochre_create_qp_resp" => CreateQpResp,
    "ochre_create_ah_resp" => CreateAhResp,
};

fn header() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma/ochre-abi.h")
}

#[test]
fn every_structure_of_the_header_has_a_twin() {
    let text = std::fs::read_to_string(header()).unwrap();
    let in_header: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"))
        .collect();
    let ours: Vec<_> = TWINS.iter().map(|t| t.0).collect();
    assert_eq!(in_header, ours);
}

#[test]
fn the_c_compiler_agrees_on_every_field() {
    let mut code = String::from("#include <stddef.h>\n#include \"ochre-abi.h\"\n");
    writeln!(
        code,
        "_Static_assert(OCHRE_UVERBS_ABI_VERSION == {UVERBS_ABI_VERSION}, \"version\");"
    )
    .unwrap();
    for (name, size, fields) in TWINS {
        writeln!(
            code,
            "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");"
        )
        .unwrap();
        for (field, offset, bytes) in *fields {
            writeln!(
                code,
                "_Static_assert(offsetof(struct {name}, {field}) == {offset} &&                  sizeof(((struct {name} *)0)->{field}) == {bytes}, \"{name}.{field}\");"
            )
            .unwrap();
        }
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = dir.join("layout.c");
    std::fs::write(&source, code).unwrap();
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I"])
        .arg(header().parent().unwrap())
        .arg(&source)
        .output()
        .expect("the C compiler runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
