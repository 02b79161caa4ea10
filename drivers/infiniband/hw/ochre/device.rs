// SPDX-License-Identifier: GPL-2.0-or-later

//! What the driver keeps for a device.

use crate::{
    cmd::{
        number,
        Command,
        CommandQueue,
        Failure,
        QueryDevice,
        QueryObjects,
        Wait, //
    },
    doorbell::Doorbells,
    eq::EventQueue,
    health::Health,
    hw::cmd::{
        device::QueryDeviceOut,
        NumberIn,
        Opcode,
        Status, //
    },
    limiter::Limiter,
    regs::{Identity, Regs}, //
};
use kernel::{
    device::{
        self,
        Bound, //
    },
    new_mutex,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            AtomicFlag,
            Full,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce, //
    },
    time::hrtimer::ArcHrTimerHandle, //
};

/// What the driver keeps for a device, while it is bound.
#[pin_data]
pub(crate) struct Data<'a> {
    /// The device on the bus.
    pub(crate) pdev: &'a pci::Device<Bound>,
    /// What the device says of itself in registers.
    pub(crate) identity: Identity,
    /// Identity and limits of the device.
    pub(crate) limits: QueryDeviceOut,
    /// The doorbell pages.
    #[pin]
    pub(crate) doorbells: Doorbells<'a>,
    /// What does not depend on how long the device is bound.
    pub(crate) core: Arc<Core>,
    /// Event queues, once there are: the first for async events and commands, the others for
    /// completions.
    pub(crate) eqs: SetOnce<KVec<Pin<KBox<EventQueue>>>>,
    /// The timer that looks after the device, while it runs.
    #[pin]
    pub(crate) health: Mutex<Option<ArcHrTimerHandle<Health>>>,
}

impl<'a> Data<'a> {
    /// Maps a device, resets it, and asks it who it is.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>) -> impl PinInit<Self, Error> + 'a {
        pin_init::pin_init_scope(move || -> Result<_> {
            let regs = Regs::new(pdev)?;
            let identity = regs.identify(pdev)?;
            let core = Arc::pin_init(Core::new(pdev, regs), GFP_KERNEL)?;

            core.start()?;
            let limits = core.command::<QueryDevice>((), Wait::Sleep)?;
            check_limits(pdev, &limits)?;

            Ok(try_pin_init!(Self {
                pdev,
                identity,
                limits,
                doorbells <- Doorbells::new(pdev, identity.doorbell_pages),
                core,
                eqs: SetOnce::new(),
                health <- new_mutex!(None),
            }))
        })
    }

    /// Runs a command; a failure is written to the log.
    pub(crate) fn command<C: Command>(&self, input: C::Input, wait: Wait) -> Result<C::Output> {
        self.core.command::<C>(input, wait)
    }

    /// Destroys an object, whatever it takes: see [`Core::destroy`].
    pub(crate) fn destroy<C: Command<Input = NumberIn, Output = ()>>(&self, object: u32) {
        self.core.destroy::<C>(object);
    }

    /// Whether the device does not answer any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.core.is_dead()
    }

    /// How many completion vectors the device has.
    pub(crate) fn comp_vectors(&self) -> u32 {
        match self.eqs.as_ref() {
            Some(eqs) => eqs.len().saturating_sub(1).max(1) as u32,
            None => 0,
        }
    }

    /// The event queue of a completion vector. Where there is only one vector, completions share
    /// the queue of async events.
    pub(crate) fn comp_eq(&self, vector: u32) -> Result<u32> {
        let eqs = self.eqs.as_ref().ok_or(ENODEV)?;
        let index = match eqs.len() {
            1 => 0,
            _ => vector as usize + 1,
        };
        eqs.get(index).ok_or(EINVAL)?.number()
    }
}

/// Makes sure that the device's limits are such as the driver can work with.
fn check_limits(pdev: &pci::Device<Bound>, limits: &QueryDeviceOut) -> Result {
    let complaint = match limits {
        l if !(1..=2).contains(&l.ports) => "the number of ports is neither 1 nor 2",
        l if l.page_sizes & 4096 == 0 => "it does not know pages of 4096 bytes",
        l if l.max_eqe < 64 => "event queues are too small",
        l if l.gids == 0 || l.pkeys == 0 => "ports have no GID or no P_Key",
        _ => return Ok(()),
    };
    dev_err!(pdev, "the device's limits make no sense: {complaint}\n");
    Err(ENODEV)
}

/// What does not depend on how long the device is bound: registers and commands.
#[pin_data(PinnedDrop)]
pub(crate) struct Core {
    dev: ARef<device::Device>,
    regs: Regs,
    /// The command queue.
    #[pin]
    pub(crate) cmd: CommandQueue,
    /// The first who finds the device dead sets it.
    dying: AtomicFlag,
    /// The device is dead, and touches no memory any more.
    dead: AtomicFlag,
    #[pin]
    refusals: Limiter,
}

impl Core {
    fn new(pdev: &pci::Device<Bound>, regs: Regs) -> impl PinInit<Self, Error> + '_ {
        let bus_dev: &device::Device<Bound> = pdev.as_ref();

        try_pin_init!(Self {
            dev: ARef::from(&**bus_dev),
            regs,
            cmd <- CommandQueue::new(bus_dev),
            dying: AtomicFlag::new(false),
            dead: AtomicFlag::new(false),
            refusals <- Limiter::new(),
        })
    }

    /// Resets the device and starts its command queue.
    fn start(&self) -> Result {
        self.regs.reset();
        self.cmd.start(&self.regs);
        if !self.regs.is_ready() {
            dev_err!(
                self.dev,
                "the device does not take commands: {}\n",
                self.regs.stop_reason()
            );
            return Err(ENODEV);
        }
        Ok(())
    }

    /// Runs a command; a failure is written to the log.
    pub(crate) fn command<C: Command>(&self, input: C::Input, wait: Wait) -> Result<C::Output> {
        self.cmd
            .execute::<C>(&self.regs, input, wait)
            .map_err(|failure| {
                self.failed(C::OPCODE, failure);
                failure.into()
            })
    }

    /// Destroys an object, whatever it takes: a device that does not destroy an object that may use
    /// memory is reset.
    fn destroy<C: Command<Input = NumberIn, Output = ()>>(&self, object: u32) {
        match self
            .cmd
            .execute::<C>(&self.regs, number(object), Wait::Sleep)
        {
            Ok(()) | Err(Failure::Dead) => {}
            Err(failure) => {
                self.failed(C::OPCODE, failure);
                self.die();
            }
        }
    }

    /// Says why a command has failed, and draws the conclusions.
    fn failed(&self, opcode: Opcode, failure: Failure) {
        match failure {
            Failure::Refused { status, bad_field } if self.refusals.allow() => {
                match Status::from_raw(status) {
                    Some(status @ (Status::BadParameter | Status::NoSuchObject)) => dev_err!(
                        self.dev,
                        "{opcode:?} refused: {status:?}, field at byte {bad_field} of its input\n"
                    ),
                    Some(status) => dev_err!(self.dev, "{opcode:?} refused: {status:?}\n"),
                    None => dev_err!(self.dev, "{opcode:?} refused: status {status}\n"),
                }
            }
            Failure::Refused { .. } | Failure::Busy => {}
            Failure::ShortOutput { written } => {
                dev_err!(self.dev, "{opcode:?} gave only {written} bytes of output\n");
            }
            Failure::TimedOut => {
                dev_err!(self.dev, "{opcode:?} has no answer\n");
                self.die();
            }
            Failure::Dead => self.die(),
        }
    }

    /// Whether the device does not answer any more. Then it touches no memory any more either.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Acquire)
    }

    /// Looks whether the device has stopped, and treats it as dead where it has.
    pub(crate) fn check(&self) {
        if !self.regs.is_ready() {
            self.die();
        }
    }

    /// Gives the device up: resets it, so that it touches no memory any more, and ends all commands.
    fn die(&self) {
        if self.dying.xchg(true, Full) {
            return;
        }
        let reason = self.regs.stop_reason();
        self.regs.reset();
        self.dead.store(true, Release);
        self.cmd.kill();
        dev_err!(
            self.dev,
            "the device is out of order until it is bound anew: {reason}\n"
        );
    }

    /// Stops the device in good order.
    pub(crate) fn stop(&self) {
        if self.is_dead() {
            return;
        }
        if let Ok(left) = self.command::<QueryObjects>((), Wait::Sleep) {
            if left.cqs | left.pds | left.mrs | left.qps | left.ahs | left.mcast_attachments != 0 {
                dev_err!(
                    self.dev,
                    "objects are left behind: {} CQs, {} PDs, {} MRs, {} QPs, {} AHs, {} multicast\n",
                    left.cqs,
                    left.pds,
                    left.mrs,
                    left.qps,
                    left.ahs,
                    left.mcast_attachments
                );
            }
        }
        // What remains are the event queues, which are gone with a reset.
        self.dying.store(true, Release);
        self.regs.reset();
        self.dead.store(true, Release);
        self.cmd.kill();
    }
}

#[pinned_drop]
impl PinnedDrop for Core {
    fn drop(self: Pin<&mut Self>) {
        // The memory of the command queue goes.
        self.regs.reset();
    }
}
