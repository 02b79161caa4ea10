#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that is in no way to blame: two of them exchange checked data until the first is told to end.

    bystander.py DEVICE FILE         waits for the other one
    bystander.py DEVICE FILE HOST    talks to it

Both answer each message with one of their own, by SEND and by RDMA WRITE with immediate, in random
lengths. The number of messages that were right stands in FILE. SIGTERM ends the one that was given a
HOST, and that ends the other. Anything wrong is an exit code.
"""

import os
import random
import signal
import sys
import time

from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
import pyverbs.enums as e
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

from ends import ALL_RIGHTS, STATUS, Events, connect, lid, listen, to_init, to_rtr, to_rts

TCP_PORT = 18600
# Longest message, bytes: several packets of the path.
LONGEST = 24 << 10
# A message of this length is the last one.
LAST = 1
# Pause between messages, seconds: others want to have the processors too.
PAUSE = 0.004


def contents(number, sender):
    """Message `number` of one of the two."""
    rng = random.Random(number * 2 + sender)
    return rng.randbytes(rng.choice((2, 64, 4096, 4097, rng.randrange(2, LONGEST))))


class Bystander:
    def __init__(self, device, path, host):
        self.path, self.number = path, 0
        self.sent, self.received = [], []
        self.first = host is not None
        self.context = Context(name=device)
        self.events = Events(self.context)
        self.pd = PD(self.context)
        self.channel = CompChannel(self.context)
        self.cq = CQ(self.context, 16, None, self.channel)
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))
        self.out = MR(self.pd, LONGEST, e.IBV_ACCESS_LOCAL_WRITE)
        self.into = MR(self.pd, LONGEST, ALL_RIGHTS)
        self.landing = MR(self.pd, LONGEST, ALL_RIGHTS)
        to_init(self.qp)
        self.receive()
        link = connect(host, TCP_PORT) if host else listen(TCP_PORT)
        link.send((self.qp.qp_num, lid(self.context), self.landing.buf, self.landing.rkey))
        number, peer, self.remote, self.key = link.recv()
        to_rtr(self.qp, number, peer)
        to_rts(self.qp)
        # Both are ready before the first message.
        link.send("ready")
        link.recv()

    def receive(self):
        self.qp.post_recv(RecvWR(sg=[SGE(self.into.buf, LONGEST, self.into.lkey)], num_sge=1))

    def wait(self, done):
        """Waits for a completion in this list, and takes it out; all must be good."""
        while not done:
            self.cq.req_notify()
            count, entries = self.cq.poll(16)
            if count == 0:
                self.channel.get_cq_event(self.cq)
                self.cq.ack_events(1)
            for entry in entries:
                if entry.status != e.IBV_WC_SUCCESS:
                    sys.exit(f"message {self.number}: {STATUS[entry.status]}")
                receive = entry.opcode in (e.IBV_WC_RECV, e.IBV_WC_RECV_RDMA_WITH_IMM)
                (self.received if receive else self.sent).append(entry)
        return done.pop(0)

    def send(self, data):
        self.out.write(data, len(data))
        write = self.number % 2 == 1
        opcode = e.IBV_WR_RDMA_WRITE_WITH_IMM if write else e.IBV_WR_SEND_WITH_IMM
        request = SendWR(sg=[SGE(self.out.buf, len(data), self.out.lkey)], num_sge=1, opcode=opcode,
                         send_flags=e.IBV_SEND_SIGNALED, imm_data=self.number & 0xffffffff)
        if write:
            request.set_wr_rdma(self.key, self.remote)
        self.qp.post_send(request)

    def check(self, entry):
        """Whether the message just received is right; false where it is the last one."""
        if entry.byte_len == LAST:
            return False
        data = contents(self.number, not self.first)
        written = entry.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM
        place = self.landing if written else self.into
        if entry.byte_len != len(data) or place.read(len(data), 0) != data:
            sys.exit(f"message {self.number}, {entry.byte_len} bytes: wrong contents")
        return True

    def note(self):
        """Another message was right."""
        self.number += 1
        if self.number % 16 == 1:
            with open(self.path + ".new", "w", encoding="ascii") as file:
                file.write(f"{self.number}\n")
            os.rename(self.path + ".new", self.path)

    def run(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        while True:
            if self.first:
                ending = signal.SIGTERM in signal.sigpending()
                self.send(b"." if ending else contents(self.number, True))
                self.wait(self.sent)
                if ending:
                    break
                self.check(self.wait(self.received))
                self.receive()
                time.sleep(PAUSE)
            else:
                if not self.check(self.wait(self.received)):
                    break
                self.receive()
                self.send(contents(self.number, False))
                self.wait(self.sent)
            self.note()
        events = self.events.take()
        if events:
            sys.exit(f"events {events}")
        print(f"{self.number} messages in each direction, all right")


Bystander(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None).run()
