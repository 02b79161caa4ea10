// SPDX-License-Identifier: GPL-2.0-or-later

//! RDMA devices on the PCI bus: from probe to registration and back, in the right order.

use super::{
    device::{
        Registration,
        Unregistered, //
    },
    Device,
    DeviceInfo,
    Hca,
    Operations, //
};
use core::marker::PhantomData;
use kernel::{
    device::{
        Bound,
        Core, //
    },
    dma::{
        Device as _,
        DmaMask, //
    },
    irq::{
        self,
        IrqRequest,
        IrqReturn,
        ThreadedIrqReturn, //
    },
    pci,
    prelude::*,
    str::CStr,
    sync::aref::ARef, //
};

/// What the handler of an interrupt found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IrqOutcome {
    /// The interrupt was not the device's.
    None,
    /// All is done.
    Handled,
    /// [`Driver::irq_thread`] is to go on.
    WakeThread,
}

/// A driver of RDMA hardware on the PCI bus.
///
/// The layer binds a device in these steps, and takes them back in the opposite order when the
/// device is unbound or a step fails:
///
/// 1. memory space and bus mastering are enabled, DMA masks set to 64 bits;
/// 2. [`Driver::probe`] makes the driver's data;
/// 3. interrupts are allocated and their handlers registered;
/// 4. [`Driver::start`] brings the hardware up; taken back by [`Driver::stop`];
/// 5. the RDMA device is registered.
pub(crate) trait Driver: Operations {
    /// Name of the driver, of its interrupts for instance.
    const NAME: &'static CStr;

    /// The devices that the driver knows.
    const ID_TABLE: pci::IdTable<()>;

    /// Most interrupt vectors wanted. A device may give fewer, but one at least.
    fn max_vectors() -> u32;

    /// Maps the device, and makes sure that it does nothing.
    fn probe<'a>(pdev: &'a pci::Device<Bound>) -> impl PinInit<Self::Data<'a>, Error>;

    /// Brings the device up, with `vectors` vectors whose handlers are registered. Where it fails,
    /// [`Driver::stop`] runs too.
    fn start(hca: Hca<'_, Self>, vectors: u32) -> Result<DeviceInfo>;

    /// Stops the device: on return, it raises no interrupt and touches no memory.
    fn stop(hca: Hca<'_, Self>);

    /// Handles an interrupt.
    ///
    /// *Context*: hard interrupt. It may run before [`Driver::start`] and after
    /// [`Driver::stop`].
    fn irq(hca: Hca<'_, Self>, vector: u32) -> IrqOutcome;

    /// Goes on where [`Driver::irq`] said [`IrqOutcome::WakeThread`].
    ///
    /// *Context*: a thread of the vector; it may sleep.
    fn irq_thread(hca: Hca<'_, Self>, vector: u32);
}

/// The id of a device by numbers; [`pci::Vendor`] knows only names.
pub(crate) const fn device_id(vendor: u16, device: u16) -> pci::DeviceId {
    let any = !0;

    // SAFETY: `DeviceId` is a transparent wrapper of `pci_device_id` without an invariant.
    unsafe {
        core::mem::transmute::<kernel::bindings::pci_device_id, pci::DeviceId>(
            kernel::bindings::pci_device_id {
                vendor: vendor as u32,
                device: device as u32,
                subvendor: any,
                subdevice: any,
                class: 0,
                class_mask: 0,
                driver_data: 0,
                override_only: 0,
            },
        )
    }
}

/// Makes a [`pci::Driver`] of a [`Driver`].
pub(crate) struct Adapter<T: Driver>(PhantomData<T>);

impl<T: Driver> pci::Driver for Adapter<T> {
    type IdInfo = ();
    type Data<'bound> = Binding<'bound, T>;

    const ID_TABLE: pci::IdTable<()> = T::ID_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        Binding::new(pdev)
    }
}

/// What a handler of an interrupt works with.
struct Handler<T: Driver> {
    /// Its data are set.
    dev: ARef<Device<T>>,
    vector: u32,
}

impl<T: Driver> irq::ThreadedHandler for Handler<T> {
    fn handle(&self) -> ThreadedIrqReturn {
        // SAFETY: The data were set before the handler was registered, and live until it is gone.
        match unsafe { self.dev.with_data(|hca| T::irq(hca, self.vector)) } {
            IrqOutcome::None => ThreadedIrqReturn::None,
            IrqOutcome::Handled => ThreadedIrqReturn::Handled,
            IrqOutcome::WakeThread => ThreadedIrqReturn::WakeThread,
        }
    }

    fn handle_threaded(&self) -> IrqReturn {
        // SAFETY: As above.
        unsafe { self.dev.with_data(|hca| T::irq_thread(hca, self.vector)) };
        IrqReturn::Handled
    }
}

type Irq<'a, T> = Pin<KBox<irq::ThreadedRegistration<'a, Handler<T>>>>;

/// All that a bound device holds.
///
/// # Invariants
///
/// `data` is what `dev` was given; the references that `irqs` and `registration` hold to `vectors`
/// and `data` are to the allocations behind these boxes, and fields are dropped from the first to
/// the last.
pub(crate) struct Binding<'a, T: Driver> {
    registration: Option<Registration<'a, T>>,
    irqs: KVec<Irq<'a, T>>,
    _vectors: KBox<pci::IrqVectorRegistration<'a>>,
    dev: ARef<Device<T>>,
    _data: Pin<KBox<T::Data<'a>>>,
}

impl<'a, T: Driver> Binding<'a, T> {
    fn new(pdev: &'a pci::Device<Core<'_>>) -> Result<Self> {
        pdev.enable_device_mem()?;
        pdev.set_master();
        // SAFETY: The device was just enabled; nobody allocates DMA memory for it yet.
        unsafe {
            pdev.dma_set_mask_and_coherent(DmaMask::new::<64>())?;
            pdev.dma_set_max_seg_size(u32::MAX);
        }

        let pdev: &'a pci::Device<Bound> = pdev;
        let data = KBox::pin_init(T::probe(pdev), GFP_KERNEL)?;
        let unregistered = Unregistered::<T>::new(pdev.as_ref())?;
        // SAFETY: The data live as long as anything that uses them, see the type invariant.
        unsafe { unregistered.set_data(&data) };
        let dev = unregistered.device().clone();

        let vectors = KBox::new(
            pdev.alloc_irq_vectors(
                1,
                T::max_vectors(),
                pci::IrqTypes::default().with(pci::IrqType::MsiX),
            )?,
            GFP_KERNEL,
        )?;
        // SAFETY: The allocation does not move, and outlives the handlers.
        let all: &'a pci::IrqVectorRegistration<'a> = unsafe { &*core::ptr::from_ref(&*vectors) };

        let mut irqs = KVec::with_capacity(all.len(), GFP_KERNEL)?;
        for vector in 0..all.len() {
            let handler = Handler {
                dev: dev.clone(),
                vector: vector as u32,
            };
            // SAFETY: The registration is dropped, not leaked, before `vectors`.
            let irq = unsafe {
                irq::ThreadedRegistration::new(
                    IrqRequest::from(all.index(vector)?),
                    irq::Flags::TRIGGER_NONE,
                    T::NAME,
                    Ok::<_, Error>(handler),
                )
            };
            irqs.push(KBox::pin_init(irq, GFP_KERNEL)?, GFP_KERNEL)?;
        }

        // INVARIANT: All that was made above, in this order. From here on, dropping it stops the
        // device too.
        let mut this = Self {
            registration: None,
            irqs,
            _vectors: vectors,
            dev,
            _data: data,
        };

        // SAFETY: The data are set.
        let info = unsafe { this.dev.with_data(|hca| T::start(hca, all.len() as u32)) }?;

        // SAFETY: `Drop` drops the registration first of all.
        this.registration = Some(unsafe { Registration::new(pdev.as_ref(), unregistered, &info) }?);

        Ok(this)
    }
}

impl<T: Driver> Drop for Binding<'_, T> {
    fn drop(&mut self) {
        self.registration = None;

        // SAFETY: The data are set.
        unsafe { self.dev.with_data(T::stop) };

        // Handlers that still run see a device that is stopped; then they are gone.
        self.irqs.clear();
    }
}
