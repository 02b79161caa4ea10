// SPDX-License-Identifier: GPL-2.0-or-later

//! What the driver does upon an event of the device.

use crate::{
    hw::eqe::{
        Eqe,
        EventType, //
    },
    rdma::{
        Hca,
        PortEvent,
        QpEvent, //
    },
    Ochre, //
};

/// The event of a port, if it is one.
fn port_event(event: EventType) -> Option<PortEvent> {
    Some(match event {
        EventType::PortActive => PortEvent::Active,
        EventType::PortError => PortEvent::Error,
        EventType::LidChange => PortEvent::LidChange,
        EventType::PkeyChange => PortEvent::PkeyChange,
        EventType::SmChange => PortEvent::SmChange,
        EventType::ClientReregister => PortEvent::ClientReregister,
        EventType::GidChange => PortEvent::GidChange,
        _ => return None,
    })
}

/// The event of a queue pair, if it is one.
fn qp_event(event: EventType) -> Option<QpEvent> {
    Some(match event {
        EventType::QpFatal => QpEvent::Fatal,
        EventType::QpRequestError => QpEvent::RequestError,
        EventType::QpAccessError => QpEvent::AccessError,
        EventType::QpCommEstablished => QpEvent::CommEstablished,
        EventType::QpSqDrained => QpEvent::SqDrained,
        _ => return None,
    })
}

/// Handles an event with interrupts off; gives false for one whose handling may sleep, which is
/// [`handle`]'s.
pub(crate) fn handle_atomic(hca: Hca<'_, Ochre>, eqe: &Eqe) -> bool {
    let Some(event) = EventType::from_raw(eqe.event) else {
        // An event of a later minor version, which this driver did not ask for.
        return true;
    };

    match event {
        EventType::CqCompletion => hca.dev.cq_completion(eqe.number),
        EventType::CommandDone => hca.core.cmd.wake(),
        EventType::CqError => return false,
        _ => match port_event(event) {
            Some(what) => hca.dev.port_event(eqe.port.into(), what),
            None => return qp_event(event).is_none(),
        },
    }
    true
}

/// Handles those events that [`handle_atomic`] has left.
pub(crate) fn handle(hca: Hca<'_, Ochre>, eqe: &Eqe) {
    let Some(event) = EventType::from_raw(eqe.event) else {
        return;
    };

    match event {
        EventType::CqError => hca.dev.cq_error(eqe.number),
        _ => {
            if let Some(what) = qp_event(event) {
                hca.dev.qp_event(eqe.number, what);
            }
        }
    }
}
