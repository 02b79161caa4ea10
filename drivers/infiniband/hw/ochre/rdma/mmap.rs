// SPDX-License-Identifier: GPL-2.0-or-later

//! Pages of the device in the address space of a process.

use super::bindings;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    device::Bound,
    error::to_result,
    page::PAGE_SIZE,
    pci,
    prelude::*,
    types::Opaque, //
};

/// An entry in a context's table of what can be mapped.
///
/// It is freed by [`free`] when the table and every mapping have let go of it.
#[repr(C)]
struct Entry {
    entry: Opaque<bindings::rdma_user_mmap_entry>,
    /// Physical address, on a page.
    phys: u64,
}

/// Something that a process may map, for as long as this is there.
///
/// # Invariants
///
/// Points to an entry that was inserted into the table of a context that is alive.
struct Mapping(NonNull<Entry>);

// SAFETY: An entry may be removed by any thread.
unsafe impl Send for Mapping {}

// SAFETY: A shared mapping gives access to nothing.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; mappings that exist keep the entry.
        unsafe { bindings::rdma_user_mmap_entry_remove(self.0.as_ptr().cast()) };
    }
}

/// The private data of a user context, with what the context can map.
pub(crate) struct Mapped<D> {
    // Goes first: on return from `Drop`, nothing of the data can be mapped any more.
    mappings: Mappings,
    data: D,
}

impl<D> Deref for Mapped<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.data
    }
}

/// What a context can map.
pub(super) struct Mappings(KVec<Mapping>);

impl Mappings {
    pub(super) fn new() -> Self {
        Self(KVec::new())
    }

    /// Lets processes of the context map `pages` pages of a BAR from byte `offset` on, uncached,
    /// and returns the offset for `mmap`.
    ///
    /// # Safety
    ///
    /// `context` must be alive, and must stay so until the mappings are dropped.
    pub(super) unsafe fn add_bar(
        &mut self,
        context: *mut bindings::ib_ucontext,
        pdev: &pci::Device<Bound>,
        bar: u32,
        offset: u64,
        pages: usize,
    ) -> Result<u64> {
        let len = pages.checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
        let end = offset.checked_add(len as u64).ok_or(EINVAL)?;
        let phys = pdev.resource_start(bar)? + offset;
        if len == 0 || end > pdev.resource_len(bar)? || phys % PAGE_SIZE as u64 != 0 {
            return Err(EINVAL);
        }

        self.0.reserve(1, GFP_KERNEL)?;
        let entry = KBox::new(
            Entry {
                entry: Opaque::zeroed(),
                phys,
            },
            GFP_KERNEL,
        )?;
        let entry = NonNull::from(KBox::leak(entry));

        // SAFETY: The context is alive, and the entry is a new allocation of its own.
        let result = to_result(unsafe {
            bindings::rdma_user_mmap_entry_insert(context, entry.as_ptr().cast(), len)
        });
        if let Err(e) = result {
            // SAFETY: The entry was not inserted, so nobody else has it.
            drop(unsafe { KBox::from_raw(entry.as_ptr()) });
            return Err(e);
        }

        // INVARIANT: The entry was inserted just now.
        self.0.push(Mapping(entry), GFP_KERNEL)?;

        // SAFETY: The entry is inserted.
        Ok(unsafe { bindings::ochre_mmap_offset(entry.as_ptr().cast()) })
    }
}

/// Initialises private data with their mappings: `init` does so in the place that it gets, and
/// returns the mappings.
///
/// # Safety
///
/// Where `init` succeeds, the place must be initialised, and where it fails, it must not be.
pub(super) unsafe fn with_mappings<D>(
    init: impl FnOnce(*mut D) -> Result<Mappings>,
) -> impl PinInit<Mapped<D>, Error> {
    let init = move |slot: *mut Mapped<D>| {
        // SAFETY: `slot` is a place for the structure.
        let mappings = init(unsafe { &raw mut (*slot).data })?;
        // SAFETY: As above.
        unsafe { (&raw mut (*slot).mappings).write(mappings) };
        Ok(())
    };

    // SAFETY: The closure initialises both fields, or none where it fails.
    unsafe { pin_init::pin_init_from_closure(init) }
}

/// Maps an entry of the context's table, the one that the offset of `vma` names.
///
/// # Safety
///
/// Must be called by the core as `ib_device_ops::mmap`, with entries that are all [`Entry`].
pub(super) unsafe fn map(
    context: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> Result {
    // SAFETY: By the requirements of this function.
    let entry = unsafe { bindings::rdma_user_mmap_entry_get(context, vma) };
    if entry.is_null() {
        return Err(EINVAL);
    }

    // SAFETY: The entry is referenced, and it is an `Entry`; `vma` has its size.
    let result = to_result(unsafe {
        bindings::ochre_mmap_io_noncached(
            context,
            vma,
            (*entry.cast::<Entry>()).phys,
            (*entry).npages * PAGE_SIZE,
            entry,
        )
    });

    // SAFETY: The reference was taken above; the mapping has its own.
    unsafe { bindings::rdma_user_mmap_entry_put(entry) };

    result
}

/// Frees an entry.
///
/// # Safety
///
/// Must be called by the core as `ib_device_ops::mmap_free`.
pub(super) unsafe extern "C" fn free(entry: *mut bindings::rdma_user_mmap_entry) {
    // SAFETY: The entry is an `Entry` that was leaked in `add_bar`; the core lets go of it here.
    drop(unsafe { KBox::from_raw(entry.cast::<Entry>()) });
}
