// SPDX-License-Identifier: GPL-2.0-or-later

//! The verbs, handed to the modules of their objects.

use crate::{
    abi,
    ah,
    cmd::{
        SetNodeDescription,
        Wait, //
    },
    counters,
    cq,
    device::Data,
    hw::cmd::device as hw_device,
    mad,
    mr,
    pd,
    port,
    post,
    qp,
    rdma::{
        Ah,
        AhAttr,
        AtomicCap,
        CounterDesc,
        Cq,
        CqInitAttr,
        DeviceAttr,
        Hca,
        Mad,
        MadReply,
        ModifyPort,
        Mr,
        NewUContext,
        Operations,
        Pd,
        PortAttr,
        PortImmutable,
        Qp,
        QpAttr,
        QpInitAttr,
        QpQuery,
        RecvWrs,
        SendWrs,
        UContext,
        Udata,
        WcSink, //
    },
    ucontext,
    Ochre, //
};
use kernel::prelude::*;

#[vtable]
impl Operations for Ochre {
    type Data<'a> = Data<'a>;
    type UContext = ucontext::UContext;
    type Pd = pd::Pd;
    type Ah = ah::Ah;
    type Cq = cq::Cq;
    type Qp = qp::Qp;
    type Mr = mr::Mr;

    const ABI_VERSION: u32 = abi::UVERBS_ABI_VERSION;
    const PORT_COUNTERS: &'static [CounterDesc] = &counters::PORT_COUNTERS;

    fn query_device(hca: Hca<'_, Self>) -> Result<DeviceAttr> {
        let limits = &hca.limits;

        Ok(DeviceAttr {
            fw_ver: limits.firmware_version,
            sys_image_guid: limits.system_image_guid,
            max_mr_size: limits.max_mr_size,
            page_size_cap: limits.page_sizes,
            vendor_id: limits.vendor_id,
            vendor_part_id: limits.part_id,
            hw_ver: limits.hw_version,
            max_qp: limits.max_qp,
            max_qp_wr: limits.max_qp_wr,
            device_cap_flags: DeviceAttr::CAP_BAD_PKEY_CNTR
                | DeviceAttr::CAP_BAD_QKEY_CNTR
                | DeviceAttr::CAP_CURR_QP_STATE_MOD
                | DeviceAttr::CAP_PORT_ACTIVE_EVENT
                | DeviceAttr::CAP_SYS_IMAGE_GUID
                | DeviceAttr::CAP_RC_RNR_NAK_GEN,
            max_send_sge: limits.max_sge,
            max_recv_sge: limits.max_sge,
            max_sge_rd: limits.max_sge,
            max_cq: limits.max_cq,
            max_cqe: limits.max_cqe,
            max_mr: limits.max_mr,
            max_pd: limits.max_pd,
            max_qp_rd_atom: limits.max_dest_rd_atomic,
            max_res_rd_atom: limits.max_dest_rd_atomic.saturating_mul(limits.max_qp),
            max_qp_init_rd_atom: limits.max_rd_atomic,
            atomic_cap: AtomicCap::Hca,
            max_mcast_grp: limits.max_mcast_groups,
            max_mcast_qp_attach: limits.max_mcast_qps,
            max_total_mcast_qp_attach: limits.max_mcast_groups.saturating_mul(limits.max_mcast_qps),
            max_ah: limits.max_ah,
            max_pkeys: limits.pkeys,
            local_ca_ack_delay: limits.ack_delay,
            timestamp_mask: u64::MAX,
            hca_core_clock: limits.clock_khz.into(),
            max_cq_moderation_count: u16::MAX,
            max_cq_moderation_period: u16::MAX,
            ..DeviceAttr::default()
        })
    }

    fn query_port(hca: Hca<'_, Self>, port: u32) -> Result<PortAttr> {
        port::query(&hca, port)
    }

    fn port_immutable(hca: Hca<'_, Self>, port: u32) -> Result<PortImmutable> {
        port::immutable(&hca, port)
    }

    fn query_gid(hca: Hca<'_, Self>, port: u32, index: u32) -> Result<[u8; 16]> {
        port::gid(&hca, port, index)
    }

    fn query_pkey(hca: Hca<'_, Self>, port: u32, index: u16) -> Result<u16> {
        port::pkey(&hca, port, index)
    }

    fn fw_version(hca: Hca<'_, Self>, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        let version = hca.limits.firmware_version;

        write!(
            out,
            "{}.{}.{}",
            (version >> 32) as u16,
            (version >> 16) as u16,
            version as u16
        )
    }

    fn modify_node_desc(hca: Hca<'_, Self>, desc: &[u8; 64]) -> Result {
        let input = hw_device::SetNodeDescription { description: *desc };

        hca.command::<SetNodeDescription>(input, Wait::Sleep)
    }

    fn modify_port(hca: Hca<'_, Self>, port: u32, change: &ModifyPort) -> Result {
        port::modify(&hca, port, change)
    }

    fn process_mad(
        hca: Hca<'_, Self>,
        port: u32,
        mad: &Mad<'_>,
        reply: &mut [u8; 256],
    ) -> Result<MadReply> {
        mad::process(&hca, port, mad, reply)
    }

    fn port_counters(hca: Hca<'_, Self>, port: u32, values: &mut [u64]) -> Result {
        counters::read(&hca, port, values)
    }

    fn alloc_ucontext(
        hca: Hca<'_, Self>,
        context: &mut NewUContext<'_, Self>,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::UContext, Error> {
        ucontext::alloc(&hca, context, udata)
    }

    fn dealloc_ucontext(hca: Hca<'_, Self>, context: &UContext<Self>) {
        ucontext::dealloc(&hca, context);
    }

    fn alloc_pd(hca: Hca<'_, Self>, udata: &Udata<'_, Self>) -> impl PinInit<Self::Pd, Error> {
        pd::alloc(&hca, udata)
    }

    fn dealloc_pd(hca: Hca<'_, Self>, pd: &Pd<Self>) {
        pd::dealloc(&hca, pd);
    }

    fn create_ah(
        hca: Hca<'_, Self>,
        pd: &Pd<Self>,
        attr: &AhAttr,
        sleepable: bool,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Ah, Error> {
        ah::create(&hca, pd, attr, sleepable, udata)
    }

    fn destroy_ah(hca: Hca<'_, Self>, ah: &Ah<Self>, sleepable: bool) {
        ah::destroy(&hca, ah, sleepable);
    }

    fn query_ah(_hca: Hca<'_, Self>, ah: &Ah<Self>) -> Result<AhAttr> {
        Ok(*ah.attr())
    }

    fn create_cq(
        hca: Hca<'_, Self>,
        attr: &CqInitAttr,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Cq, Error> {
        cq::create(hca, attr, udata)
    }

    fn destroy_cq(hca: Hca<'_, Self>, cq: &Cq<Self>) {
        cq::destroy(&hca, cq);
    }

    fn modify_cq(hca: Hca<'_, Self>, cq: &Cq<Self>, count: u16, period: u16) -> Result {
        cq::modify(&hca, cq, count, period)
    }

    fn poll_cq(hca: Hca<'_, Self>, cq: &Cq<Self>, out: &mut WcSink<'_, Self>) -> Result {
        cq.kernel()?.poll(hca, out)
    }

    fn req_notify_cq(_hca: Hca<'_, Self>, cq: &Cq<Self>, solicited_only: bool) -> Result<bool> {
        cq.kernel()?.arm(solicited_only)
    }

    fn create_qp(
        hca: Hca<'_, Self>,
        pd: &Pd<Self>,
        attr: &mut QpInitAttr<'_, Self>,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Qp, Error> {
        qp::create(hca, pd, attr, udata)
    }

    fn modify_qp(
        hca: Hca<'_, Self>,
        qp: &Qp<Self>,
        attr: &QpAttr,
        udata: &Udata<'_, Self>,
    ) -> Result {
        qp::modify(&hca, qp, attr, udata)
    }

    fn query_qp(hca: Hca<'_, Self>, qp: &Qp<Self>) -> Result<QpQuery> {
        qp::query(&hca, qp)
    }

    fn destroy_qp(hca: Hca<'_, Self>, qp: &Qp<Self>) {
        qp::destroy(&hca, qp);
    }

    fn post_send(hca: Hca<'_, Self>, qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result {
        post::send(hca, qp, wrs)
    }

    fn post_recv(hca: Hca<'_, Self>, qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        post::recv(hca, qp, wrs)
    }

    fn attach_mcast(hca: Hca<'_, Self>, qp: &Qp<Self>, gid: &[u8; 16], lid: u16) -> Result {
        qp::attach_mcast(&hca, qp, gid, lid)
    }

    fn detach_mcast(hca: Hca<'_, Self>, qp: &Qp<Self>, gid: &[u8; 16], lid: u16) -> Result {
        qp::detach_mcast(&hca, qp, gid, lid)
    }

    fn get_dma_mr(hca: Hca<'_, Self>, pd: &Pd<Self>, access: u32) -> impl PinInit<Self::Mr, Error> {
        mr::dma(&hca, pd, access)
    }

    fn reg_user_mr(
        hca: Hca<'_, Self>,
        pd: &Pd<Self>,
        start: u64,
        length: u64,
        virt_addr: u64,
        access: u32,
        udata: &Udata<'_, Self>,
    ) -> impl PinInit<Self::Mr, Error> {
        mr::user(
            hca,
            pd,
            &mr::UserRegion {
                start,
                length,
                virt_addr,
                access,
            },
            udata,
        )
    }

    fn dereg_mr(hca: Hca<'_, Self>, mr: &Mr<Self>) {
        mr::dereg(&hca, mr);
    }
}
