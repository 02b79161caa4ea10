// SPDX-License-Identifier: GPL-2.0-or-later

//! The RDMA device and its registration.

use super::{
    bindings,
    events::{
        EarlyEvents,
        MAX_PORTS, //
    },
    object::Table,
    ops::VTable,
    DeviceInfo,
    ObjectRef,
    Operations, //
};
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    marker::PhantomData,
    mem::{
        offset_of,
        size_of, //
    },
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    device,
    error::to_result,
    prelude::*,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        rcu, //
    },
    types::Opaque, //
};

/// What a callback works with: the device, and the driver's data, to which this dereferences.
pub(crate) struct Hca<'a, T: Operations> {
    /// The RDMA device.
    pub(crate) dev: &'a Device<T>,
    data: &'a T::Data<'a>,
}

impl<T: Operations> Clone for Hca<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Operations> Copy for Hca<'_, T> {}

impl<'a, T: Operations> Hca<'a, T> {
    /// The driver's data, for as long as the callback runs.
    pub(crate) fn data(self) -> &'a T::Data<'a> {
        self.data
    }

    /// The device with the driver's data, where both are at hand outside of a callback.
    pub(super) fn new(dev: &'a Device<T>, data: &'a T::Data<'a>) -> Self {
        Self { dev, data }
    }
}

impl<'a, T: Operations> Deref for Hca<'a, T> {
    type Target = T::Data<'a>;

    fn deref(&self) -> &Self::Target {
        self.data
    }
}

/// An RDMA device.
///
/// # Invariants
///
/// - `ibdev` is at offset 0 of an allocation of `_ib_alloc_device`, whose reference count keeps
///   the whole.
/// - `data` points to the driver's data from before the device is registered until after it is
///   unregistered; operations run only in between.
#[repr(C)]
pub(crate) struct Device<T: Operations> {
    ibdev: Opaque<bindings::ib_device>,
    data: UnsafeCell<*const c_void>,
    /// Whether events of ports may be handed to the core.
    live: Atomic<bool>,
    /// Events of ports that came before that.
    early: EarlyEvents,
    cqs: Table<bindings::ib_cq, T::Cq>,
    qps: Table<bindings::ib_qp, T::Qp>,
}

// SAFETY: The device is reference-counted and may be released by any thread.
unsafe impl<T: Operations> Send for Device<T> {}

// SAFETY: `ib_core` protects the C structure; `data` is written only while no operation runs; the
// other fields are `Sync`.
unsafe impl<T: Operations> Sync for Device<T> {}

impl<T: Operations> Device<T> {
    /// The Rust device of a C device.
    ///
    /// # Safety
    ///
    /// `raw` must point to the `struct ib_device` of a [`Device<T>`] that lives for `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: By the requirements of this function; the C structure is at offset 0.
        unsafe { &*raw.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.ibdev.get()
    }

    /// Runs `f` with the driver's data.
    ///
    /// # Safety
    ///
    /// The data must be set and alive; they are while operations run.
    pub(super) unsafe fn with_data<R>(&self, f: impl for<'a> FnOnce(Hca<'a, T>) -> R) -> R {
        // SAFETY: `data` does not change while operations run.
        let data = unsafe { *self.data.get() };
        // SAFETY: By the type invariant, `data` points to the driver's data; the closure cannot
        // choose their lifetime, and lifetimes do not change the layout.
        f(Hca::new(self, unsafe { &*data.cast() }))
    }

    /// Tells the owner of a completion queue that it has completions. An unknown number is ignored:
    /// the queue has just been destroyed.
    ///
    /// *Context*: any, hard interrupts among them.
    pub(crate) fn cq_completion(&self, number: u32) {
        if let Some(cq) = self.cqs.get(number) {
            cq.completion();
        }
    }

    /// Tells the owners of all completion queues of the kernel to look at them, on behalf of a
    /// device that does so no more. Processes do not need it: they share no memory with the driver
    /// that could say more than the device's last word.
    ///
    /// *Context*: any, hard interrupts among them.
    pub(crate) fn cq_completions(&self) {
        let mut from = Some(0);
        while let Some((number, cq)) = from.and_then(|from| self.cqs.next(from)) {
            if !cq.is_user() {
                cq.completion();
            }
            from = number.checked_add(1);
        }
    }

    /// Tells the owner of a completion queue that it is broken.
    ///
    /// *Context*: any, hard interrupts among them.
    pub(crate) fn cq_error(&self, number: u32) {
        if let Some(cq) = self.cqs.get(number) {
            cq.error();
        }
    }

    /// Finds a queue pair by its number. The queue pair's destruction waits until the reference is
    /// dropped.
    ///
    /// *Context*: any, also with interrupts off.
    pub(crate) fn qp(&self, number: u32) -> Option<ObjectRef<'_, bindings::ib_qp, T::Qp>> {
        self.qps.get(number)
    }

    pub(super) fn cqs(&self) -> &Table<bindings::ib_cq, T::Cq> {
        &self.cqs
    }

    pub(super) fn qps(&self) -> &Table<bindings::ib_qp, T::Qp> {
        &self.qps
    }

    /// Runs `f` if the device takes events, and holds off the end of its registration meanwhile.
    /// Returns whether it does.
    pub(super) fn if_live(&self, f: impl FnOnce()) -> bool {
        let _guard = rcu::read_lock();

        let live = self.live.load(Acquire);
        if live {
            f();
        }
        live
    }

    pub(super) fn early(&self) -> &EarlyEvents {
        &self.early
    }

    /// The key of all of the kernel's memory, if the device has one.
    pub(super) fn has_local_dma_lkey(&self) -> bool {
        // SAFETY: The field is written only before registration.
        unsafe { (*self.as_raw()).local_dma_lkey != 0 }
    }
}

impl<T: Operations> AsRef<device::Device> for Device<T> {
    fn as_ref(&self) -> &device::Device {
        // SAFETY: The device is initialised by `_ib_alloc_device`.
        unsafe { device::Device::from_raw(raw_device(self.as_raw())) }
    }
}

/// Checks that the bindings are those of the structures that the core was compiled with.
fn check_layout() -> Result {
    use bindings::{
        ib_ah,
        ib_cq,
        ib_device,
        ib_device_ops,
        ib_mr,
        ib_pd,
        ib_qp,
        ib_ucontext,
        ib_wc,
        rdma_user_mmap_entry, //
    };

    let layout = [
        size_of::<ib_device>(),
        offset_of!(ib_device, attrs),
        size_of::<ib_device_ops>(),
        offset_of!(ib_device_ops, size_ib_qp),
        size_of::<ib_ucontext>(),
        size_of::<ib_pd>(),
        size_of::<ib_ah>(),
        size_of::<ib_cq>(),
        size_of::<ib_qp>(),
        size_of::<ib_mr>(),
        size_of::<ib_wc>(),
        size_of::<rdma_user_mmap_entry>(),
        0,
    ];

    for (which, size) in layout.into_iter().enumerate() {
        // SAFETY: The function takes any number.
        let real = unsafe { bindings::ochre_layout(which as u32) };
        if size != real {
            pr_err!("rdma: structure {which} is {real} bytes, but the bindings say {size}\n");
            return Err(EINVAL);
        }
    }

    Ok(())
}

/// The `struct device` in an RDMA device.
fn raw_device(ibdev: *mut bindings::ib_device) -> *mut bindings::device {
    // SAFETY: Only the address of the field is taken; every device has it in bounds.
    unsafe { (&raw mut (*ibdev).__bindgen_anon_1).cast() }
}

/// The C device of a bus device.
fn raw_parent(parent: &device::Device<device::Bound>) -> *mut bindings::device {
    // `device::Device` is a transparent wrapper of an `Opaque<bindings::device>`.
    core::ptr::from_ref(parent).cast_mut().cast()
}

// SAFETY: The reference count is that of the embedded device, whose release frees the whole
// allocation.
unsafe impl<T: Operations> AlwaysRefCounted for Device<T> {
    fn inc_ref(&self) {
        // SAFETY: There is a reference, so the count is not zero.
        unsafe { bindings::get_device(raw_device(self.as_raw())) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up a reference that it owns.
        unsafe { bindings::put_device(raw_device(obj.as_ptr().cast())) };
    }
}

/// An allocated device that is not registered.
///
/// # Invariants
///
/// The device is not registered, and nothing else will call `ib_dealloc_device` on it.
pub(super) struct Unregistered<T: Operations>(ARef<Device<T>>);

impl<T: Operations> Unregistered<T> {
    /// Allocates a device.
    pub(super) fn new(parent: &device::Device<device::Bound>) -> Result<Self> {
        const_assert!(offset_of!(Device<T>, ibdev) == 0);
        check_layout()?;

        // SAFETY: `init_net` is a valid network namespace.
        let raw = unsafe {
            bindings::_ib_alloc_device(size_of::<Device<T>>(), &raw mut bindings::init_net)
        };
        let this = NonNull::new(raw.cast::<Device<T>>()).ok_or(ENOMEM)?;

        // SAFETY: The allocation is ours alone, of the size of `Device<T>`, and zeroed.
        unsafe {
            let this = this.as_ptr();
            (*raw_device(this.cast())).parent = raw_parent(parent);
            (&raw mut (*this).live).write(Atomic::new(false));
            (&raw mut (*this).early).write(EarlyEvents::new());
            Table::init(&raw mut (*this).cqs);
            Table::init(&raw mut (*this).qps);
        }

        // The registration owns the reference that `ib_dealloc_device` gives up; the `ARef` has
        // one of its own.
        // SAFETY: The device is initialised.
        unsafe { this.as_ref() }.inc_ref();

        // INVARIANT: The device is new.
        // SAFETY: The reference was just taken.
        Ok(Self(unsafe { ARef::from_raw(this) }))
    }

    /// The device.
    pub(super) fn device(&self) -> &ARef<Device<T>> {
        &self.0
    }

    /// Gives the driver's data to the device.
    ///
    /// # Safety
    ///
    /// The data must live, at their place, until the device is unregistered and nothing else calls
    /// [`Device::with_data`].
    pub(super) unsafe fn set_data(&self, data: &T::Data<'_>) {
        // SAFETY: The device is not registered, so nobody else looks at the pointer.
        unsafe { *self.0.data.get() = core::ptr::from_ref(data).cast() };
    }
}

impl<T: Operations> Drop for Unregistered<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, this is the only call.
        unsafe { bindings::ib_dealloc_device(self.0.as_raw()) };
    }
}

/// A registered device; dropping it unregisters the device.
///
/// # Invariants
///
/// The device is registered.
pub(super) struct Registration<'a, T: Operations> {
    dev: Unregistered<T>,
    _parent: PhantomData<&'a device::Device<device::Bound>>,
}

impl<'a, T: Operations> Registration<'a, T> {
    /// Registers a device.
    ///
    /// # Safety
    ///
    /// The data of the device must be set. The registration must be dropped, not leaked, before the
    /// data and before `parent` is unbound.
    pub(super) unsafe fn new(
        parent: &'a device::Device<device::Bound>,
        dev: Unregistered<T>,
        info: &DeviceInfo,
    ) -> Result<Self> {
        if info.ports == 0 || info.ports > MAX_PORTS || info.comp_vectors == 0 {
            return Err(EINVAL);
        }

        let raw = dev.0.as_raw();

        // SAFETY: The device is not registered, so nobody else uses it.
        unsafe {
            (*raw).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*raw).node_guid = info.node_guid.to_be();
            for (to, from) in (*raw).node_desc.iter_mut().zip(info.node_desc) {
                *to = from;
            }
            (*raw).phys_port_cnt = info.ports;
            (*raw).num_comp_vectors = info.comp_vectors as i32;
            (*raw).local_dma_lkey = info.local_dma_lkey.unwrap_or(0);

            bindings::ib_set_device_ops(raw, VTable::<T>::get());
        }

        // SAFETY: All that registration needs is set above. `parent` is a bound device with DMA
        // parameters, as every PCI device.
        to_result(unsafe {
            bindings::ib_register_device(raw, info.name.as_char_ptr(), raw_parent(parent))
        })?;

        // INVARIANT: The device is registered.
        let this = Self {
            dev,
            _parent: PhantomData,
        };

        // What came while the core was still reading the tables of the ports is told now.
        this.dev.0.live.xchg(true, Full);
        this.dev.0.early_events();

        Ok(this)
    }
}

impl<T: Operations> Device<T> {
    /// Stops events from reaching the core; on return nobody is about to hand one to it.
    fn quiesce(&self) {
        self.live.store(false, Release);
        rcu::synchronize_rcu();
    }
}

impl<T: Operations> Drop for Registration<'_, T> {
    fn drop(&mut self) {
        // An event that is handed to the core after it has flushed its queue would be handled when
        // the device is gone.
        self.dev.0.quiesce();

        // SAFETY: By the type invariant the device is registered. When this returns, all objects
        // are destroyed, and no operation runs or will run.
        unsafe { bindings::ib_unregister_device(self.dev.0.as_raw()) };
    }
}
