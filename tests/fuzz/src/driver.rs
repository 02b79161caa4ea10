// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs targets for a time each, with inputs that grow out of one another; the same seed gives the
//! same inputs in the same order.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::rng::Rng;
use crate::corpus::Corpus;
use crate::coverage::{self, Reached};
use crate::mutate::mutate;
use crate::note::take_notes;
use crate::shrink::shrink;
use crate::targets::TARGETS;
use crate::Target;

/// An input that takes longer hangs.
const HANG: Duration = Duration::from_secs(20);
/// Time for making a failure small.
const SHRINK: Duration = Duration::from_secs(20);
/// Most inputs that are kept for mutation.
const KEPT: usize = 4096;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for each target.
    pub time: Duration,
    /// Inputs for each target at most.
    pub count: u64,
    /// Seed of all inputs.
    pub seed: u64,
    /// Targets whose names contain one of these; all, if there is none.
    pub names: Vec<String>,
    /// Where failing inputs are written.
    pub folder: PathBuf,
    /// Where inputs that lead to something new are kept for the next time, a folder for each target.
    pub corpus: Option<PathBuf>,
    /// Counts edges, but keeps no input for them: what guidance gains is the difference.
    pub blind: bool,
    /// Says how far it is every 10 seconds.
    pub progress: bool,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|n| name.contains(n.as_str()))
    }
}

/// A failure, with the smallest input found.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the target said.
    pub message: String,
    /// The input.
    pub input: Vec<u8>,
}

/// Runs one input; gives what the target says against it.
fn attempt(target: &Target, input: &[u8]) -> Result<(), String> {
    take_notes();
    coverage::clear();
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "panicked".to_owned())
    })
}

/// Ends the process if an input hangs, because nothing else can.
struct Watchdog {
    /// Counts inputs.
    turn: AtomicU64,
    now: Mutex<(&'static str, Vec<u8>)>,
}

impl Watchdog {
    fn start(folder: &Path) -> Arc<Self> {
        let watchdog = Arc::new(Watchdog {
            turn: AtomicU64::new(0),
            now: Mutex::new(("", Vec::new())),
        });
        let watched = Arc::clone(&watchdog);
        let folder = folder.to_owned();
        std::thread::spawn(move || loop {
            let before = watched.turn.load(Ordering::Relaxed);
            std::thread::sleep(HANG);
            let after = watched.turn.load(Ordering::Relaxed);
            // An odd number: an input is running.
            if before == after && after % 2 == 1 {
                if let Ok(now) = watched.now.lock() {
                    let path = save(&folder, now.0, "hang", &now.1);
                    println!("{}: an input hangs\n  {}", now.0, replay(now.0, &path));
                }
                std::process::exit(1);
            }
        });
        watchdog
    }

    fn run(&self, target: &Target, input: &[u8]) -> Result<(), String> {
        if let Ok(mut now) = self.now.lock() {
            now.0 = target.name;
            now.1.clear();
            now.1.extend_from_slice(input);
        }
        self.turn.fetch_add(1, Ordering::Relaxed);
        let result = attempt(target, input);
        self.turn.fetch_add(1, Ordering::Relaxed);
        result
    }
}

/// Writes an input to a file; gives its path.
fn save(folder: &Path, name: &str, kind: &str, input: &[u8]) -> PathBuf {
    let path = folder.join(format!("{name}-{kind}.input"));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, input));
    if let Err(e) = written {
        println!("cannot write {}: {e}", path.display());
    }
    path
}

fn replay(name: &str, path: &Path) -> String {
    format!(
        "replay: cargo test --profile checked -p ochre-fuzz --test fuzz -- replay {name} {}",
        path.display()
    )
}

/// How far a target came.
struct Progress {
    runs: u64,
    kept: usize,
    outcomes: usize,
    edges: usize,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress {
            runs,
            kept,
            outcomes,
            edges,
        } = self;
        write!(f, "{runs} inputs, {kept} kept for {outcomes} outcomes")?;
        match coverage::total() {
            0 => Ok(()),
            all => write!(f, " and {edges} of {all} edges"),
        }
    }
}

/// Runs a target until its time is up or it fails.
fn fuzz(target: &Target, options: &Options, watchdog: &Watchdog) -> (Progress, Option<Failure>) {
    let mut rng = Rng::new(options.seed);
    let mut seen = HashSet::new();
    let mut reached = Reached::default();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut corpus = options
        .corpus
        .as_ref()
        .map(|folder| Corpus::open(&folder.join(target.name)));
    let mut seeds = (target.seeds)().into_iter();
    let start = Instant::now();
    let mut told = start;
    let mut runs = 0;
    let failure = loop {
        let mut old = None;
        let input = if let Some(seed) = seeds.next() {
            seed
        } else if let Some((path, input)) = corpus.as_mut().and_then(Corpus::read_next) {
            old = Some(path);
            input
        } else if kept.is_empty() {
            rng.bytes(64)
        } else {
            let input = pick(&mut rng, kept.len());
            let other = pick(&mut rng, kept.len());
            mutate(&mut rng, &kept[input], &kept[other])
        };
        if let Err(message) = watchdog.run(target, &input) {
            break Some(Failure { message, input });
        }
        runs += 1;
        let mut is_new = reached.take() && !options.blind;
        for note in take_notes() {
            is_new |= seen.insert(note);
        }
        if let Some(corpus) = &corpus {
            match old {
                Some(path) if !is_new => corpus.forget(&path),
                None if is_new => corpus.keep(&input),
                _ => {}
            }
        }
        if is_new || kept.is_empty() {
            if kept.len() == KEPT {
                let at = rng.below(KEPT as u64) as usize;
                kept.swap_remove(at);
            }
            kept.push(input);
        }
        let now = Instant::now();
        let progress = || Progress {
            runs,
            kept: kept.len(),
            outcomes: seen.len(),
            edges: reached.edges(),
        };
        if options.progress && now - told >= Duration::from_secs(10) {
            told = now;
            let seconds = (now - start).as_secs();
            println!("  {}: {seconds} s, {}", target.name, progress());
        }
        if now - start >= options.time || runs >= options.count {
            break None;
        }
    };
    let progress = Progress {
        runs,
        kept: kept.len(),
        outcomes: seen.len(),
        edges: reached.edges(),
    };
    (progress, failure)
}

/// An index below `len`: one of the latest so many, which may be few or all, so that what is newest has its turn often
/// and nothing is forgotten.
fn pick(rng: &mut Rng, len: usize) -> usize {
    let window = 1 << rng.below(u64::from(len.ilog2()) + 2);
    len - 1 - rng.below(len.min(window) as u64) as usize
}

/// Runs all targets that are asked for, prints a line for each and the sum; whether all are well.
pub fn run(options: &Options) -> bool {
    let watchdog = Watchdog::start(&options.folder);
    let (mut passed, mut failed) = (0, 0);
    // Failures are told here; the text of every attempt to shrink them is of no use.
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    for target in TARGETS.iter().filter(|t| options.wants(t.name)) {
        let (progress, failure) = fuzz(target, options, &watchdog);
        let Some(failure) = failure else {
            passed += 1;
            println!("fuzz {} ... ok ({progress})", target.name);
            continue;
        };
        failed += 1;
        let path = save(&options.folder, target.name, "failure", &failure.input);
        println!(
            "fuzz {} ... FAILED with seed {} after {} inputs: {}",
            target.name, options.seed, progress.runs, failure.message
        );
        let small = shrink(failure.input, SHRINK, |input| {
            watchdog.run(target, input).is_err()
        });
        if let Err(message) = attempt(target, &small) {
            println!("  smallest input: {} bytes: {message}", small.len());
            save(&options.folder, target.name, "failure", &small);
        }
        println!("  {}", replay(target.name, &path));
    }
    set_hook(hook);
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out");
    failed == 0 && passed > 0
}

/// Runs a kept input again, with the panic's own text.
///
/// # Errors
///
/// No such target, or a file that cannot be read.
pub fn run_file(name: &str, path: &Path) -> Result<(), String> {
    let target = TARGETS
        .iter()
        .find(|t| t.name == name)
        .ok_or_else(|| format!("no target {name}; {}", names()))?;
    let input = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    (target.run)(&input);
    println!("{name}: {} bytes, well", input.len());
    Ok(())
}

/// The names of all targets.
pub fn names() -> String {
    let names: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
    format!("there are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note;

    /// Fails where three bytes stand behind each other; each that is right is noted.
    fn picky(input: &[u8]) {
        let right = input
            .windows(3)
            .map(|w| w.iter().zip(b"IBA").take_while(|(a, b)| a == b).count())
            .max();
        note(right);
        assert_ne!(right, Some(3), "found");
    }

    fn options() -> Options {
        Options {
            time: Duration::from_secs(60),
            count: 5_000_000,
            seed: 3,
            names: Vec::new(),
            folder: PathBuf::new(),
            corpus: None,
            blind: false,
            progress: false,
        }
    }

    fn idle() -> Watchdog {
        Watchdog {
            turn: AtomicU64::new(0),
            now: Mutex::default(),
        }
    }

    /// Held by whoever fuzzes here: the counters of edges are the program's.
    static FUZZING: Mutex<()> = Mutex::new(());

    #[test]
    fn a_hidden_failure_is_found_again_and_made_small() {
        let _alone = FUZZING.lock();
        let target = Target {
            name: "picky",
            what: "",
            run: picky,
            seeds: || vec![vec![0; 40]],
        };
        let find = || fuzz(&target, &options(), &idle()).1.expect("it fails");
        let failure = find();
        assert!(failure.message.contains("found"));
        assert_eq!(find().input, failure.input, "the same seed, the same input");
        let small = shrink(failure.input, SHRINK, |i| attempt(&target, i).is_err());
        assert_eq!(small, b"IBA");
    }

    /// Fails behind four conditions of which nothing tells but the edges that it counts.
    fn deep(input: &[u8]) {
        let right =
            |(at, wanted): &(usize, u8)| input.get(*at).is_some_and(|b| b & 0x1f == *wanted);
        let steps = [(3, 9), (11, 20), (17, 5), (30, 18)];
        let passed = steps.iter().take_while(|step| right(step)).count();
        for edge in 0..passed {
            coverage::tests::count(edge);
        }
        assert_ne!(passed, steps.len(), "found");
    }

    #[test]
    fn edges_lead_to_a_failure_that_is_not_found_without_them() {
        let _alone = FUZZING.lock();
        coverage::tests::register_some();
        let target = Target {
            name: "deep",
            what: "",
            run: deep,
            seeds: || vec![vec![0; 32]],
        };
        let mut options = options();
        options.count = 300_000;
        let (_, failure) = fuzz(&target, &options, &idle());
        assert!(failure.expect("it fails").message.contains("found"));
        options.blind = true;
        let (progress, failure) = fuzz(&target, &options, &idle());
        assert!(failure.is_none(), "found blindly");
        assert!(progress.edges < 4 && progress.kept == 1);
    }

    #[test]
    fn names_choose_targets() {
        let mut options = options();
        assert!(options.wants("wire"));
        options.names = vec!["mad".into()];
        assert!(options.wants("mads") && !options.wants("wire"));
    }
}
