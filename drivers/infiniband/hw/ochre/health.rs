// SPDX-License-Identifier: GPL-2.0-or-later

//! The timer that looks after a device.
//!
//! A device that was reset behind the driver's back, or that has stopped itself, raises no
//! interrupt any more. The timer notices it, and tells everybody who waits for the device.

use crate::{
    device::Core,
    rdma,
    Ochre, //
};
use kernel::{
    impl_has_hr_timer,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            AtomicFlag,
            Full, //
        },
        Arc,
        ArcBorrow, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeMode, //
        },
        Delta,
        Monotonic, //
    }, //
};

/// How often the timer looks.
const INTERVAL: Delta = Delta::from_secs(1);

/// The timer, and what it looks at.
#[pin_data]
pub(crate) struct Health {
    #[pin]
    timer: HrTimer<Self>,
    core: Arc<Core>,
    dev: ARef<rdma::Device<Ochre>>,
    /// The users of the device were told that it is dead.
    told: AtomicFlag,
}

impl Health {
    /// Starts the timer; it stops when the handle is dropped.
    pub(crate) fn start(
        core: Arc<Core>,
        dev: ARef<rdma::Device<Ochre>>,
    ) -> Result<ArcHrTimerHandle<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                timer <- HrTimer::new(),
                core,
                dev,
                told: AtomicFlag::new(false),
            }),
            GFP_KERNEL,
        )?;

        Ok(this.start(INTERVAL))
    }
}

impl HrTimerCallback for Health {
    type Pointer<'a> = Arc<Self>;

    fn run(
        this: ArcBorrow<'_, Self>,
        mut context: HrTimerCallbackContext<'_, Self>,
    ) -> HrTimerRestart {
        this.core.check();

        if this.core.is_dead() {
            if !this.told.xchg(true, Full) {
                this.dev.fatal_event();
            }
            // Whoever polls a completion queue now gets what is outstanding as flushed.
            this.dev.cq_completions();
        } else {
            // Nobody is to wait for an event that was lost.
            this.core.cmd.wake();
        }

        context.forward_now(INTERVAL);
        HrTimerRestart::Restart
    }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Health {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}
