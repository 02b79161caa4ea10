// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs the fuzz targets: each for some seconds, or as the command line says.
//!
//!     cargo test --profile checked -p ochre-fuzz --test fuzz -- [NAME...]
//!         [--seconds N] [--count N] [--seed N] [--corpus FOLDER] [--blind] [--progress]
//!     ... -- replay TARGET FILE
//!     ... -- list

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ochre_fuzz::driver::{names, run, run_file, Options};
use ochre_fuzz::targets::TARGETS;

/// Seconds for each target when nothing is said.
const SECONDS: u64 = 5;

/// `build/fuzz` at the top.
fn failures() -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    top.unwrap_or(Path::new(".")).join("build/fuzz")
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        time: Duration::from_secs(SECONDS),
        count: u64::MAX,
        seed: 1,
        names: Vec::new(),
        folder: failures(),
        corpus: None,
        blind: false,
        progress: false,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--corpus" {
            let folder = arguments.next().ok_or("--corpus wants a folder")?;
            options.corpus = Some(folder.into());
            continue;
        }
        let mut number = || {
            let value = arguments.next().map(|v| v.parse::<u64>());
            match value {
                Some(Ok(n)) => Ok(n),
                _ => Err(format!("{argument} wants a number")),
            }
        };
        match argument.as_str() {
            "--seconds" => options.time = Duration::from_secs(number()?),
            "--count" => options.count = number()?,
            "--seed" => options.seed = number()?,
            "--blind" => options.blind = true,
            "--progress" => options.progress = true,
            // What cargo passes on to tests.
            "--nocapture" | "--quiet" | "-q" => {}
            name if !name.starts_with('-') => {
                if !TARGETS.iter().any(|t| t.name.contains(name)) {
                    return Err(format!("no target {name}; {}", names()));
                }
                options.names.push(name.to_owned());
            }
            other => return Err(format!("{other} is unknown; see tests/README.md")),
        }
    }
    Ok(options)
}

fn act(arguments: &[String]) -> Result<bool, String> {
    match arguments {
        [verb, target, file] if verb == "replay" => {
            run_file(target, Path::new(file)).map(|()| true)
        }
        [verb] if verb == "list" || verb == "--list" => {
            for target in TARGETS {
                println!("{:14} {}", target.name, target.what);
            }
            Ok(true)
        }
        _ => Ok(run(&options(arguments)?)),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match act(&arguments) {
        Ok(well) => ExitCode::from(u8::from(!well)),
        Err(e) => {
            eprintln!("fuzz: {e}");
            ExitCode::from(2)
        }
    }
}
