// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs scenarios, each with its seeds, and says what went.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::tally::Tally;

/// Something to simulate.
pub struct Scenario {
    pub name: &'static str,
    /// Seeds of a run for which nothing else is said.
    pub seeds: std::ops::Range<u64>,
    /// Runs one seed; panics where something is wrong.
    pub run: Box<dyn Fn(u64) -> Tally + Send + Sync>,
}

/// What is to be run.
#[derive(Debug, Default)]
pub struct Options {
    /// Parts of names; none means all.
    pub names: Vec<String>,
    /// The first seed.
    pub seed: Option<u64>,
    /// Go on with new seeds for so long, each scenario.
    pub soak: Option<Duration>,
}

/// Messages of a whole run, at least.
const MESSAGES: u64 = 100_000;

impl Options {
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value = arguments.next().and_then(|v| v.parse::<u64>().ok());
                value.ok_or_else(|| format!("{argument} wants a number"))
            };
            match argument.as_str() {
                "--seed" => options.seed = Some(number()?),
                "--seconds" => options.soak = Some(Duration::from_secs(number()?)),
                // What cargo passes on to tests.
                "--nocapture" | "--quiet" | "-q" => {}
                name if !name.starts_with('-') => options.names.push(name.to_owned()),
                other => {
                    return Err(format!(
                        "{other} is unknown; there are --seed and --seconds"
                    ))
                }
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|n| name.contains(n.as_str()))
    }

    /// A run that says nothing of names, seeds and time.
    fn is_plain(&self) -> bool {
        self.names.is_empty() && self.seed.is_none() && self.soak.is_none()
    }
}

/// Runs one scenario: what went, or the seed that failed.
fn run_one(scenario: &Scenario, options: &Options) -> (u64, Result<Tally, u64>) {
    let seeds = match (options.seed, options.soak) {
        (Some(seed), None) => seed..seed + 1,
        (seed, Some(_)) => seed.unwrap_or(scenario.seeds.start)..u64::MAX,
        (None, None) => scenario.seeds.clone(),
    };
    let mut sum = Tally::default();
    let mut done = 0;
    let start = Instant::now();
    let mut told = start;
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| (scenario.run)(seed))) {
            Ok(tally) => sum += tally,
            Err(_) => return (done, Err(seed)),
        }
        done += 1;
        if options.soak.is_some_and(|time| start.elapsed() >= time) {
            break;
        }
        if told.elapsed() >= Duration::from_secs(20) {
            told = Instant::now();
            let (name, seconds) = (scenario.name, start.elapsed().as_secs());
            println!(
                "  {name}: {seconds} s, {} messages, seeds up to {seed}",
                sum.total()
            );
        }
    }
    (done, Ok(sum))
}

/// Runs what is asked for, as many at a time as there are processors; whether all is well.
pub fn run(scenarios: &[Scenario], options: &Options) -> bool {
    let wanted: Vec<_> = scenarios.iter().filter(|s| options.wants(s.name)).collect();
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Tally::default(), 0u64, 0u64));
    let work = || {
        while let Some(scenario) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (name, start) = (scenario.name, Instant::now());
            let (seeds, result) = run_one(scenario, options);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(tally) => {
                    results.0 += tally;
                    results.1 += 1;
                    println!(
                        "simulation {name} ... ok ({seeds} seeds, {} messages{}, {:.1} s)",
                        tally.total(),
                        tally.happenings(),
                        start.elapsed().as_secs_f64()
                    );
                }
                Err(seed) => {
                    results.2 += 1;
                    println!("simulation {name} ... FAILED with seed {seed}; to see it again:");
                    println!(
                        "  cargo test --profile checked -p ochre-hca --test simulation -- {name} --seed {seed}"
                    );
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads.min(wanted.len()) {
            scope.spawn(work);
        }
    });
    let (sum, passed, mut failed) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\nsum: {} messages: {}", sum.total(), sum.by_opcode());
    println!("sizes: {}", sum.by_size());
    if options.is_plain() && failed == 0 {
        // What the run is for: enough of them, of all kinds.
        let missing = sum.missing();
        if !missing.is_empty() {
            println!("none at all: {}", missing.join("; "));
            failed += 1;
        }
        if sum.total() < MESSAGES {
            println!("fewer than {MESSAGES} messages");
            failed += 1;
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out");
    failed == 0 && passed > 0
}
