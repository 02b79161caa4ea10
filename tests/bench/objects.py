#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes many QPs and memory regions in one guest and prints how long each took, as one JSON object.

    objects.py DEVICE QPS MRS

Times are microseconds for one object: to make one of the first and of the last tenth, and to destroy one.
"""

import json
import mmap
import sys
import time
from ctypes import addressof, c_char

from pyverbs.cq import CQ
from pyverbs.device import Context
import pyverbs.enums as e
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr


def make(count, one):
    """Makes objects; gives them and the mean times of the first and the last tenth."""
    objects = []
    part = max(count // 10, 1)
    marks = {}
    for number in range(count):
        if number in (0, count - part):
            marks[number] = time.monotonic()
        objects.append(one())
        if number in (part - 1, count - 1):
            marks[-number - 1] = time.monotonic()
    first = (marks[-part] - marks[0]) / part * 1e6
    last = (marks[-count] - marks[count - part]) / part * 1e6
    return objects, round(first, 1), round(last, 1)


def destroy(objects):
    """Destroys objects; gives the mean time."""
    start = time.monotonic()
    for one in objects:
        one.close()
    return round((time.monotonic() - start) / len(objects) * 1e6, 1)


def main():
    name, qps, mrs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    context = Context(name=name)
    pd = PD(context)
    cq = CQ(context, 64)
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    attributes = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap)
    memory = mmap.mmap(-1, 4096)
    address = addressof(c_char.from_buffer(memory))

    made_qps, qp_first, qp_last = make(qps, lambda: QP(pd, attributes))
    made_mrs, mr_first, mr_last = make(
        mrs, lambda: MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE, address=address))
    numbers = {qp.qp_num for qp in made_qps}
    keys = {mr.lkey for mr in made_mrs}
    print(json.dumps({
        "qps": len(numbers), "qp_first_us": qp_first, "qp_last_us": qp_last,
        "qp_destroy_us": destroy(made_qps),
        "mrs": len(keys), "mr_first_us": mr_first, "mr_last_us": mr_last,
        "mr_destroy_us": destroy(made_mrs),
    }))


main()
