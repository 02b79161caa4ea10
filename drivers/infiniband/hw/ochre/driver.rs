// SPDX-License-Identifier: GPL-2.0-or-later

//! The driver on the PCI bus: how a device is brought up, interrupted and stopped.

use crate::{
    device::Data,
    eq::EventQueue,
    events,
    health::Health,
    hw::{
        cmd::queue::MAX_LOG_EQE,
        pci as hw_pci, //
    },
    mad,
    rdma::{
        self,
        DeviceInfo,
        Driver,
        Hca,
        IrqOutcome, //
    },
    Ochre, //
};
use kernel::{
    cpu::nr_cpu_ids,
    device::Bound,
    pci,
    prelude::*,
    str::CStr, //
};

/// log2 of the entries of the queue for async events and commands.
const LOG_ASYNC_EQE: u8 = 12;
/// log2 of the entries of a queue for completion events.
const LOG_COMPLETION_EQE: u8 = 13;

kernel::pci_device_table!(
    PCI_TABLE,
    (),
    [(rdma::device_id(hw_pci::VENDOR_ID, hw_pci::DEVICE_ID), ())]
);

impl Driver for Ochre {
    const NAME: &'static CStr = c"ochre";
    const ID_TABLE: pci::IdTable<()> = &PCI_TABLE;

    fn max_vectors() -> u32 {
        // One is for async events and commands; more completion vectors than processors are of no
        // use.
        u32::from(hw_pci::MAX_VECTORS).min(1 + nr_cpu_ids())
    }

    fn probe<'a>(pdev: &'a pci::Device<Bound>) -> impl PinInit<Data<'a>, Error> {
        Data::new(pdev)
    }

    fn start(hca: Hca<'_, Self>, vectors: u32) -> Result<DeviceInfo> {
        let data = hca.data();
        let queues = vectors.min(data.limits.max_eq).max(1);

        let mut eqs = KVec::with_capacity(queues as usize, GFP_KERNEL)?;
        for vector in 0..queues {
            let log = match vector {
                0 => LOG_ASYNC_EQE,
                _ => LOG_COMPLETION_EQE,
            };
            let log = log.min(data.limits.max_eqe.ilog2() as u8).min(MAX_LOG_EQE);
            eqs.push(
                KBox::pin_init(EventQueue::new(data.pdev.as_ref(), log), GFP_KERNEL)?,
                GFP_KERNEL,
            )?;
        }
        // From here on, handlers find the queues.
        if !data.eqs.populate(eqs) {
            return Err(EBUSY);
        }
        let eqs = data.eqs.as_ref().ok_or(ENODEV)?;
        for (vector, eq) in eqs.iter().enumerate() {
            eq.create(&data.core, vector as u16)?;
        }
        data.core.cmd.use_events(true);
        *data.health.lock() = Some(Health::start(data.core.clone(), hca.dev.into())?);

        let node_desc = mad::node_description(data).inspect_err(|_| {
            dev_err!(data.pdev, "the firmware has no node description\n");
        })?;
        let version = data.limits.firmware_version;
        dev_info!(
            data.pdev,
            "firmware {}.{}.{}, {} port(s), {} completion vector(s)\n",
            (version >> 32) as u16,
            (version >> 16) as u16,
            version as u16,
            data.limits.ports,
            data.comp_vectors()
        );

        Ok(DeviceInfo {
            name: c"ochre_%d",
            node_guid: data.limits.node_guid,
            node_desc,
            ports: data.limits.ports.into(),
            comp_vectors: data.comp_vectors(),
            local_dma_lkey: None,
        })
    }

    fn stop(hca: Hca<'_, Self>) {
        let data = hca.data();

        // The timer is gone before the device is reset, which it would take for a fault.
        let health = data.health.lock().take();
        drop(health);
        data.core.stop();
    }

    fn irq(hca: Hca<'_, Self>, vector: u32) -> IrqOutcome {
        let Some(eq) = event_queue(&hca, vector) else {
            return IrqOutcome::None;
        };

        if eq.interrupt(|event| events::handle_atomic(hca, event)) {
            IrqOutcome::WakeThread
        } else {
            IrqOutcome::Handled
        }
    }

    fn irq_thread(hca: Hca<'_, Self>, vector: u32) {
        if let Some(eq) = event_queue(&hca, vector) {
            eq.thread(|event| events::handle(hca, event));
        }
    }
}

/// The event queue of a vector.
fn event_queue<'a>(data: &'a Data<'_>, vector: u32) -> Option<&'a EventQueue> {
    let eq = data.eqs.as_ref()?.get(vector as usize)?;

    Some(eq)
}
