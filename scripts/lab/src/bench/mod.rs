// SPDX-License-Identifier: GPL-2.0-or-later
//! The bench: Ochre and software RoCE in the same two VMs, measured in turn by the same programs,
//! beside what the machine itself can do and what the engine does alone.

pub mod count;
pub mod engine;
pub mod idle;
pub mod limits;
pub mod machine;
pub mod objects;
pub mod plan;
pub mod relay;
pub mod report;
pub mod svg;
pub mod table;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::demo::programs::{self, Pair};
use crate::demo::subnet;
use crate::demo::Steps;
use crate::device::Kind;
use crate::dmesg;
use crate::lab::{shell, Lab, Options};
use crate::output::say;
use limits::Rounds;
use machine::Machine;
use plan::{Case, Metric, Place};
use report::{least, median, round, short, Row, Samples};

/// Rounds of a whole bench, and most of a quick one.
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;

/// When a quick bench begins no further round, from its start.
const QUICK_TIME: Duration = Duration::from_secs(285);

/// How long idle threads are watched.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// How long each bench of the engine takes.
const ENGINE_TIME: Duration = Duration::from_secs(2);
const QUICK_ENGINE_TIME: Duration = Duration::from_millis(500);

/// Makes an rxe device beside the Ochre HCA, on the Ethernet between the VMs.
const RXE: &str = "set -e\n\
    ip link set eth0 mtu 9000\n\
    modprobe rdma_rxe\n\
    rdma link add rxe_0 type rxe netdev eth0\n\
    n=0\n\
    until grep -q ACTIVE /sys/class/infiniband/rxe_0/ports/1/state; do\n\
    \tn=$((n + 1)); [ $n -lt 100 ] || exit 1; sleep 0.05\n\
    done\n";

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// In five minutes: what targets speak of, in fewer rounds.
    pub quick: bool,
    /// Keep the figures as the record of this kind of machine.
    pub record: bool,
    /// Only what has one of these in its name; everything if there is none.
    pub only: Vec<String>,
}

impl Wish {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

/// The figures of one device, a list by round for each case and metric.
type Figures = Vec<Vec<Vec<f64>>>;

/// The two devices' figures.
struct Measured {
    cases: Vec<Case>,
    ochre: Figures,
    rxe: Figures,
    rounds: usize,
}

/// Runs the bench; reports are written in any case that has figures. Returns the exit code: zero when
/// everything could be measured, whatever the figures are.
///
/// # Errors
/// When it cannot begin, or a report cannot be written.
pub fn run(mut options: Options, wish: &Wish) -> Result<i32> {
    let steps = Steps::start();
    let folder = options.logs.clone();
    let accel = options.accel.to_string();
    let machine = Machine::this(&accel);
    let ochre = options.device.clone();
    if !matches!(ochre, Kind::Ochre { .. }) {
        bail!("the bench measures the Ochre HCA beside rxe: leave --device as it is");
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // The second processor of VM a is for loopback only.
    options.cpus = [2, 1];
    let mut faults = Vec::new();

    let mut own = Vec::new();
    if wish.wants("engine") {
        steps.say(&format!("the engine alone ({machine})"));
        let time = if wish.quick {
            QUICK_ENGINE_TIME
        } else {
            ENGINE_TIME
        };
        keep(
            &steps,
            &mut own,
            &mut faults,
            "the engine",
            engine::rows(time),
        );
    }

    steps.say(&format!("booting two VMs under {accel}"));
    let lab = Lab::boot(options)?;
    let (a, b) = (lab.vm("a")?, lab.vm("b")?);
    let kernel = a.wait_ready(1, Duration::ZERO)?.0;
    subnet::start(a)?;
    subnet::wait_active(&lab)?;
    // A subnet stays as it is without its manager, and its sweeps would be measured too.
    shell(
        a,
        "pkill -x opensm; while pgrep -x opensm; do sleep 0.1; done",
        false,
    )?
    .wait(Duration::from_secs(20))
    .context("ending OpenSM")?;
    for vm in [a, b] {
        shell(vm, RXE, false)?
            .wait(Duration::from_secs(30))?
            .success("making rxe_0")
            .with_context(|| format!("VM {}", vm.name()))?;
    }
    steps.say("both VMs have an ochre_0 and an rxe_0");
    if wish.wants("idle") {
        steps.say("the device while nothing happens");
        let rows = idle::rows(&lab, IDLE_TIME);
        keep(&steps, &mut own, &mut faults, "the idle device", rows);
    }
    if wish.wants("objects") {
        steps.say("many objects in one VM");
        let rows = objects::rows(a, ochre.device(), wish.quick);
        keep(&steps, &mut own, &mut faults, "many objects", rows);
    }
    let mut limits = Rounds::default();
    let measured = measure(&lab, &steps, &ochre, wish, &mut limits, &mut faults)?;
    for vm in &lab.vms {
        for splat in dmesg::splats(&vm.records(0)) {
            faults.push(format!("VM {}'s kernel said: {}", vm.name(), splat.text));
        }
    }
    drop(lab);

    let mut rows = compare(&measured, &limits);
    rows.extend(limits.rows());
    rows.extend(own);
    finish(&folder, &measured, &rows, &machine, &kernel)?;
    if wish.record {
        let path = machine::record(&machine, &kernel, measured.rounds, &rows)?;
        say(format!("record:  {}", path.display()));
    }
    say("");
    if faults.is_empty() {
        steps.say(&format!(
            "the bench is complete, rounds: {}",
            measured.rounds
        ));
        return Ok(0);
    }
    steps.say("the bench is NOT complete:");
    for fault in faults {
        say(format!("  - {fault}"));
    }
    Ok(1)
}

/// Measures round by round, each case on one device and then on the other.
fn measure(
    lab: &Lab,
    steps: &Steps,
    ochre: &Kind,
    wish: &Wish,
    limits: &mut Rounds,
    faults: &mut Vec<String>,
) -> Result<Measured> {
    let quick = wish.quick;
    let cases: Vec<Case> = plan::cases(quick)
        .into_iter()
        .filter(|case| wish.wants(&case.title()))
        .collect();
    let empty = || -> Figures {
        cases
            .iter()
            .map(|case| vec![Vec::new(); case.metrics().len()])
            .collect()
    };
    let (mut of_ochre, mut of_rxe) = (empty(), empty());
    // What failed once would only fail again, slowly.
    let mut failed = HashSet::new();
    let mut place = Place::Pair;
    second_processor(lab, place)?;
    let most = if quick { QUICK_ROUNDS } else { ROUNDS };
    let mut rounds = 0;
    while rounds < most {
        let start = Instant::now();
        match limits::measure() {
            Ok(found) => limits.push(found),
            Err(error) => faults.push(format!("the machine's limits: {error:#}")),
        }
        for (n, case) in cases.iter().enumerate() {
            if case.place != place {
                place = case.place;
                second_processor(lab, place)?;
            }
            let mut texts = Vec::new();
            // Each device goes first in every other round.
            let order = [rounds % 2 == 0, rounds % 2 != 0];
            for is_ochre in order {
                let (kind, figures) = if is_ochre {
                    (ochre, &mut of_ochre[n])
                } else {
                    (&Kind::Rxe, &mut of_rxe[n])
                };
                if failed.contains(&(n, is_ochre)) {
                    continue;
                }
                match once(lab, kind, *case) {
                    Ok(found) => {
                        texts.push(format!("{} {}", kind.device(), said(*case, &found)));
                        for (all, figure) in figures.iter_mut().zip(found) {
                            all.push(figure);
                        }
                    }
                    Err(error) => {
                        failed.insert((n, is_ochre));
                        texts.push(format!("{} FAILED", kind.device()));
                        faults.push(format!("{} on {}: {error:#}", case.title(), kind.device()));
                    }
                }
            }
            steps.say(&format!(
                "round {}: {}: {}",
                rounds + 1,
                case.title(),
                texts.join(", ")
            ));
        }
        rounds += 1;
        if quick && steps.elapsed() + start.elapsed() > QUICK_TIME {
            break;
        }
    }
    Ok(Measured {
        cases,
        ochre: of_ochre,
        rxe: of_rxe,
        rounds,
    })
}

/// Takes over rows of what was measured without rxe, and prints them.
fn keep(
    steps: &Steps,
    own: &mut Vec<Row>,
    faults: &mut Vec<String>,
    what: &str,
    rows: Result<Vec<Row>>,
) {
    match rows {
        Ok(rows) => {
            for row in &rows {
                steps.say(&said_alone(row));
            }
            own.extend(rows);
        }
        Err(error) => faults.push(format!("{what}: {error:#}")),
    }
}

/// A row of what was measured without rxe.
fn said_alone(row: &Row) -> String {
    let mut what = row.test.clone();
    if row.size > 0 {
        what.push_str(&format!(" {}", table::size(row.size)));
    }
    if row.qps > 1 {
        what.push_str(&format!(", {} QPs", row.qps));
    }
    let figure = row.ochre.map_or_else(|| "-".to_owned(), short);
    format!("{what}, {}: {figure} {}", row.mode, row.unit)
}

/// Two programs that poll in one VM need a processor each; a VM that works with another has one, so
/// that the two do not want more than the machine has.
fn second_processor(lab: &Lab, place: Place) -> Result<()> {
    let online = u8::from(place == Place::Loopback);
    let script = format!("echo {online} > /sys/devices/system/cpu/cpu1/online");
    shell(lab.vm("a")?, &script, false)?
        .wait(Duration::from_secs(30))?
        .success("switching a processor of VM a")
        .map(drop)
}

/// Runs a case on a device; gives its figures in the order of its metrics.
fn once(lab: &Lab, kind: &Kind, case: Case) -> Result<Vec<f64>> {
    let client = lab.vm("a")?;
    let server = match case.place {
        Place::Pair => lab.vm("b")?,
        Place::Loopback => client,
    };
    let pair = Pair::perftest(kind, &case.words());
    let program = programs::pair(server, client, &pair)?;
    case.metrics()
        .iter()
        .map(|metric| {
            let figure = program.figures.get(metric.figure).copied();
            figure.with_context(|| format!("{} printed no {}", case.test, metric.figure))
        })
        .collect()
}

fn said(case: Case, figures: &[f64]) -> String {
    let texts: Vec<String> = case
        .metrics()
        .iter()
        .zip(figures)
        .map(|(metric, figure)| format!("{} {}", short(*figure), metric.unit))
        .collect();
    texts.join(" / ")
}

/// The rows of what both devices did.
fn compare(measured: &Measured, limits: &Rounds) -> Vec<Row> {
    let mut rows = Vec::new();
    for (n, case) in measured.cases.iter().enumerate() {
        for (m, metric) in case.metrics().iter().enumerate() {
            let row = Row {
                test: case.test.to_owned(),
                size: case.size,
                qps: case.qps,
                mode: case.mode(metric),
                ochre: median(&measured.ochre[n][m]),
                rxe: median(&measured.rxe[n][m]),
                unit: metric.unit.to_owned(),
                limit: limit(*case, metric, limits).map(round),
                bounds: case.bounds(metric, limits.wake_min()),
                ..Row::default()
            };
            rows.push(row.compare(metric.less));
        }
    }
    rows
}

/// What the machine itself can do for a figure: a copy for bytes, a wake-up for time. A message rate's
/// limit is that of its bytes.
fn limit(case: Case, metric: &Metric, limits: &Rounds) -> Option<f64> {
    match metric.figure {
        "lat_min_us" => limits.wake_min(),
        "lat_typical_us" => limits.wake_typical(),
        "rate_Mpps" => limits.copy(case.size).map(|speed| speed / case.size as f64),
        _ => limits.copy(case.size),
    }
}

/// Prints and writes what was found.
fn finish(
    folder: &Path,
    measured: &Measured,
    rows: &[Row],
    machine: &Machine,
    kernel: &str,
) -> Result<()> {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    report::write(&path("report.json"), rows)?;
    report::write(&path("samples.json"), &samples(measured))?;
    let subtitle = format!(
        "{machine}; Linux {kernel}; medians of one run, rounds: {}",
        measured.rounds
    );
    fs::write(path("bench.svg"), svg::draw(rows, &subtitle))
        .with_context(|| format!("cannot write {}", path("bench.svg").display()))?;
    say("");
    for text in table::lines(rows).into_iter().chain(table::verdict(rows)) {
        say(text);
    }
    say("");
    say(format!("report:  {}", path("report.json").display()));
    say(format!("rounds:  {}", path("samples.json").display()));
    say(format!("drawing: {}", path("bench.svg").display()));
    Ok(())
}

fn samples(measured: &Measured) -> Vec<Samples> {
    let mut all = Vec::new();
    for (n, case) in measured.cases.iter().enumerate() {
        for (m, metric) in case.metrics().iter().enumerate() {
            let (ochre, rxe) = (&measured.ochre[n][m], &measured.rxe[n][m]);
            all.push(Samples {
                test: case.test.to_owned(),
                size: case.size,
                qps: case.qps,
                mode: case.mode(metric),
                unit: metric.unit.to_owned(),
                ochre_min: least(ochre),
                ochre: ochre.clone(),
                rxe_min: least(rxe),
                rxe: rxe.clone(),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let cases = plan::cases(true);
        let figures = |factor: f64| -> Figures {
            cases
                .iter()
                .map(|case| vec![vec![factor, factor * 3.0, factor * 2.0]; case.metrics().len()])
                .collect()
        };
        Measured {
            ochre: figures(10.0),
            rxe: figures(1.0),
            cases,
            rounds: 3,
        }
    }

    #[test]
    fn rows_are_medians_and_their_ratio() {
        let mut limits = Rounds::default();
        limits.push(limits::Limits {
            copies: vec![limits::Copy {
                size: 1 << 20,
                mega_bytes: 40.0,
            }],
            relay_one: 20.0,
            relay_two: Some(10.0),
            wake_min_us: 4.0,
            wake_typical_us: 5.0,
        });
        let rows = compare(&measured(), &limits);
        let find = |test: &str, size, mode: &str| {
            let found = rows
                .iter()
                .find(|row| row.test == test && row.size == size && row.mode == mode);
            found.unwrap().clone()
        };
        let write = find("ib_write_bw", 1 << 20, "polling");
        assert_eq!((write.ochre, write.rxe), (Some(20.0), Some(2.0)));
        assert_eq!((write.ratio, write.share_of_limit), (Some(10.0), Some(0.5)));
        assert_eq!(write.met(), Some(false));
        let send = find("ib_send_lat", 2, "polling, minimum");
        assert_eq!((send.ratio, send.share_of_limit), (Some(0.1), Some(0.2)));
        assert_eq!(send.target(), "15 x rxe, <= 11.0 us");
    }

    #[test]
    fn every_round_is_kept() {
        let samples = samples(&measured());
        assert_eq!(samples[0].ochre, [10.0, 30.0, 20.0]);
        assert_eq!(samples[0].ochre_min, Some(10.0));
    }
}
