// SPDX-License-Identifier: GPL-2.0-or-later

//! Rules for wire faults as the user of QEMU sets them: at the start, while the device lives, and wrong ones.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]
mod common;

use common::machine::{refused, Folder, Machine};
use common::pair::{connected, DATA};
use ochre_hw::wqe::SendOpcode;
use serde_json::{json, Value};

const PATH: &str = "/machine/peripheral/hca";

fn get(machine: &mut Machine) -> String {
    let value = machine.qmp("qom-get", json!({ "path": PATH, "property": "faults0" }));
    let Ok(Value::String(text)) = value else {
        panic!("faults0 is {value:?}");
    };
    text
}

fn set(machine: &mut Machine, rules: &str) -> Result<Value, String> {
    let arguments = json!({ "path": PATH, "property": "faults0", "value": rules });
    machine.qmp("qom-set", arguments)
}

#[test]
fn rules_act_from_the_start_and_are_changed_while_the_device_lives() {
    const LEN: usize = 40_000;
    let folder = Folder::new();
    let file = folder.path("rules");
    std::fs::write(
        &file,
        "# two\nseed 9\ndrop opcode=rc-rdma-write-middle nth=3\necn dir=rx\n",
    )
    .unwrap();
    let from_file = format!(",faults0=@{}", file.display());
    let (mut a, mut b) = connected(&folder.path("link"), &from_file, "");
    let bytes: Vec<u8> = (0..LEN).map(|i| (i ^ i >> 8) as u8).collect();
    a.machine.write(DATA, &bytes);
    let remote = b.remote(DATA);
    a.post(SendOpcode::Write, &remote, DATA, LEN as u32, &[]);
    a.done();
    assert_eq!(b.machine.read(DATA, LEN), bytes);
    let text = get(&mut a.machine);
    assert!(text.starts_with("seed 9\n"), "{text}");
    assert!(text.contains("nth=3  # hits 3, shots 1, spent\n"), "{text}");

    // Wrong rules are refused and change nothing.
    let error = set(&mut a.machine, "drop; delay 5").unwrap_err();
    assert!(
        error.starts_with("faults0: line 1, column 13: `5` is not a time"),
        "{error}"
    );
    assert_eq!(get(&mut a.machine), text);

    // Every packet sent twice and every answer late, at the other end.
    set(&mut b.machine, "duplicate dir=tx; delay 100us dir=rx").unwrap();
    set(&mut a.machine, "").unwrap();
    assert_eq!(get(&mut a.machine), "");
    for _ in 0..10 {
        a.post(SendOpcode::Read, &remote, DATA + 0x10_0000, LEN as u32, &[]);
        a.done();
    }
    assert_eq!(a.machine.read(DATA + 0x10_0000, LEN), bytes);
    let text = get(&mut b.machine);
    assert!(
        text.lines().count() == 3 && !text.contains("shots 0"),
        "{text}"
    );
    set(&mut b.machine, "").unwrap();
    a.post(SendOpcode::Write, &remote, DATA, LEN as u32, &[]);
    a.done();
    a.machine.quit();
    b.machine.quit();
}

#[test]
fn wrong_rules_are_refused_at_the_start() {
    for (rules, what) in [
        (
            "faults0=drp",
            "faults0: line 1, column 1: `drp` is not an action, did you mean `drop`?",
        ),
        (
            "faults0=@/nowhere",
            "faults0: cannot read rules from /nowhere",
        ),
        (
            "faults1=drop",
            "faults1: the device has no such port; add ports=2",
        ),
    ] {
        let message = refused(&["-device", &format!("ochre-hca,{rules}")]);
        assert!(message.contains(what), "{rules}: {message}");
    }
}
