// SPDX-License-Identifier: GPL-2.0-or-later

//! The C ABI of the core: the twin of `ochre-core.h`.

use std::ffi::{c_char, c_void, CStr, CString};
use std::path::PathBuf;
use std::ptr;

use ochre_hw::pci;

use crate::config::{self, Config, MAX_PORTS};
use crate::device::{Core, DOORBELL_BAR_SIZE};

/// Changes with the header.
const ABI: u32 = 4;

/// A range of guest RAM as the device's DMA sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ram {
    /// DMA address of the first byte.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Where the range is mapped in this process.
    pub host: *mut u8,
    /// Handle for `Host::ram_dirty`.
    pub cache: *mut c_void,
}

/// Called with a piece of guest memory.
pub type UseMemory = unsafe extern "C" fn(context: *mut c_void, host: *mut u8, size: u64);

/// A piece of the core's work.
pub type Work = unsafe extern "C" fn(context: *mut c_void);

/// What the core asks of QEMU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Handed back in each call.
    pub opaque: *mut c_void,
    /// Bytes of a range were written.
    pub ram_dirty: unsafe extern "C" fn(cache: *mut c_void, offset: u64, size: u64),
    /// Uses memory that no range holds; 0, or -1 where there is none.
    pub with_memory: unsafe extern "C" fn(
        opaque: *mut c_void,
        addr: u64,
        size: u64,
        is_write: bool,
        use_memory: UseMemory,
        context: *mut c_void,
    ) -> i32,
    /// Does a piece of work that writes guest memory many times, as cheaply as QEMU can.
    pub burst: unsafe extern "C" fn(work: Work, context: *mut c_void),
    /// Raises the MSI-X vectors whose bits are set.
    pub raise: unsafe extern "C" fn(opaque: *mut c_void, vectors: u64),
    /// Tells the user something.
    pub report: unsafe extern "C" fn(opaque: *mut c_void, message: *const c_char),
}

// SAFETY: the header promises that every callback may be called from any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Host {
    /// Does `work`, which may write guest memory many times and takes no BQL.
    pub(crate) fn burst<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut work = Some(work);
        let mut result = None;
        let mut body = || result = work.take().map(|work| work());
        let mut body: &mut dyn FnMut() = &mut body;
        let context: *mut &mut dyn FnMut() = &mut body;
        // SAFETY: the callback hands `context` to `call` during this call only, as `call` expects it.
        unsafe { (self.burst)(call, context.cast()) };
        result.expect("QEMU has done the work")
    }
}

/// Does the work of [`Host::burst`].
///
/// # Safety
/// `context` points to the `&mut dyn FnMut` that [`Host::burst`] made.
unsafe extern "C" fn call(context: *mut c_void) {
    // SAFETY: the caller's promise.
    let work = unsafe { &mut *context.cast::<&mut dyn FnMut()>() };
    work();
}

/// Properties as C has them.
#[repr(C)]
#[derive(Debug)]
pub struct RawConfig {
    abi: u32,
    ports: u32,
    vectors: u32,
    crc: bool,
    link: [*const c_char; MAX_PORTS],
    node_guid: *const c_char,
    capture: *const c_char,
    speed: *const c_char,
    width: *const c_char,
}

/// Sizes and ids for the PCI side.
#[repr(C)]
#[derive(Debug)]
pub struct Layout {
    vendor_id: u16,
    device_id: u16,
    class_id: u16,
    revision: u8,
    bar_regs: u8,
    bar_doorbells: u8,
    bar_msix: u8,
    max_vectors: u16,
    msix_pba_offset: u32,
    bar_regs_size: u64,
    bar_doorbells_size: u64,
    bar_msix_size: u64,
}

/// A C string, if there is one.
///
/// # Safety
/// `text` is null or a C string that lives during the call.
unsafe fn string(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller promises a C string.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

/// Checks the properties.
///
/// # Safety
/// The strings of `raw` are null or C strings that live during the call.
unsafe fn check(raw: &RawConfig) -> Result<Config, String> {
    if raw.abi != ABI {
        return Err(format!(
            "QEMU's side of ochre-hca speaks version {} of the core's interface, the core {ABI}; build both anew",
            raw.abi
        ));
    }
    let ports = match raw.ports {
        1 | 2 => raw.ports as u8,
        other => return Err(format!("ports is {other}; it can be 1 or 2")),
    };
    let mut link = [None, None];
    for (index, path) in link.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *path = unsafe { string(raw.link[index]) }.map(PathBuf::from);
    }
    if ports == 1 && link[1].is_some() {
        return Err("link1 is given, but the device has one port; add ports=2".into());
    }
    if link[0].is_some() && link[0] == link[1] {
        return Err("link0 and link1 are the same path; each cable has a path of its own".into());
    }
    // SAFETY: the caller's promise, for each of these strings.
    let (guid, capture, speed, width) = unsafe {
        (
            string(raw.node_guid),
            string(raw.capture),
            string(raw.speed),
            string(raw.width),
        )
    };
    let node_guid = match guid {
        Some(text) => config::guid(&text)?,
        None => {
            let path = link[0].as_deref().unwrap_or("".as_ref());
            config::default_guid(&path.to_string_lossy(), std::process::id())
        }
    };
    Ok(Config {
        ports,
        vectors: raw
            .vectors
            .try_into()
            .map_err(|_| format!("vectors is {}, too many", raw.vectors))?,
        crc: raw.crc,
        link,
        node_guid,
        capture: capture.map(PathBuf::from),
        speeds: config::speeds(speed.as_deref().unwrap_or("edr"))?,
        widths: config::widths(width.as_deref().unwrap_or("4x"))?,
    })
}

/// The core that a handle from `ochre_core_new` stands for.
///
/// # Safety
/// `core` is such a handle, and was not freed.
unsafe fn get<'a>(core: *const Core) -> &'a Core {
    // SAFETY: the caller's promise; Core is shared by reference only, and Sync.
    unsafe { &*core }
}

/// Ids and sizes, from the hardware contract.
///
/// # Safety
/// `layout` points to memory for a [`Layout`].
#[no_mangle]
pub unsafe extern "C" fn ochre_core_layout(layout: *mut Layout) {
    let value = Layout {
        vendor_id: pci::VENDOR_ID,
        device_id: pci::DEVICE_ID,
        class_id: pci::CLASS_INFINIBAND,
        revision: pci::REVISION,
        bar_regs: pci::BAR_REGS,
        bar_doorbells: pci::BAR_DOORBELLS,
        bar_msix: pci::BAR_MSIX,
        max_vectors: pci::MAX_VECTORS,
        msix_pba_offset: pci::MSIX_PBA_OFFSET,
        bar_regs_size: pci::BAR_REGS_SIZE,
        bar_doorbells_size: DOORBELL_BAR_SIZE,
        bar_msix_size: pci::BAR_MSIX_SIZE,
    };
    // SAFETY: the caller's promise.
    unsafe { layout.write(value) };
}

/// Makes a device; on failure null, and a message.
///
/// # Safety
/// `raw` and `host` are valid, `error` has room for `error_size` bytes.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_new(
    raw: *const RawConfig,
    host: *const Host,
    error: *mut c_char,
    error_size: usize,
) -> *mut Core {
    // SAFETY: the caller's promise.
    let (raw, host) = unsafe { (&*raw, *host) };
    // SAFETY: the caller's promise covers the strings too.
    let made = unsafe { check(raw) }.and_then(|config| Core::new(config, host));
    match made {
        Ok(core) => Box::into_raw(Box::new(core)),
        Err(message) => {
            // SAFETY: the caller's promise.
            unsafe { tell(&message, error, error_size) };
            ptr::null_mut()
        }
    }
}

/// Gives a message to C, cut where there is no room for all of it.
///
/// # Safety
/// `error` has room for `error_size` bytes.
unsafe fn tell(message: &str, error: *mut c_char, error_size: usize) {
    let mut end = message.len().min(error_size.saturating_sub(1));
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    if error_size > 0 {
        // SAFETY: end + 1 <= error_size bytes, which the caller promises.
        unsafe {
            ptr::copy_nonoverlapping(message.as_ptr().cast(), error, end);
            error.add(end).write(0);
        }
    }
}

/// Frees a device, after its service thread was joined.
///
/// # Safety
/// `core` is from `ochre_core_new`, and nothing uses it any more.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_free(core: *mut Core) {
    // SAFETY: the caller's promise: made by Box::into_raw, and freed once.
    drop(unsafe { Box::from_raw(core) });
}

/// Body of the service thread.
///
/// # Safety
/// `core` is from `ochre_core_new`, and lives until this returns.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_service(core: *const Core) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.service();
}

/// Makes the service thread end.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_stop(core: *const Core) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.stop();
}

/// Resets the device.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_reset(core: *const Core) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.reset();
}

/// The machine stands still, or goes on.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_set_paused(core: *const Core, paused: bool) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.set_paused(paused);
}

/// Replaces the RAM table.
///
/// # Safety
/// `core` is from `ochre_core_new`; `ram` has `count` ranges, sorted by base, apart from each other,
/// each mapped for reading and writing until a later call has returned.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_set_ram(core: *const Core, ram: *const Ram, count: usize) {
    let ranges = if count == 0 {
        Vec::new()
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(ram, count) }.to_vec()
    };
    // SAFETY: the caller's promise, for the handle and for the ranges.
    unsafe { get(core).set_ram(ranges) };
}

/// Reads a register.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_reg_read(core: *const Core, offset: u64, size: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.reg_read(offset, size)
}

/// Writes a register.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_reg_write(
    core: *const Core,
    offset: u64,
    value: u64,
    size: u32,
) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.reg_write(offset, value, size);
}

/// Writes to a doorbell page.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_doorbell(
    core: *const Core,
    offset: u64,
    value: u64,
    size: u32,
) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.doorbell(offset, value, size);
}

/// Sets how fast a port's receiver drains, bytes per second, 0 is unlimited.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_set_drain(core: *const Core, port: u32, rate: u64) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.set_drain(port as usize, rate);
}

/// How fast a port's receiver drains.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_drain(core: *const Core, port: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.drain(port as usize)
}

/// Sets a port's rules for wire faults; on failure `false` and a message, and the former rules stay.
///
/// # Safety
/// `core` is from `ochre_core_new`, `rules` is null or a C string, `error` has room for `error_size`
/// bytes.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_set_faults(
    core: *const Core,
    port: u32,
    rules: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let (core, rules) = unsafe { (get(core), string(rules)) };
    match core.set_faults(port as usize, &rules.unwrap_or_default()) {
        Ok(()) => true,
        Err(message) => {
            // SAFETY: the caller's promise.
            unsafe { tell(&message, error, error_size) };
            false
        }
    }
}

/// A port's rules for wire faults with their counts, for `ochre_core_free_text`.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_faults(core: *const Core, port: u32) -> *mut c_char {
    // SAFETY: the caller's promise.
    let text = unsafe { get(core) }.faults(port as usize);
    CString::new(text).unwrap_or_default().into_raw()
}

/// How many objects of each kind there are, for `ochre_core_free_text`.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_objects(core: *const Core) -> *mut c_char {
    // SAFETY: the caller's promise.
    let text = unsafe { get(core) }.objects();
    CString::new(text).unwrap_or_default().into_raw()
}

/// Frees a text.
///
/// # Safety
/// `text` is from `ochre_core_faults` or `ochre_core_objects`, and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_free_text(text: *mut c_char) {
    // SAFETY: the caller's promise: made by CString::into_raw, and freed once.
    drop(unsafe { CString::from_raw(text) });
}

/// Plugs a port's cable, or pulls it.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_set_plugged(core: *const Core, port: u32, plugged: bool) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.set_plugged(port as usize, plugged);
}

/// Whether a port's cable is plugged.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_plugged(core: *const Core, port: u32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.plugged(port as usize)
}

/// Turns writing to the capture file on or off.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_set_capturing(core: *const Core, capturing: bool) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.set_capturing(capturing);
}

/// Writes out what the capture has buffered.
///
/// # Safety
/// `core` is from `ochre_core_new`.
#[no_mangle]
pub unsafe extern "C" fn ochre_core_flush_capture(core: *const Core) {
    // SAFETY: the caller's promise.
    unsafe { get(core) }.flush_capture();
}
