# SPDX-License-Identifier: GPL-2.0-or-later
"""What the Python programs of these tests share: QPs, their states, and talk between two machines."""

import multiprocessing.connection
import os
import select
import time

from pyverbs.addr import AHAttr
import pyverbs.enums as e
from pyverbs.qp import QPAttr

PORT = 1
# Patience of everything that should happen soon, seconds.
PATIENCE = 120
ALL_RIGHTS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
              | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC)
REMOTE_RIGHTS = ALL_RIGHTS & ~e.IBV_ACCESS_LOCAL_WRITE


def name_of(value, prefix):
    """The constant of the verbs that begins with `prefix` and has this value, without the prefix."""
    for name in dir(e):
        if name.startswith(prefix) and getattr(e, name) == value:
            return name[len(prefix):]
    return str(value)


STATUS = {getattr(e, "IBV_WC_" + name): name for name in (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "BAD_RESP_ERR",
    "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR", "GENERAL_ERR")}


def lid(context):
    """LID of the device's port."""
    return context.query_port(PORT).lid


def to_init(qp, rights=REMOTE_RIGHTS, qkey=None, pkey_index=0):
    """RESET to INIT; with a Q_Key for a datagram QP."""
    attr = QPAttr(port_num=PORT)
    attr.qp_state = e.IBV_QPS_INIT
    attr.pkey_index = pkey_index
    mask = e.IBV_QP_STATE | e.IBV_QP_PORT | e.IBV_QP_PKEY_INDEX
    if qkey is None:
        attr.qp_access_flags = rights
        mask |= e.IBV_QP_ACCESS_FLAGS
    else:
        attr.qkey = qkey
        mask |= e.IBV_QP_QKEY
    qp.modify(attr, mask)


def to_rtr(qp, number=None, dlid=None, reliable=True, reads=16, pkey_index=None):
    """INIT to RTR; with the peer's QP number and LID for a connected QP."""
    attr = QPAttr(port_num=PORT)
    attr.qp_state = e.IBV_QPS_RTR
    mask = e.IBV_QP_STATE
    if number is not None:
        attr.ah_attr = AHAttr(dlid=dlid, port_num=PORT)
        attr.path_mtu = e.IBV_MTU_4096
        attr.dest_qp_num = number
        attr.rq_psn = 0
        mask |= e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN
        if reliable:
            attr.max_dest_rd_atomic = reads
            # 0.64 ms.
            attr.min_rnr_timer = 12
            mask |= e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER
    if pkey_index is not None:
        attr.pkey_index = pkey_index
        mask |= e.IBV_QP_PKEY_INDEX
    qp.modify(attr, mask)


def to_rts(qp, reliable=True, reads=16, timeout=18, retries=7, rnr_retries=7):
    """RTR to RTS. A `timeout` of 18 is one second."""
    attr = QPAttr(port_num=PORT)
    attr.qp_state = e.IBV_QPS_RTS
    attr.sq_psn = 0
    mask = e.IBV_QP_STATE | e.IBV_QP_SQ_PSN
    if reliable:
        attr.timeout = timeout
        attr.retry_cnt = retries
        attr.rnr_retry = rnr_retries
        attr.max_rd_atomic = reads
        mask |= (e.IBV_QP_TIMEOUT | e.IBV_QP_RETRY_CNT | e.IBV_QP_RNR_RETRY
                 | e.IBV_QP_MAX_QP_RD_ATOMIC)
    qp.modify(attr, mask)


def to_state(qp, state, current=None):
    """A transition that takes no attributes, but perhaps the state that the QP must be in."""
    attr = QPAttr(port_num=PORT)
    attr.qp_state = state
    mask = e.IBV_QP_STATE
    if current is not None:
        attr.cur_qp_state = current
        mask |= e.IBV_QP_CUR_STATE
    qp.modify(attr, mask)


def state_of(qp):
    """Name of the state that the device has a QP in."""
    attr, _ = qp.query(e.IBV_QP_STATE)
    return name_of(attr.qp_state, "IBV_QPS_")


class Events:
    """The asynchronous events of a program's only context."""

    def __init__(self, context):
        self.context = context
        self.poll = select.poll()
        self.poll.register(self._file(), select.POLLIN)

    @staticmethod
    def _file():
        for fd in os.listdir("/proc/self/fd"):
            try:
                if "infinibandevent" in os.readlink(f"/proc/self/fd/{fd}"):
                    return int(fd)
            except OSError:
                # The one that lists the others is closed by now.
                pass
        raise RuntimeError("the context has no file for its events")

    def take(self, patience=0):
        """Names of the events of QPs and CQs; waits for the first one at most `patience` seconds."""
        names = []
        end = time.monotonic() + patience
        while True:
            left = 0 if names else max(0.0, end - time.monotonic())
            if not self.poll.poll(left * 1000):
                return names
            event = self.context.get_async_event()
            name = name_of(event.event_type, "IBV_EVENT_")
            event.ack()
            # Ports have events of their own, when the subnet manager looks at them.
            if name.startswith(("QP_", "CQ_", "COMM_", "SQ_")):
                names.append(name)


def listen(port):
    """Waits for the other machine's program: gives the connection."""
    with multiprocessing.connection.Listener(("0.0.0.0", port)) as listener:
        return listener.accept()


def connect(host, port):
    """Connects to the other machine's program, which may not be there yet."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return multiprocessing.connection.Client((host, port))
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
