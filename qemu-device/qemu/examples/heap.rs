// SPDX-License-Identifier: GPL-2.0-or-later

//! Counts the heap of a program that it is preloaded into: `LD_PRELOAD=libheap.so OCHRE_HEAP=FILE PROGRAM`.
//!
//! The file, of at least 16 bytes, is mapped; it has two 64-bit numbers in the machine's byte order: blocks that are
//! in use, and their bytes. What was taken before the count began is not in it, so that only differences mean something.
//! The C library's own functions do the work.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

/// What the file has.
#[repr(C)]
struct Counts {
    blocks: AtomicI64,
    bytes: AtomicI64,
}

static COUNTS: AtomicPtr<Counts> = AtomicPtr::new(ptr::null_mut());

extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

#[used]
#[link_section = ".init_array"]
static BEGIN: extern "C" fn() = begin;

/// Maps the file, when the program is loaded.
extern "C" fn begin() {
    // SAFETY: a C string as the name; the value is read before anything can change the environment.
    let path = unsafe { libc::getenv(c"OCHRE_HEAP".as_ptr()) };
    if path.is_null() {
        return;
    }
    // SAFETY: `path` is a C string.
    let file = unsafe { libc::open(path, libc::O_RDWR | libc::O_CLOEXEC) };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let len = size_of::<Counts>();
    // SAFETY: a new mapping, which is never taken away.
    let map = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, file, 0) };
    if map != libc::MAP_FAILED {
        COUNTS.store(map.cast(), Ordering::Release);
    }
    // SAFETY: no pointers; without a file it is an error, which is fine.
    unsafe { libc::close(file) };
}

/// Counts a block that is taken (1) or given back (-1).
fn count(block: *mut c_void, by: i64) {
    let counts = COUNTS.load(Ordering::Acquire);
    if block.is_null() || counts.is_null() {
        return;
    }
    // SAFETY: the mapping stays, and only atomics are in it; the block is the caller's, in use.
    let (counts, size) = unsafe { (&*counts, malloc_usable_size(block)) };
    counts.blocks.fetch_add(by, Ordering::Relaxed);
    counts.bytes.fetch_add(by * size as i64, Ordering::Relaxed);
}

fn taken(block: *mut c_void) -> *mut c_void {
    count(block, 1);
    block
}

/// As the C library's.
///
/// # Safety
/// None but for the C ABI.
#[no_mangle]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size will do.
    taken(unsafe { __libc_malloc(size) })
}

/// As the C library's.
///
/// # Safety
/// None but for the C ABI.
#[no_mangle]
pub unsafe extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    // SAFETY: any sizes will do.
    taken(unsafe { __libc_calloc(number, size) })
}

/// As the C library's.
///
/// # Safety
/// `block` is null or a block in use.
#[no_mangle]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    count(block, -1);
    // SAFETY: the caller's promise.
    let moved = unsafe { __libc_realloc(block, size) };
    if moved.is_null() && size != 0 {
        // It could not be moved and is still there.
        count(block, 1);
    }
    taken(moved)
}

/// As the C library's.
///
/// # Safety
/// `block` is null or a block in use.
#[no_mangle]
pub unsafe extern "C" fn free(block: *mut c_void) {
    count(block, -1);
    // SAFETY: the caller's promise.
    unsafe { __libc_free(block) }
}

/// As the C library's.
///
/// # Safety
/// None but for the C ABI.
#[no_mangle]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the library checks both.
    taken(unsafe { __libc_memalign(align, size) })
}

/// As the C library's.
///
/// # Safety
/// None but for the C ABI.
#[no_mangle]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: as memalign.
    unsafe { memalign(align, size) }
}

/// As the C library's.
///
/// # Safety
/// `place` has room for a pointer.
#[no_mangle]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    if !align.is_power_of_two() || align % size_of::<usize>() != 0 {
        return libc::EINVAL;
    }
    // SAFETY: as memalign.
    let block = unsafe { memalign(align, size) };
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(block) };
    0
}
