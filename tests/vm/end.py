# SPDX-License-Identifier: GPL-2.0-or-later
"""One end of a case of wrong.py: a device with a QP under test and regions of memory.

Everything that goes in and out of its methods is plain, so that the end may as well be in another
machine: `Remote` passes the calls on, `serve` carries them out.
"""

import os
import socket
import time

from pyverbs.addr import AH, AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
import pyverbs.enums as e
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

from ends import (PATIENCE, PORT, REMOTE_RIGHTS, STATUS, Events, lid, listen, state_of, to_init, to_rtr,
                  to_rts, to_state)

# Requests that each queue of a QP takes.
DEPTH = 16
QKEY = 0x1234
OPCODES = {"SEND": e.IBV_WR_SEND, "WRITE": e.IBV_WR_RDMA_WRITE, "WRITE_IMM": e.IBV_WR_RDMA_WRITE_WITH_IMM,
           "READ": e.IBV_WR_RDMA_READ, "FETCH_ADD": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
           "CMP_SWAP": e.IBV_WR_ATOMIC_CMP_AND_SWP}
# Number of the partition that is not the default one.
PARTITION = 1


class Failure(Exception):
    """Something is not as it should be."""


def error_of(call):
    """Error number that a verb fails with; 0 where it does not."""
    try:
        call()
    except PyverbsRDMAError as error:
        return error.error_code
    return 0


class End:
    """A device, and what a case makes on it."""

    def __init__(self, device):
        self.context = Context(name=device)
        self.async_events = Events(self.context)
        self.pds = [PD(self.context), PD(self.context)]
        self.handles, self.regions, self.qps = [], {}, []
        self.qp = self.send_cq = self.recv_cq = None

    # Making things. A region is (address, key, length); its key is L_Key and R_Key.

    def fresh(self, kind="RC", rights=REMOTE_RIGHTS, init=True, pkey_index=0):
        """Another QP in INIT, or RESET, in place of everything before: its number and LID."""
        for qp in self.qps:
            qp.close()
        for thing in self.handles + list(self.regions.values()):
            thing.close()
        self.handles, self.regions, self.qps = [], {}, []
        self.events()
        self.send_cq, self.recv_cq = CQ(self.context, 64), CQ(self.context, 64)
        self._qp(kind)
        if init:
            self.to_init(rights, pkey_index)
        return self.address()

    def _qp(self, kind, **more):
        sizes = dict(dict(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=2, max_recv_sge=1), **more)
        attr = QPInitAttr(qp_type=getattr(e, "IBV_QPT_" + kind), scq=self.send_cq, rcq=self.recv_cq,
                          cap=QPCap(**sizes))
        self.qp, self.kind = QP(self.pds[0], attr), kind
        self.qps.append(self.qp)

    def small_cq(self, entries):
        """A QP on one CQ of so many entries in place of the QP: how many they are."""
        self.send_cq = self.recv_cq = CQ(self.context, entries)
        self._qp("RC")
        self.to_init()
        return self.send_cq.cqe

    def another(self, number, peer):
        """One more connected QP, which is not the one under test: its number."""
        under_test, kind = self.qp, self.kind
        self._qp("RC")
        self.to_init()
        self.connect(number, peer)
        number, self.qp, self.kind = self.qp.qp_num, under_test, kind
        return number

    def address(self):
        """QP number and LID."""
        return self.qp.qp_num, lid(self.context)

    def to_init(self, rights=REMOTE_RIGHTS, pkey_index=0):
        """RESET to INIT."""
        to_init(self.qp, rights, QKEY if self.kind == "UD" else None, pkey_index)

    def connect(self, number=None, peer=None, rts=True, reads=16, responses=16, timeout=18, retries=7,
                rnr_retries=7, second_pkey=False):
        """INIT to RTR, and to RTS."""
        reliable = self.kind == "RC"
        if self.kind == "UD":
            number = peer = None
        to_rtr(self.qp, number, peer, reliable, responses, self.second_pkey() if second_pkey else None)
        if rts:
            to_rts(self.qp, reliable, reads, timeout, retries, rnr_retries)

    def second_pkey(self):
        """Index of the P_Key of the second partition."""
        for index in range(8):
            if socket.ntohs(self.context.query_pkey(PORT, index)) & 0x7fff == PARTITION:
                return index
        raise Failure("the port is not in the second partition")

    def to(self, state, current=None):
        """Any other transition."""
        value = lambda name: name and getattr(e, "IBV_QPS_" + name)
        to_state(self.qp, value(state), value(current))

    def region(self, rights, length=1 << 14, other=False):
        """A region of random bytes, perhaps in the other protection domain."""
        region = MR(self.pds[other], length, rights)
        region.write(os.urandom(length), length)
        key = region.lkey
        if key != region.rkey:
            raise Failure("L_Key and R_Key differ")
        self.regions[key] = region
        return region.buf, key, length

    def gone_region(self, rights):
        """A region that is no more."""
        address, key, length = self.region(rights)
        self.regions.pop(key).close()
        return address, key, length

    def contents(self, region):
        """What stands in a region."""
        return self.regions[region[1]].read(region[2], 0)

    # Posting.

    def receive(self, wr_id, region, length=None):
        """Posts a receive to the start of a region, of its whole length where no other is given."""
        address, key, whole = region
        sge = SGE(address, whole if length is None else length, key)
        self.qp.post_recv(RecvWR(wr_id=wr_id, sg=[sge], num_sge=1))

    def _request(self, op, at, length, to=None, ud=None, wr_id=0, elements=1, inline=False, **_):
        flags = e.IBV_SEND_SIGNALED | (e.IBV_SEND_INLINE if inline else 0)
        request = SendWR(wr_id=wr_id, opcode=OPCODES[op], num_sge=elements, send_flags=flags,
                         sg=[SGE(at[0], length, at[1]) for _ in range(elements)])
        if self.kind == "UD" and ud:
            number, peer, qkey = ud
            handle = AH(self.pds[0], attr=AHAttr(dlid=peer, port_num=PORT))
            self.handles.append(handle)
            request.set_wr_ud(handle, number, qkey)
        elif op in ("FETCH_ADD", "CMP_SWAP"):
            request.set_wr_atomic(to[1], to[0], 1, 2)
        elif op != "SEND":
            request.set_wr_rdma(to[1], to[0])
        return request

    def post(self, requests):
        """Posts requests, by one call."""
        requests = [self._request(**request) for request in requests]
        for request, following in zip(requests, requests[1:]):
            request.next_wr = following
        if requests:
            self.qp.post_send(requests[0])

    # What is tried, and refused by an error number.

    def try_post(self, request):
        """Posts a request."""
        return error_of(lambda: self.qp.post_send(self._request(**request)))

    def try_receive(self, region):
        """Posts a receive."""
        return error_of(lambda: self.receive(0, region))

    def try_region(self, address, length):
        """Registers memory, of a region of its own where no address is given."""
        address = self.region(0)[0] if address is None else address
        return error_of(lambda: MR(self.pds[0], length, e.IBV_ACCESS_LOCAL_WRITE, address=address))

    def try_cq(self, entries):
        """Makes a CQ."""
        return error_of(lambda: CQ(self.context, entries))

    def try_qp(self, **sizes):
        """Makes a QP."""
        return error_of(lambda: self._qp("RC", **sizes))

    def try_to_init(self, **more):
        """RESET to INIT."""
        return error_of(lambda: self.to_init(**more))

    def try_to(self, state):
        """Another transition."""
        return error_of(lambda: self.to(state))

    # What came of it.

    @staticmethod
    def _poll(cq, count, patience=PATIENCE):
        found, end = [], time.monotonic() + patience
        while len(found) < count:
            _, entries = cq.poll(count - len(found))
            found += [(entry.wr_id, STATUS.get(entry.status, entry.status)) for entry in entries]
            if not entries:
                if time.monotonic() > end:
                    break
                time.sleep(0.001)
        return found

    def sends(self, count):
        """The next completions of sends, as (wr_id, status)."""
        return self._poll(self.send_cq, count)

    def receives(self, count):
        """The next completions of receives."""
        return self._poll(self.recv_cq, count)

    def quiet(self):
        """Completions that are there by now."""
        return self._poll(self.send_cq, DEPTH, 0) + self._poll(self.recv_cq, DEPTH, 0)

    def state(self):
        """State that the device has the QP in."""
        return state_of(self.qp)

    def events(self, patience=False, count=1):
        """Events of QPs and CQs; with patience waits until there are so many."""
        found = self.async_events.take()
        end = time.monotonic() + PATIENCE
        while patience and len(found) < count and time.monotonic() < end:
            found += self.async_events.take(end - time.monotonic())
        return found


class Remote:
    """An end in another machine."""

    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.connection.send((name, args, kwargs))
            well, value = self.connection.recv()
            if not well:
                raise Failure(f"{name} at the peer: {value}")
            return value
        return call

    def end(self):
        """The other program may end."""
        self.connection.send(None)


def serve(device, port):
    """Is the end that the other machine calls."""
    end = End(device)
    connection = listen(port)
    while (call := connection.recv()) is not None:
        name, args, kwargs = call
        try:
            connection.send((True, getattr(end, name)(*args, **kwargs)))
        except (Failure, PyverbsRDMAError) as error:
            connection.send((False, str(error)))
