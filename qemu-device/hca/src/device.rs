// SPDX-License-Identifier: GPL-2.0-or-later
//! The device's work: rounds over its ports, timers and QPs.

use std::collections::VecDeque;
use std::time::Duration;

use ochre_hw::cmd::port::Counter;
use ochre_hw::doorbell;
use ochre_hw::eqe::EventType;
use ochre_hw::verbs::QpState;
use ochre_link::{Cable, PhysState, Port, PortEvent};
use ochre_wire::mad::{Mad, MAD_LEN};
use ochre_wire::{Lid, Mtu, Psn, Vl};

use crate::cmd::CommandQueue;
use crate::config::Config;
use crate::ctx::{BadKey, Ctx};
use crate::dispatch::{deliver_mad, dispatch, Outcome, SpecialQps};
use crate::link::LinkTx;
use crate::mgmt::{Address, Mgmt, Outcome as Answer, Outgoing, Source};
use crate::port::PortContext;
use crate::qp::{self, Progress, Qp};
use crate::seams::{Dma, SendError, Transmit};
use crate::table::Table;
use crate::Time;

/// First number of a QP; 0 and 1 name the special QPs on the wire.
const FIRST_QP: u32 = 0x10;
/// Packets that one QP or one port handles before the next has its turn.
const TURN: u32 = 16;
/// Deadlines that one round sees to.
const TIMERS: u32 = 64;
/// How long what came in a pause may take to be looked at, before time-outs are.
const LATE: Duration = Duration::from_millis(20);
/// MADs of the firmware that wait to be sent; more are lost, as on a full VL15 buffer.
const MADS: usize = 128;

/// The device without its registers.
pub(crate) struct Device<D, C: Cable> {
    pub(crate) config: Config,
    pub(crate) ctx: Ctx<D>,
    pub(crate) qps: Table<Qp>,
    pub(crate) links: Vec<Port<C>>,
    pub(crate) mgmt: Mgmt,
    pub(crate) special: Vec<SpecialQps>,
    /// There while the device is enabled.
    pub(crate) commands: Option<CommandQueue>,
    mads: VecDeque<Box<Outgoing>>,
    /// The machine stands still, see [`Device::set_paused`].
    paused: bool,
    /// A pause is over, and what came in it has not all been looked at; not true after this time.
    late: Option<Time>,
}

/// Takes a link down and forgets what a subnet manager has set.
fn power_on<C: Cable>(link: &mut Port<C>) {
    link.set_down_default(PhysState::Polling);
    link.set_phys_state(PhysState::Polling);
    link.set_lid(Lid::RESERVED, 0);
    link.set_mtu(Mtu::Mtu256);
    link.set_sl2vl([Vl::VL0; 16]);
    link.set_operational_vls(link.config().data_vls);
}

impl<D: Dma, C: Cable> Device<D, C> {
    pub(crate) fn new(config: Config, dma: D, mut links: Vec<Port<C>>) -> Self {
        let mut ports = Self::power_on_ports(&config, links.len());
        Device {
            mgmt: Mgmt::new(config.node(), &mut ports, &mut links),
            ctx: Ctx::new(dma, config.limits, ports),
            qps: Table::new(FIRST_QP, config.limits.qps),
            special: vec![SpecialQps::default(); links.len()],
            commands: None,
            mads: VecDeque::new(),
            paused: false,
            late: None,
            links,
            config,
        }
    }

    fn power_on_ports(config: &Config, count: usize) -> Vec<PortContext> {
        (1..=count as u8)
            .map(|n| {
                PortContext::new(
                    n,
                    config.port_guid(n),
                    config.pkeys.into(),
                    config.gids.into(),
                )
            })
            .collect()
    }

    /// Every object is gone, every port is as after power-on and trains anew.
    pub(crate) fn reset(&mut self) {
        self.commands = None;
        self.mads.clear();
        self.qps = Table::new(FIRST_QP, self.config.limits.qps);
        self.special.fill(SpecialQps::default());
        for link in &mut self.links {
            power_on(link);
            while link.poll_event().is_some() {}
        }
        let mut ports = Self::power_on_ports(&self.config, self.links.len());
        self.mgmt = Mgmt::new(self.config.node(), &mut ports, &mut self.links);
        self.ctx.reset(ports);
    }

    /// Whether a QP may be worked on: the device is enabled and has not stopped.
    fn runs(&self) -> bool {
        self.commands.is_some() && self.ctx.fatal.is_none()
    }

    /// A doorbell: `offset` in the doorbell BAR.
    pub(crate) fn doorbell(&mut self, offset: u64, number: u32) {
        if !self.runs() {
            return;
        }
        self.ctx.count(1, Counter::Doorbells);
        let page = offset / doorbell::PAGE_SIZE;
        let Some(qp) = self.qps.get_mut(number) else {
            return;
        };
        if u64::from(qp.doorbell_page) != page {
            return;
        }
        let looks = match offset % doorbell::PAGE_SIZE {
            doorbell::SEND => true,
            // Receives are looked at when a packet comes, except to be flushed.
            doorbell::RECV => qp.state == QpState::Error,
            _ => false,
        };
        if looks {
            self.ctx.sched.schedule(number, &mut qp.sched);
        }
    }

    /// While the machine stands still, the device touches no memory and its QPs rest. Its links stay up,
    /// and the agents of the firmware answer on lane 15, so that a subnet manager keeps it. What arrives on
    /// data lanes waits in the receive buffers and returns no credits.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        if self.paused && !paused {
            self.late = Some(self.ctx.now + LATE);
        }
        self.paused = paused;
        let lanes = if paused { 1 << 15 } else { u16::MAX };
        for link in &mut self.links {
            link.set_rx_lanes(lanes);
        }
    }

    /// The work of a device whose machine stands still; whether there is more.
    fn rest(&mut self, budget: u32) -> bool {
        let mut budget = budget;
        self.poll_links();
        loop {
            self.send_mads();
            let received = self.receive(&mut budget);
            for link in &mut self.links {
                link.flush();
            }
            if !received || budget == 0 {
                return received;
            }
        }
    }

    /// Works until there is nothing to do or `budget` packets are handled; whether there is more.
    pub(crate) fn run(&mut self, budget: u32) -> bool {
        if self.paused {
            return self.rest(budget);
        }
        let mut budget = budget;
        self.poll_links();
        loop {
            // Answers that came in a pause are no less in time than those that came before it.
            if self.late.is_none() {
                self.expire();
            }
            self.send_mads();
            self.run_qps(&mut budget);
            let received = self.receive(&mut budget);
            let (now, more) = (self.ctx.now, received || budget == 0);
            self.late = self.late.filter(|&end| more && now < end);
            self.break_qps();
            self.wake_lanes();
            self.ctx.look_at_arms();
            for link in &mut self.links {
                link.flush();
            }
            if budget == 0 {
                return true;
            }
            // What came of this turn is done: what else is due has its time, or makes a QP ready. The
            // QPs of a device that has stopped stay ready, and nobody serves them.
            if !received && (self.ctx.sched.ready() == 0 || !self.runs()) {
                return false;
            }
        }
    }

    /// Lets the links do what is due, and tells what happened on them.
    fn poll_links(&mut self) {
        for link in &mut self.links {
            link.poll(self.ctx.now);
        }
        self.after_mad();
    }

    /// Hands on what happened on the links and what the agents have to tell the driver.
    pub(crate) fn after_mad(&mut self) {
        for (n, link) in self.links.iter_mut().enumerate() {
            while let Some(event) = link.poll_event() {
                let port = n as u8 + 1;
                self.mgmt.link_event(&mut self.ctx.ports, port, &event);
                // Who waits for credits of a link that is gone waits for nothing.
                if matches!(event, PortEvent::State { .. }) {
                    for vl in 0..16 {
                        self.ctx.sched.credits(port, Vl::new(vl));
                    }
                }
            }
        }
        // Software hears of it when it runs.
        if self.paused {
            return;
        }
        while let Some((port, event)) = self.mgmt.take_event() {
            self.ctx.event(event, port, 0);
        }
    }

    /// Calls QPs whose deadline has come.
    fn expire(&mut self) {
        let now = self.ctx.now;
        for _ in 0..TIMERS {
            let Some(number) = self.ctx.sched.next_expired(now) else {
                return;
            };
            let Some(qp) = self.qps.get_mut(number) else {
                continue;
            };
            if self.ctx.sched.expired(now, number, &mut qp.sched) && self.ctx.fatal.is_none() {
                qp::on_timer(qp, &mut self.ctx);
            }
        }
    }

    /// One turn for each QP that is ready now.
    fn run_qps(&mut self, budget: &mut u32) {
        if !self.runs() {
            return;
        }
        for _ in 0..self.ctx.sched.ready() {
            if *budget == 0 {
                return;
            }
            let Some(next) = self.ctx.sched.next_ready() else {
                return;
            };
            let number = next.qp;
            let Some(qp) = self.qps.get_mut(number) else {
                continue;
            };
            if !qp.sched.take(next) {
                continue;
            }
            let index = usize::from(qp.port.max(1)) - 1;
            let Some(link) = self.links.get_mut(index) else {
                continue;
            };
            let mut tx = LinkTx::new(link, self.ctx.groups.attachments() > 0);
            let turn = TURN.min(*budget);
            let mut left = turn;
            let progress = qp::run(qp, &mut self.ctx, &mut tx, &mut left);
            // A turn without a packet counts too, so that the round ends.
            *budget = budget.saturating_sub(turn.saturating_sub(left).max(1));
            if let Progress::NoCredit(vl) = progress {
                let port = qp.port;
                self.ctx
                    .sched
                    .wait_for_credits(number, &mut qp.sched, port, vl);
                continue;
            }
            if progress == Progress::More {
                self.ctx.sched.schedule(number, &mut qp.sched);
            }
            // It has sent after all, or has nothing to send any more.
            if qp.sched.waits() {
                let lane = self.ctx.sched.stop_waiting(number, &mut qp.sched);
                self.nobody_waits(lane);
            }
        }
    }

    /// The last QP that waited for credits of a lane waits no longer.
    pub(crate) fn nobody_waits(&mut self, lane: Option<(u8, Vl)>) {
        let Some((port, vl)) = lane else {
            return;
        };
        if let Some(link) = self.links.get_mut(usize::from(port).wrapping_sub(1)) {
            link.forget_stall(1 << vl.get());
        }
    }

    /// One turn for each port's receiver: whether a packet was there.
    fn receive(&mut self, budget: &mut u32) -> bool {
        let mut any = false;
        for n in 0..self.links.len() {
            for _ in 0..TURN.min(*budget) {
                let Some(link) = self.links.get_mut(n) else {
                    break;
                };
                let Some(packet) = link.rx() else {
                    break;
                };
                any = true;
                *budget -= 1;
                self.ctx.from_peer = !packet.loopback;
                self.packet(n, packet.icrc_ok);
            }
        }
        self.ctx.from_peer = false;
        any
    }

    /// Handles the current packet of the link at index `n`.
    fn packet(&mut self, n: usize, icrc_ok: bool) {
        let Some(link) = self.links.get_mut(n) else {
            return;
        };
        let port = n as u8 + 1;
        if self.ctx.fatal.is_none() {
            let bytes = link.rx_bytes();
            let outcome = dispatch(&mut self.qps, &mut self.ctx, port, bytes, icrc_ok);
            if let Outcome::Mad(received) = outcome {
                self.mad(n, &received.0, &received.1);
            }
            if let Some(violation) = self.ctx.violation.take() {
                let (now, ports) = (self.ctx.now, &mut self.ctx.ports);
                match violation.bad {
                    BadKey::Pkey => self.mgmt.bad_pkey(now, ports, port, &violation.packet),
                    BadKey::Qkey => self.mgmt.bad_qkey(now, ports, port, &violation.packet),
                }
            }
        }
        if let Some(link) = self.links.get_mut(n) {
            link.rx_done();
        }
    }

    /// A MAD came to the port at index `n`, in the current packet of its link.
    fn mad(&mut self, n: usize, address: &Address, mad: &Mad) {
        let port = n as u8 + 1;
        let answer = self.mgmt.handle(
            self.ctx.now,
            &mut self.ctx.ports,
            &mut self.links,
            port,
            mad,
            &Source::Wire(*address),
        );
        match answer {
            Answer::Reply(reply) if self.mads.len() < MADS => {
                let mapping = self.ctx.ports[n].sl_to_vl;
                self.mads.push_back(Box::new(Outgoing {
                    port,
                    build: address.reply(&mapping, Psn::new(0)),
                    mad: reply,
                }));
            }
            // Nobody is there to take it, and lane 15 may lose it.
            Answer::PassToHost if self.paused => {}
            Answer::PassToHost => {
                let (special, bytes) = (self.special[n], self.links[n].rx_bytes());
                deliver_mad(&mut self.qps, &mut self.ctx, special, port, bytes);
            }
            Answer::Reply(_) | Answer::Consumed | Answer::Drop => {}
        }
        self.after_mad();
    }

    /// Sends what the agents have to say.
    fn send_mads(&mut self) {
        self.send_waiting_mads();
        if self.mads.is_empty() {
            // A port may go down now that its answer has left.
            while let Some(trap) = self
                .mgmt
                .poll(self.ctx.now, &self.ctx.ports, &mut self.links)
            {
                self.mads.push_back(Box::new(trap));
            }
            self.send_waiting_mads();
        }
    }

    fn send_waiting_mads(&mut self) {
        for _ in 0..self.mads.len() {
            let Some(mad) = self.mads.pop_front() else {
                return;
            };
            let Some(link) = self.links.get_mut(usize::from(mad.port).wrapping_sub(1)) else {
                continue;
            };
            let sent = LinkTx::new(link, false).send(&mad.build, MAD_LEN, |out| {
                out.copy_from_slice(&mad.mad.0);
                Ok::<(), ()>(())
            });
            if sent == Err(SendError::NoCredit) {
                self.mads.push_back(mad);
            } else {
                link.flush();
            }
        }
    }

    /// Moves the QPs of broken CQs to the error state.
    fn break_qps(&mut self) {
        while let Some(cq) = self.ctx.cqs_broken.pop() {
            let Some(queue) = self.ctx.cqs.get(cq) else {
                continue;
            };
            let members: Vec<u32> = queue.qps.iter().copied().collect();
            for number in members {
                if let Some(qp) = self.qps.get_mut(number) {
                    qp::fail(qp, &mut self.ctx, Some(EventType::QpFatal));
                }
            }
        }
    }

    /// QPs that waited for credits or room are ready again.
    fn wake_lanes(&mut self) {
        for (n, link) in self.links.iter_mut().enumerate() {
            let mut lanes = link.take_unstalled();
            while lanes != 0 {
                let vl = lanes.trailing_zeros();
                lanes &= lanes - 1;
                self.ctx.sched.credits(n as u8 + 1, Vl::new(vl as u8));
            }
        }
    }

    /// When something is due even if nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let links = self.links.iter().filter_map(Port::next_deadline).min();
        let mut next = Time::earliest(links, self.mgmt.next_deadline(&self.ctx.ports));
        if self.runs() && !self.paused {
            next = Time::earliest(next, self.ctx.sched.next_deadline());
            next = Time::earliest(next, self.ctx.next_held_event());
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::sched::SchedEntry;

    #[test]
    fn an_idle_qp_is_small() {
        // Besides its pages in the guest's memory it has nothing else.
        let size = size_of::<Qp>();
        assert!(size < 2048, "{size} bytes");
    }

    #[test]
    fn a_device_that_has_stopped_rests_though_qps_are_ready() {
        let links: Vec<Port<ochre_link::MemCable>> = Vec::new();
        let mut device = Device::new(Config::default(), Memory::new(4096), links);
        device
            .ctx
            .sched
            .schedule(FIRST_QP, &mut SchedEntry::default());
        assert!(!device.run(8));
        assert_eq!(device.ctx.sched.ready(), 1);
    }
}
