// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads figures out of what measuring programs print.

use std::collections::BTreeMap;

/// Figures by name; the unit is in the name.
pub type Figures = BTreeMap<String, f64>;

/// Bytes of a mebibyte, which perftest calls MB.
const MEBI: f64 = 1_048_576.0;

/// Reads the table of a perftest bandwidth or latency program. Bandwidths become megabytes of 10^6
/// bytes a second, latencies stay microseconds. Nothing if there is no table.
pub fn perftest(text: &str) -> Option<Figures> {
    let mut lines = text.lines().map(str::trim);
    let header = lines.find(|line| line.starts_with("#bytes"))?;
    let row = lines.find(|line| line.starts_with(|c: char| c.is_ascii_digit()))?;
    let cells: Option<Vec<f64>> = row
        .split_whitespace()
        .map(|cell| cell.parse().ok())
        .collect();
    let cells = cells?;
    let mut figures = Figures::new();
    let mut put = |name: &str, column: usize, factor: f64| {
        let value = cells.get(column)? * factor;
        figures.insert(name.to_owned(), (value * 1000.0).round() / 1000.0);
        Some(())
    };
    if header.contains("BW average") {
        put("bytes", 0, 1.0)?;
        put("bw_peak_MBps", 2, MEBI / 1e6)?;
        put("bw_MBps", 3, MEBI / 1e6)?;
        put("rate_Mpps", 4, 1.0)?;
    } else if header.contains("t_typical") {
        put("bytes", 0, 1.0)?;
        put("lat_min_us", 2, 1.0)?;
        put("lat_max_us", 3, 1.0)?;
        put("lat_typical_us", 4, 1.0)?;
        put("lat_avg_us", 5, 1.0)?;
    } else {
        return None;
    }
    Some(figures)
}

/// Reads the two result lines of an `ibv_*_pingpong`. Nothing if they are not there.
pub fn pingpong(text: &str) -> Option<Figures> {
    let mut figures = Figures::new();
    for line in text.lines() {
        let Some((_, result)) = line.split_once(" = ") else {
            continue;
        };
        let mut words = result.split_whitespace();
        let value: f64 = words.next()?.parse().ok()?;
        match words.next()? {
            "Mbit/sec" => figures.insert("rate_Mbps".into(), value),
            "usec/iter" => figures.insert("iteration_us".into(), value),
            _ => None,
        };
    }
    (figures.len() == 2).then_some(figures)
}

/// Reads counters of `perfquery`, lines such as `PortXmitWait:....................12`.
pub fn perfquery(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let value = rest.trim_start_matches('.').trim().parse().ok()?;
            Some((name.trim().to_owned(), value))
        })
        .filter(|(name, _)| {
            !matches!(
                name.as_str(),
                "PortSelect" | "CounterSelect" | "CounterSelect2"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bandwidth_is_in_true_megabytes() {
        let text = "\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rxe_0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 65536      5000             1000.00            500.00  \t\t     0.008000
---------------------------------------------------------------------------------------
";
        let figures = perftest(text).unwrap();
        assert_eq!(figures["bytes"], 65536.0);
        assert_eq!(figures["bw_peak_MBps"], 1048.576);
        assert_eq!(figures["bw_MBps"], 524.288);
        assert_eq!(figures["rate_Mpps"], 0.008);
    }

    #[test]
    fn a_latency_is_in_microseconds() {
        let text = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       1000          13.29          3310.79      16.05    \t       23.02       \t0.00\t\t40.00\t\t3310.79
";
        let figures = perftest(text).unwrap();
        assert_eq!(figures["lat_min_us"], 13.29);
        assert_eq!(figures["lat_typical_us"], 16.05);
        assert_eq!(figures["lat_max_us"], 3310.79);
    }

    #[test]
    fn no_table_is_no_figure() {
        assert_eq!(perftest("Unable to init the socket connection\n"), None);
        assert_eq!(perftest(" #bytes #iterations BW average\n"), None);
        assert_eq!(perftest(" #bytes odd\n 2 3 4\n"), None);
        assert_eq!(pingpong("Couldn't connect to a:18515\n"), None);
    }

    #[test]
    fn a_pingpong_has_a_rate_and_a_time() {
        let text = "\
  local address:  LID 0x0001, QPN 0x000011, PSN 0x7ebc11, GID ::
8192000 bytes in 0.05 seconds = 1234.50 Mbit/sec
1000 iters in 0.05 seconds = 53.10 usec/iter
";
        let figures = pingpong(text).unwrap();
        assert_eq!(figures["rate_Mbps"], 1234.5);
        assert_eq!(figures["iteration_us"], 53.1);
    }

    #[test]
    fn counters_keep_their_names() {
        let text = "\
# Port counters: Lid 1 port 1 (CapMask: 0x5300)
PortSelect:......................1
CounterSelect:...................0x0000
PortXmitData:....................4294967295
PortXmitWait:....................17
";
        let counters = perfquery(text);
        assert_eq!(counters.len(), 2);
        assert_eq!(counters["PortXmitWait"], 17);
    }
}
