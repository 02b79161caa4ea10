// SPDX-License-Identifier: GPL-2.0-or-later

//! Asynchronous events.

use super::{
    bindings,
    Device,
    Object,
    Operations, //
};
use kernel::sync::atomic::{
    Atomic,
    Full, //
};

/// Most ports of a device.
pub(super) const MAX_PORTS: u32 = 8;

/// What happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortEvent {
    /// The port became active.
    Active,
    /// The port is no longer active.
    Error,
    /// The subnet manager changed the LID.
    LidChange,
    /// The subnet manager changed the P_Key table.
    PkeyChange,
    /// Another subnet manager is master.
    SmChange,
    /// Clients must register again with the subnet administrator.
    ClientReregister,
    /// The GID table changed.
    GidChange,
}

impl PortEvent {
    const ALL: [Self; 7] = [
        Self::Active,
        Self::Error,
        Self::LidChange,
        Self::PkeyChange,
        Self::SmChange,
        Self::ClientReregister,
        Self::GidChange,
    ];

    fn as_raw(self) -> bindings::ib_event_type {
        match self {
            Self::Active => bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
            Self::Error => bindings::ib_event_type_IB_EVENT_PORT_ERR,
            Self::LidChange => bindings::ib_event_type_IB_EVENT_LID_CHANGE,
            Self::PkeyChange => bindings::ib_event_type_IB_EVENT_PKEY_CHANGE,
            Self::SmChange => bindings::ib_event_type_IB_EVENT_SM_CHANGE,
            Self::ClientReregister => bindings::ib_event_type_IB_EVENT_CLIENT_REREGISTER,
            Self::GidChange => bindings::ib_event_type_IB_EVENT_GID_CHANGE,
        }
    }
}

/// Which events of ports came before the device was registered.
pub(super) struct EarlyEvents([[Atomic<bool>; PortEvent::ALL.len()]; MAX_PORTS as usize]);

impl EarlyEvents {
    pub(super) fn new() -> Self {
        Self(core::array::from_fn(|_| {
            core::array::from_fn(|_| Atomic::new(false))
        }))
    }

    fn slot(&self, port: u32, what: PortEvent) -> Option<&Atomic<bool>> {
        self.0
            .get((port as usize).wrapping_sub(1))?
            .get(what as usize)
    }
}

/// What happened to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpEvent {
    /// It went to the error state with no request to blame.
    Fatal,
    /// Its responder met an invalid request.
    RequestError,
    /// Its responder met an access violation.
    AccessError,
    /// The first packet came in RTR.
    CommEstablished,
    /// Its send queue is drained.
    SqDrained,
    /// The last receive of a shared queue was taken.
    LastWqeReached,
}

impl QpEvent {
    fn as_raw(self) -> bindings::ib_event_type {
        match self {
            Self::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            Self::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            Self::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            Self::CommEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            Self::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            Self::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        }
    }
}

impl<T: Operations> Device<T> {
    fn event(&self, kind: bindings::ib_event_type) -> bindings::ib_event {
        bindings::ib_event {
            device: self.as_raw(),
            event: kind,
            ..Default::default()
        }
    }

    /// Tells all users of the device what happened to a port.
    ///
    /// *Context*: any, hard interrupts among them. What comes before the device is registered is told
    /// afterwards, at most once; what comes once the device is being unregistered is forgotten.
    pub(crate) fn port_event(&self, port: u32, what: PortEvent) {
        if self.dispatch(port, what) {
            return;
        }

        if let Some(slot) = self.early().slot(port, what) {
            slot.xchg(true, Full);
            // The device may have been registered just now.
            if self.if_live(|| ()) && slot.xchg(false, Full) {
                self.dispatch(port, what);
            }
        }
    }

    /// Tells what came before the device took events.
    pub(super) fn early_events(&self) {
        for port in 1..=MAX_PORTS {
            for what in PortEvent::ALL {
                if let Some(slot) = self.early().slot(port, what) {
                    if slot.xchg(false, Full) {
                        self.dispatch(port, what);
                    }
                }
            }
        }
    }

    fn dispatch(&self, port: u32, what: PortEvent) -> bool {
        let mut event = self.event(what.as_raw());
        event.element.port_num = core::mem::ManuallyDrop::new(port);

        // SAFETY: The event is complete; the device is registered while the closure runs, and
        // unregistering it flushes the queue that the event goes to.
        self.if_live(|| unsafe { bindings::ib_dispatch_event(&event) })
    }

    /// Tells all users of the device that it does not work any more.
    ///
    /// *Context*: as [`Device::port_event`].
    pub(crate) fn fatal_event(&self) {
        let event = self.event(bindings::ib_event_type_IB_EVENT_DEVICE_FATAL);

        // SAFETY: As in `port_event`.
        self.if_live(|| unsafe { bindings::ib_dispatch_event(&event) });
    }

    /// Tells the owner of a queue pair what happened to it. An unknown number is ignored: the queue
    /// pair has just been destroyed.
    ///
    /// *Context*: process context only, such as the thread of an interrupt: owners may sleep.
    pub(crate) fn qp_event(&self, number: u32, what: QpEvent) {
        if let Some(qp) = self.qp(number) {
            qp.event(self, what);
        }
    }
}

impl<D> Object<bindings::ib_cq, D> {
    /// Tells the owner that there are completions.
    pub(super) fn completion(&self) {
        let cq = self.as_raw();

        // SAFETY: The object is alive. The core sets the handler before the queue is armed first,
        // and does not change it.
        unsafe {
            if let Some(handler) = (*cq).comp_handler {
                handler(cq, (*cq).cq_context);
            }
        }
    }

    /// Tells the owner that the queue is broken.
    pub(super) fn error(&self) {
        let cq = self.as_raw();

        // SAFETY: The object is alive; the core sets the handler when it makes the queue.
        unsafe {
            let mut event = bindings::ib_event {
                device: (*cq).device,
                event: bindings::ib_event_type_IB_EVENT_CQ_ERR,
                ..Default::default()
            };
            event.element.cq = core::mem::ManuallyDrop::new(cq);
            if let Some(handler) = (*cq).event_handler {
                handler(&mut event, (*cq).cq_context);
            }
        }
    }
}

impl<D> Object<bindings::ib_qp, D> {
    fn event<T: Operations>(&self, dev: &Device<T>, what: QpEvent) {
        let qp = self.as_raw();
        let mut event = dev.event(what.as_raw());
        event.element.qp = core::mem::ManuallyDrop::new(qp);

        // SAFETY: The object is alive; the core sets the handler when it makes the queue pair.
        unsafe {
            if let Some(handler) = (*qp).event_handler {
                handler(&mut event, (*qp).qp_context);
            }
        }
    }
}
