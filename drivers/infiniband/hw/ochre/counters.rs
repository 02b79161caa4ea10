// SPDX-License-Identifier: GPL-2.0-or-later

//! Counters of a port beyond those of the PMA, shown under `hw_counters`.

use crate::{
    cmd::{
        QueryCounters,
        Wait, //
    },
    device::Data,
    hw::cmd::port::Counter,
    port,
    rdma::CounterDesc, //
};
use kernel::{
    prelude::*,
    str::CStr, //
};

/// How many counters there are.
const COUNTERS: usize = Counter::ALL.len();
/// Room for a counter's name with its terminator, bytes.
const NAME_BYTES: usize = 48;

/// The counters' names as C strings.
static NAMES: [[u8; NAME_BYTES]; COUNTERS] = {
    let mut names = [[0; NAME_BYTES]; COUNTERS];
    let mut i = 0;
    while i < COUNTERS {
        let name = Counter::ALL[i].name().as_bytes();
        assert!(name.len() < NAME_BYTES);
        let mut j = 0;
        while j < name.len() {
            names[i][j] = name[j];
            j += 1;
        }
        i += 1;
    }
    names
};

const fn desc(i: usize) -> CounterDesc {
    match CStr::from_bytes_until_nul(&NAMES[i]) {
        Ok(name) => CounterDesc::new(name),
        Err(_) => panic!("a name has no terminator"),
    }
}

macro_rules! descs {
    ($($i:literal)*) => { [$( desc($i), )*] };
}

/// The counters, in the order of [`Counter`].
pub(crate) static PORT_COUNTERS: [CounterDesc; COUNTERS] =
    descs!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

/// Reads all counters of a port.
pub(crate) fn read(data: &Data<'_>, port: u32, values: &mut [u64]) -> Result {
    let output = data.command::<QueryCounters>(port::port_in(data, port)?, Wait::Sleep)?;

    for (value, &counter) in values.iter_mut().zip(Counter::ALL) {
        *value = output.value(counter);
    }
    Ok(())
}
