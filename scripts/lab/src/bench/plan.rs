// SPDX-License-Identifier: GPL-2.0-or-later
//! What the bench runs: perftest programs with their arguments, the same for both devices.

use super::report::Bound;

/// Bytes that a bandwidth program keeps under way, so that the slowest device ends in time.
const UNDER_WAY: u64 = 8 << 20;

/// Exchanges of a latency program.
const EXCHANGES: u32 = 1000;

/// How a program waits for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It polls.
    Polling,
    /// It sleeps until an event.
    Events,
}

/// Where server and client are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The server in VM b, the client in VM a.
    Pair,
    /// Both in VM a.
    Loopback,
}

/// One figure that a program prints.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Its name among [`crate::demo::figures`].
    pub figure: &'static str,
    /// Its unit in the report.
    pub unit: &'static str,
    /// What the mode's column says of it.
    pub note: &'static str,
    /// Whether less is better.
    pub less: bool,
    /// Whether the machine's own figure limits it.
    pub limited: bool,
}

const BANDWIDTH: Metric = Metric {
    figure: "bw_MBps",
    unit: "MB/s",
    note: "",
    less: false,
    limited: true,
};

const RATE: Metric = Metric {
    figure: "rate_Mpps",
    unit: "M/s",
    note: "",
    less: false,
    limited: true,
};

const LEAST: Metric = Metric {
    figure: "lat_min_us",
    unit: "us",
    note: "minimum",
    less: true,
    limited: true,
};

const TYPICAL: Metric = Metric {
    figure: "lat_typical_us",
    unit: "us",
    note: "typical",
    less: true,
    limited: true,
};

/// One program with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Its name.
    pub test: &'static str,
    /// Bytes of a message.
    pub size: u64,
    /// Number of QPs.
    pub qps: u32,
    /// How it waits.
    pub mode: Mode,
    /// Where its two sides are.
    pub place: Place,
}

impl Case {
    const fn bandwidth(test: &'static str, size: u64, qps: u32) -> Self {
        Self {
            test,
            size,
            qps,
            mode: Mode::Polling,
            place: Place::Pair,
        }
    }

    const fn latency(test: &'static str, size: u64, mode: Mode) -> Self {
        Self {
            test,
            size,
            qps: 1,
            mode,
            place: Place::Pair,
        }
    }

    const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    const fn with(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    fn is_latency(self) -> bool {
        self.test.ends_with("_lat")
    }

    /// Program and arguments, without those that name the device.
    pub fn words(self) -> String {
        let mut words = self.test.to_owned();
        if self.test != "ib_atomic_lat" {
            words.push_str(&format!(" -s {}", self.size));
        }
        if self.is_latency() {
            words.push_str(&format!(" -n {EXCHANGES}"));
        } else {
            let depth = (UNDER_WAY / self.size / u64::from(self.qps)).clamp(2, 128);
            words.push_str(&format!(" -q {} -t {depth} -D 1", self.qps));
        }
        if self.mode == Mode::Events {
            words.push_str(" -e");
        }
        words
    }

    /// What a person reads of it.
    pub fn title(self) -> String {
        match self.place {
            Place::Pair => self.words(),
            Place::Loopback => format!("{}, loopback", self.words()),
        }
    }

    /// The figures that count.
    pub fn metrics(self) -> &'static [Metric] {
        if self.is_latency() {
            &[LEAST, TYPICAL]
        } else if self.size < 64 {
            &[RATE]
        } else {
            &[BANDWIDTH]
        }
    }

    /// What the mode's column of the report says.
    pub fn mode(self, metric: &Metric) -> String {
        let place = match self.place {
            Place::Pair => "",
            Place::Loopback => "loopback",
        };
        let mode = match self.mode {
            Mode::Polling => "polling",
            Mode::Events => "events",
        };
        let parts: Vec<&str> = [place, mode, metric.note]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        parts.join(", ")
    }

    /// What the project holds itself to. `wake` is the least time, in microseconds, in which one
    /// process of this machine wakes another.
    pub fn bounds(self, metric: &Metric, wake: Option<f64>) -> Vec<Bound> {
        let key = (self.test, self.size, self.qps, self.mode, self.place);
        if self.place == Place::Loopback {
            return match key {
                ("ib_send_lat", 2, 1, Mode::Polling, _) if metric == &LEAST => {
                    vec![Bound::AtMost(6.0)]
                }
                _ => Vec::new(),
            };
        }
        let close = |ratio| {
            let mut bounds = vec![Bound::Ratio(ratio)];
            bounds.extend(wake.map(|wake| Bound::AtMost(1.5 * wake + 5.0)));
            bounds
        };
        match key {
            ("ib_write_bw", 0x10_0000, 1, Mode::Polling, _) => {
                vec![Bound::Ratio(100.0), Bound::Share(0.5)]
            }
            ("ib_write_bw" | "ib_send_bw", 0x1_0000, 1, Mode::Polling, _) => {
                vec![Bound::Ratio(60.0)]
            }
            ("ib_read_bw", 0x10_0000, 1, Mode::Polling, _) => vec![Bound::Ratio(80.0)],
            ("ib_write_bw", 2, 1, Mode::Polling, _) => vec![Bound::Ratio(25.0)],
            ("ib_send_lat" | "ib_write_lat", 2, 1, Mode::Polling, _) if metric == &LEAST => {
                close(15.0)
            }
            ("ib_read_lat" | "ib_atomic_lat", 8, 1, Mode::Polling, _) if metric == &LEAST => {
                vec![Bound::Ratio(10.0)]
            }
            ("ib_send_lat", 2, 1, Mode::Events, _) if metric == &TYPICAL => {
                vec![Bound::Ratio(5.0)]
            }
            _ => Vec::new(),
        }
    }
}

const BANDWIDTHS: [&str; 3] = ["ib_write_bw", "ib_read_bw", "ib_send_bw"];

/// All cases; `quick` leaves out what no target speaks of.
pub fn cases(quick: bool) -> Vec<Case> {
    let mut all = Vec::new();
    for test in BANDWIDTHS {
        for size in [2, 4 << 10, 64 << 10, 1 << 20, 8 << 20] {
            if quick && (size == 8 << 20 || (size == 4 << 10 && test != "ib_write_bw")) {
                continue;
            }
            all.push(Case::bandwidth(test, size, 1));
            if !quick || (size == 64 << 10 && test == "ib_write_bw") {
                all.push(Case::bandwidth(test, size, 16));
            }
        }
        if !quick {
            all.push(Case::bandwidth(test, 64 << 10, 1).with(Mode::Events));
        }
    }
    // A WRITE makes no completion at its target: its latency program can only poll.
    for (test, small, event) in [
        ("ib_send_lat", 2, true),
        ("ib_write_lat", 2, false),
        ("ib_read_lat", 8, true),
        ("ib_atomic_lat", 8, true),
    ] {
        for size in [small, 4096] {
            if size == 4096 && (quick || test == "ib_atomic_lat") {
                continue;
            }
            all.push(Case::latency(test, size, Mode::Polling));
            if event && (!quick || test == "ib_send_lat") {
                all.push(Case::latency(test, size, Mode::Events));
            }
        }
    }
    for mode in [Mode::Polling, Mode::Events] {
        all.push(Case::latency("ib_send_lat", 2, mode).at(Place::Loopback));
    }
    if !quick {
        for size in [64 << 10, 1 << 20] {
            all.push(Case::bandwidth("ib_write_bw", size, 1).at(Place::Loopback));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_measured_even_in_haste() {
        let bounded = |quick| -> usize {
            cases(quick)
                .iter()
                .flat_map(|case| case.metrics().iter().map(move |metric| (case, metric)))
                .map(|(case, metric)| case.bounds(metric, Some(3.0)).len())
                .sum()
        };
        assert_eq!(bounded(true), bounded(false));
        // 2 + 2 + 1 + 1 of bandwidth, 4 + 2 + 1 of latency, 1 in loopback.
        assert_eq!(bounded(true), 14);
    }

    #[test]
    fn no_case_comes_twice() {
        for quick in [false, true] {
            let all = cases(quick);
            for (n, case) in all.iter().enumerate() {
                assert!(!all[..n].contains(case), "{case:?}");
            }
        }
    }

    #[test]
    fn what_is_under_way_is_limited() {
        let words = |size, qps| Case::bandwidth("ib_write_bw", size, qps).words();
        assert_eq!(words(2, 1), "ib_write_bw -s 2 -q 1 -t 128 -D 1");
        assert_eq!(words(1 << 20, 1), "ib_write_bw -s 1048576 -q 1 -t 8 -D 1");
        assert_eq!(words(8 << 20, 16), "ib_write_bw -s 8388608 -q 16 -t 2 -D 1");
    }

    #[test]
    fn atomics_have_no_size_and_events_a_flag() {
        let atomic = Case::latency("ib_atomic_lat", 8, Mode::Events);
        assert_eq!(atomic.words(), "ib_atomic_lat -n 1000 -e");
        assert_eq!(atomic.mode(&LEAST), "events, minimum");
        assert_eq!(
            atomic.at(Place::Loopback).mode(&TYPICAL),
            "loopback, events, typical"
        );
    }
}
