// SPDX-License-Identifier: GPL-2.0-or-later

//! Verbs objects, and the tables in which events find them.

use super::{
    bindings,
    Operations, //
};
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    marker::PhantomData,
    mem::{
        align_of,
        offset_of, //
    },
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        Completion,
        Refcount, //
    },
    types::Opaque, //
};

/// Private data of a completion queue, as far as the layer must know them.
pub(crate) trait CqPrivate {
    /// The number by which events name the queue.
    fn number(&self) -> u32;
    /// How many completions the queue holds.
    fn entries(&self) -> u32;
}

/// Private data of a queue pair, as far as the layer must know them.
pub(crate) trait QpPrivate {
    /// The number by which events and completions name the queue pair.
    fn number(&self) -> u32;
}

/// Private data of a memory region, as far as the layer must know them.
pub(crate) trait MrPrivate {
    /// The key for local use.
    fn lkey(&self) -> u32;
    /// The key for peers.
    fn rkey(&self) -> u32;
}

/// A user context: [`Operations::UContext`] behind a `struct ib_ucontext`.
pub(crate) type UContext<T> =
    Object<bindings::ib_ucontext, super::mmap::Mapped<<T as Operations>::UContext>>;
/// A protection domain: [`Operations::Pd`] behind a `struct ib_pd`.
pub(crate) type Pd<T> = Object<bindings::ib_pd, <T as Operations>::Pd>;
/// An address handle: [`Operations::Ah`] behind a `struct ib_ah`.
pub(crate) type Ah<T> = Object<bindings::ib_ah, <T as Operations>::Ah>;
/// A completion queue: [`Operations::Cq`] behind a `struct ib_cq`.
pub(crate) type Cq<T> = Object<bindings::ib_cq, <T as Operations>::Cq>;
/// A queue pair: [`Operations::Qp`] behind a `struct ib_qp`.
pub(crate) type Qp<T> = Object<bindings::ib_qp, <T as Operations>::Qp>;
/// A memory region: [`Operations::Mr`] behind a `struct ib_mr`.
pub(crate) type Mr<T> = Object<bindings::ib_mr, <T as Operations>::Mr>;

/// A verbs object: the C structure, and behind it the driver's private data, to which the object
/// dereferences.
///
/// # Invariants
///
/// A reference to an `Object` exists only while `data` is initialised: from the end of
/// [`Object::init`] to the start of [`Object::fini`]. The object never moves.
#[repr(C)]
pub(crate) struct Object<C, D> {
    raw: Opaque<C>,
    users: Users,
    data: UnsafeCell<D>,
}

// SAFETY: The C structure is protected by `ib_core`; the private data are `Send`.
unsafe impl<C, D: Send> Send for Object<C, D> {}

// SAFETY: A shared object gives shared references to the private data, which are `Sync`; the C
// structure is only read, or written under the rules of `ib_core`.
unsafe impl<C, D: Sync> Sync for Object<C, D> {}

impl<C, D> Object<C, D> {
    /// Initialises what follows the C structure.
    ///
    /// # Safety
    ///
    /// `raw` must be the start of an allocation of the size and alignment of `Self`, which nobody
    /// else uses yet, and must stay at its place until [`Object::fini`].
    pub(super) unsafe fn init(raw: *mut C, data: impl PinInit<D, Error>) -> Result {
        const_assert!(offset_of!(Self, raw) == 0);
        // What `kzalloc` promises for every size.
        const_assert!(align_of::<Self>() <= 8);

        let this = raw.cast::<Self>();

        // SAFETY: The place is valid and nobody else uses it.
        unsafe { pin_init::raw_try_init(&raw mut (*this).data, PinData(data, PhantomData))? };

        // SAFETY: As above.
        unsafe { pin_init::raw_init(&raw mut (*this).users, Users::new()) };

        Ok(())
    }

    /// Waits until nobody holds an [`ObjectRef`], and drops the private data.
    ///
    /// # Safety
    ///
    /// `raw` must be the C structure of an initialised object that no table has any more and that
    /// nobody but holders of an [`ObjectRef`] uses. It must not be used as an object afterwards.
    pub(super) unsafe fn fini(raw: *mut C) {
        let this = raw.cast::<Self>();

        // SAFETY: The object is still initialised.
        unsafe { (*this).users.wait() };

        // SAFETY: Nobody uses the object any more.
        unsafe { core::ptr::drop_in_place(&raw mut (*this).data) };
        // SAFETY: As above.
        unsafe { core::ptr::drop_in_place(&raw mut (*this).users) };
    }

    /// The object of a C structure.
    ///
    /// # Safety
    ///
    /// `raw` must be the C structure of an object that stays initialised for `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *mut C) -> &'a Self {
        // SAFETY: By the requirements of this function; the C structure is the first field.
        unsafe { &*raw.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut C {
        self.raw.get()
    }
}

impl<C, D> Deref for Object<C, D> {
    type Target = D;

    fn deref(&self) -> &D {
        // SAFETY: By the type invariant the data are initialised; nobody has a mutable reference.
        unsafe { &*self.data.get() }
    }
}

/// Initialises the contents of an `UnsafeCell`.
struct PinData<I, D>(I, PhantomData<D>);

// SAFETY: `UnsafeCell` is `repr(transparent)`, and the place is handed on as it came.
unsafe impl<I: PinInit<D, Error>, D> PinInit<UnsafeCell<D>, Error> for PinData<I, D> {
    unsafe fn __init(self, slot: *mut UnsafeCell<D>) -> Result {
        // SAFETY: By the requirements of this function.
        unsafe { pin_init::raw_try_init(slot.cast::<D>(), self.0) }
    }
}

/// Who looks at an object because of an event.
#[pin_data]
struct Users {
    refs: Refcount,
    #[pin]
    gone: Completion,
}

impl Users {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            refs: Refcount::new(1),
            gone <- Completion::new(),
        })
    }

    fn put(&self) {
        if self.refs.dec_and_test() {
            self.gone.complete_all();
        }
    }

    /// Gives up the object's own reference and waits for the others.
    fn wait(&self) {
        if !self.refs.dec_and_test() {
            self.gone.wait_for_completion();
        }
    }
}

/// A reference to an object that was found in a table; the object's destruction waits for it.
pub(crate) struct ObjectRef<'a, C, D> {
    object: NonNull<Object<C, D>>,
    _table: PhantomData<&'a Table<C, D>>,
}

impl<C, D> Deref for ObjectRef<'_, C, D> {
    type Target = Object<C, D>;

    fn deref(&self) -> &Self::Target {
        // SAFETY: `Object::fini` waits until this reference is dropped.
        unsafe { self.object.as_ref() }
    }
}

impl<C, D> Drop for ObjectRef<'_, C, D> {
    fn drop(&mut self) {
        self.users.put();
    }
}

/// Objects by number. It is looked up from any context.
///
/// # Invariants
///
/// The array holds pointers to initialised objects whose own reference is not given up.
#[repr(transparent)]
pub(super) struct Table<C, D> {
    xa: Opaque<bindings::xarray>,
    _objects: PhantomData<NonNull<Object<C, D>>>,
}

// SAFETY: The array has its own lock, and objects are `Send` and `Sync`.
unsafe impl<C, D: Send + Sync> Send for Table<C, D> {}

// SAFETY: As above.
unsafe impl<C, D: Send + Sync> Sync for Table<C, D> {}

impl<C, D> Table<C, D> {
    /// Makes an empty table.
    ///
    /// # Safety
    ///
    /// `table` must be valid for writes.
    pub(super) unsafe fn init(table: *mut Self) {
        // SAFETY: By the requirements of this function; the type is transparent.
        unsafe { bindings::ochre_table_init(table.cast()) };
    }

    /// Puts an object under a number. An object that is there already, because the device has given
    /// its number away while it is being destroyed, is replaced.
    ///
    /// # Safety
    ///
    /// The object must be taken out by [`Table::remove`] before [`Object::fini`].
    pub(super) unsafe fn insert(&self, number: u32, object: &Object<C, D>) -> Result {
        let entry = core::ptr::from_ref(object).cast_mut().cast();

        // SAFETY: The array is initialised; the entry is a pointer, aligned to 4 bytes.
        kernel::error::to_result(unsafe {
            bindings::ochre_table_store(self.xa.get(), number as usize, entry)
        })
    }

    /// Takes an object out; nobody finds it any more.
    pub(super) fn remove(&self, number: u32, object: &Object<C, D>) {
        let entry = core::ptr::from_ref(object).cast_mut().cast();

        // SAFETY: The array is initialised.
        unsafe { bindings::ochre_table_erase(self.xa.get(), number as usize, entry) };
    }

    /// Finds the object of a number.
    pub(super) fn get(&self, number: u32) -> Option<ObjectRef<'_, C, D>> {
        // SAFETY: The array is initialised.
        self.find(|xa| unsafe { bindings::xa_load(xa, number as usize) })
    }

    /// Finds the first object whose number is `from` or larger.
    pub(super) fn next(&self, from: u32) -> Option<(u32, ObjectRef<'_, C, D>)> {
        let mut index = from as usize;
        let object = self.find(|xa| {
            // SAFETY: The array is initialised.
            unsafe { bindings::ochre_table_next(xa, &mut index) }
        })?;
        Some((u32::try_from(index).ok()?, object))
    }

    /// Takes a reference to the object of the entry that `lookup` finds.
    fn find(
        &self,
        lookup: impl FnOnce(*mut bindings::xarray) -> *mut c_void,
    ) -> Option<ObjectRef<'_, C, D>> {
        // SAFETY: The array is initialised.
        let flags = unsafe { bindings::ochre_table_lock(self.xa.get()) };
        let entry = lookup(self.xa.get());
        let object = NonNull::new(entry.cast::<Object<C, D>>());
        if let Some(object) = object {
            // SAFETY: By the type invariant the object is initialised, and it stays in the table,
            // with its own reference, while the lock is held.
            unsafe { object.as_ref() }.users.refs.inc();
        }
        // SAFETY: The lock was taken above.
        unsafe { bindings::ochre_table_unlock(self.xa.get(), flags) };

        Some(ObjectRef {
            object: object?,
            _table: PhantomData,
        })
    }
}
