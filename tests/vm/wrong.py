#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Gives the verbs wrong input, one by one, and looks what comes of each on both machines.

    wrong.py serve DEVICE             the second machine: does what the first one says
    wrong.py run DEVICE HOST [WORD]   the first: one line a case, "ok WHAT" or "not ok WHAT: WHY"
    wrong.py count [WORD]             how many cases there are

WORD "keys" means the cases that need a second partition, without it they are left out.
"""

import errno
import sys
import traceback

import pyverbs.enums as e

from end import QKEY, End, Failure, Remote, serve
from ends import REMOTE_RIGHTS, connect

TCP_PORT = 18601
LOCAL = e.IBV_ACCESS_LOCAL_WRITE
WRITE, READ, ATOMIC = (e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ,
                       e.IBV_ACCESS_REMOTE_ATOMIC)
ALL = LOCAL | REMOTE_RIGHTS
TOP = 1 << 64
UNKNOWN_KEY = 0xfffffe01

CASES = []


def same(what, found, expected):
    """Fails where what was found is not what was expected."""
    if found != expected:
        raise Failure(f"{what}: {found}, expected {expected}")


def case(what, partition=False):
    """A function is a case of its own: it gets both ends."""
    def add(function):
        CASES.append((what, partition, function))
        return function
    return add


def rc(what, wrong, status, event=None, receive=None, first=True, partition=False, setup=None):
    """A case of two connected QPs: a good WRITE is posted, then what is wrong, then two more WRITEs.

    `wrong` gets a region of each end, and both ends; it gives one request or several, of which the
    last one completes with `status`. If `event` or `receive` is given, the responder's QP ends in
    error, with that event, and its first receive with that status; else it works on. Where nothing
    gets through, there is no `first` good WRITE.
    """
    setup = setup or {}

    def run(a, b):
        pair(a, b, **setup)
        near, far = a.region(ALL), b.region(ALL)
        before = bytearray(b.contents(far))
        for number in range(2):
            a.receive(100 + number, near)
            if setup.get("receives", True):
                b.receive(200 + number, far, 64)
        write = dict(op="WRITE", at=near[:2], length=8, to=far[:2])
        if first:
            a.post([dict(write, wr_id=0)])
            same("the good request before it", a.sends(1), [(0, "SUCCESS")])
            before[:8] = a.contents(near)[:8]
        bad = wrong(near, far, a, b)
        bad = bad if isinstance(bad, list) else [bad]
        bad = [dict(write, wr_id=1 + number) | request for number, request in enumerate(bad)]
        a.post(bad + [dict(write, wr_id=50), dict(write, wr_id=51)])

        expected = [(request["wr_id"], "SUCCESS") for request in bad[:-1]]
        expected += [(bad[-1]["wr_id"], status), (50, "WR_FLUSH_ERR"), (51, "WR_FLUSH_ERR")]
        same("the requester's sends", a.sends(len(expected)), expected)
        same("the requester's receives", a.receives(2), [(100, "WR_FLUSH_ERR"), (101, "WR_FLUSH_ERR")])
        same("the requester's state", a.state(), "ERR")
        after_error(a, near)
        same("the requester's events", a.events(), [])
        if event or receive:
            same("the responder's receives", b.receives(2),
                 [(200, receive or "WR_FLUSH_ERR"), (201, "WR_FLUSH_ERR")])
            same("the responder's state", b.state(), "ERR")
            after_error(b, far)
            same("the responder's events", b.events(patience=bool(event)), [event] if event else [])
        else:
            same("the responder's state", b.state(), "RTS")
            same("the responder's completions", b.quiet(), [])
            same("the responder's events", b.events(), [])
        same("the responder's memory is as it was", b.contents(far) == bytes(before), True)

    case(what, partition)(run)


def pair(a, b, near=None, far=None, connect_to=None, receives=True, rights=REMOTE_RIGHTS, kind="RC"):
    """QPs of both ends, connected. `near` and `far` are attributes of the two."""
    del receives  # that is for who posts them
    ours, theirs = a.fresh(kind), b.fresh(kind, rights=rights)
    a.connect(connect_to or theirs[0], theirs[1], **(near or {}))
    b.connect(*ours, **(far or {}))


def after_error(end, region):
    """What is posted to a QP in the error state is flushed, in order."""
    end.receive(300, region)
    end.receive(301, region)
    end.post([dict(op="SEND", wr_id=number, at=region[:2], length=8) for number in (310, 311)])
    same("receives posted in error", end.receives(2), [(300, "WR_FLUSH_ERR"), (301, "WR_FLUSH_ERR")])
    same("sends posted in error", end.sends(2), [(310, "WR_FLUSH_ERR"), (311, "WR_FLUSH_ERR")])


def remote_cases():
    """Keys, ranges and rights at the responder."""
    access = dict(status="REM_ACCESS_ERR", event="QP_ACCESS_ERR")
    invalid = dict(status="REM_INV_REQ_ERR", event="QP_REQ_ERR")
    for op, right in (("WRITE", WRITE), ("READ", READ), ("FETCH_ADD", ATOMIC), ("CMP_SWAP", ATOMIC)):
        def to(make, op=op):
            return lambda near, far, a, b: dict(op=op, to=make(far, b))
        rc(f"{op} with an R_Key that names nothing", to(lambda far, b: (far[0], UNKNOWN_KEY)), **access)
        rc(f"{op} with an R_Key of the right index and a wrong tag", to(lambda far, b: (far[0], far[1] ^ 1)),
           **access)
        rc(f"{op} with the R_Key of a region that is gone", to(lambda far, b: b.gone_region(ALL)[:2]), **access)
        rc(f"{op} with an R_Key of another protection domain", to(lambda far, b: b.region(ALL, other=True)[:2]),
           **access)
        rc(f"{op} to a region without the right", to(lambda far, b, r=right: b.region(ALL & ~r)[:2]), **access)
        rc(f"{op} to a QP without the right", to(lambda far, b: far[:2]),
           setup=dict(rights=REMOTE_RIGHTS & ~right), first=op != "WRITE", **invalid)
        rc(f"{op} that begins before its region", to(lambda far, b: (far[0] - 8, far[1])), **access)
        rc(f"{op} that begins behind its region", to(lambda far, b: (far[0] + far[2], far[1])), **access)
        rc(f"{op} that wraps around the end of the addresses" if op in ("WRITE", "READ") else
           f"{op} at the end of the addresses",
           to(lambda far, b, at=TOP - (4 if op in ("WRITE", "READ") else 8): (at, far[1])), **access)
        if right == ATOMIC:
            rc(f"{op} off its 8 bytes", to(lambda far, b: (far[0] + 4, far[1])), **invalid)
        else:
            rc(f"{op} that ends one byte behind its region", to(lambda far, b: (far[0] + far[2] - 7, far[1])),
               **access)


def receive_cases():
    """Receives that do not fit."""
    def send(**more):
        return lambda near, far, a, b: dict(op="SEND", **more)

    def bad_receive(make):
        def wrong(near, far, a, b):
            # The two receives that the QP has are as they should be: this one comes first.
            b.receive(200, *make(far, b))
            b.receive(201, far)
            return dict(op="SEND", length=8)
        return wrong

    rc("SEND one byte longer than its receive", send(length=65), "REM_INV_REQ_ERR", receive="LOC_LEN_ERR")
    rc("SEND of many packets to a receive of one", send(length=3 << 12), "REM_INV_REQ_ERR", receive="LOC_LEN_ERR")
    none = dict(receives=False)
    rc("SEND to a receive whose L_Key names nothing",
       bad_receive(lambda far, b: ((far[0], UNKNOWN_KEY, far[2]),)), "REM_OP_ERR", receive="LOC_PROT_ERR",
       setup=none)
    rc("SEND to a receive in another protection domain", bad_receive(lambda far, b: (b.region(ALL, other=True),)),
       "REM_OP_ERR", receive="LOC_PROT_ERR", setup=none)
    rc("SEND to a receive in a region that may not be written", bad_receive(lambda far, b: (b.region(READ),)),
       "REM_OP_ERR", receive="LOC_PROT_ERR", setup=none)
    few = dict(receives=False, near=dict(rnr_retries=2))
    rc("SEND without a receive, until the retries are used up", send(), "RNR_RETRY_EXC_ERR", setup=few)
    rc("WRITE with immediate without a receive, until the retries are used up",
       lambda near, far, a, b: dict(op="WRITE_IMM", length=0), "RNR_RETRY_EXC_ERR", setup=few)


def requester_cases():
    """What the requester finds by itself, and a peer that does not answer."""
    local = dict(status="LOC_PROT_ERR")
    for op in ("SEND", "WRITE", "READ", "FETCH_ADD"):
        def at(make, op=op):
            return lambda near, far, a, b: dict(op=op, at=make(near, a))
        rc(f"{op} with an L_Key that names nothing", at(lambda near, a: (near[0], UNKNOWN_KEY)), **local)
        rc(f"{op} with an L_Key of another protection domain", at(lambda near, a: a.region(ALL, other=True)[:2]),
           **local)
        rc(f"{op} from behind its region" if op in ("SEND", "WRITE") else f"{op} to behind its region",
           at(lambda near, a: (near[0] + near[2] - 7, near[1])), **local)
        if op in ("READ", "FETCH_ADD"):
            rc(f"{op} to a region that may not be written", at(lambda near, a: a.region(READ)[:2]), **local)

    def many_reads(near, far, a, b):
        # So long that the first is not over when the second one comes.
        near, far = a.region(ALL, 1 << 20), b.region(ALL, 1 << 20)
        return [dict(op="READ", at=near[:2], length=near[2], to=far[:2])] * 2

    rc("more READs than the responder takes at once", many_reads, "REM_INV_REQ_ERR", event="QP_REQ_ERR",
       setup=dict(far=dict(responses=1)))
    rc("READ to a responder that takes none", lambda near, far, a, b: dict(op="READ"),
       "REM_INV_REQ_ERR", event="QP_REQ_ERR", setup=dict(far=dict(responses=0)))
    rc("READ from a QP that may have none under way", lambda near, far, a, b: dict(op="READ"),
       "LOC_QP_OP_ERR", setup=dict(near=dict(reads=0)))
    # 65 ms, three times.
    silent = dict(near=dict(timeout=14, retries=2))
    rc("WRITE to a QP that is not there, until the retries are used up", lambda near, far, a, b: dict(op="WRITE"),
       "RETRY_EXC_ERR", first=False, setup=dict(silent, connect_to=0xabcdef))

    @case("WRITE to a QP that does not receive yet, until the retries are used up")
    def _(a, b):
        pair(a, b, **silent)
        near, far = a.region(ALL), b.region(ALL)
        b.to("RESET")
        b.to_init()
        a.post([dict(op="WRITE", wr_id=1, at=near[:2], length=8, to=far[:2])])
        same("the requester's sends", a.sends(1), [(1, "RETRY_EXC_ERR")])
        same("the states", (a.state(), b.state()), ("ERR", "INIT"))
        same("the events", (a.events(), b.events()), ([], []))


def refused(what, prepare, error):
    """A case that the verb itself refuses, with an error number."""
    @case(what)
    def _(a, b):
        found = prepare(a, b)
        same("the verb", errno.errorcode.get(found, found), errno.errorcode[error])


def verb_cases():
    """What a verb refuses at once."""
    def post(request, state, kind="RC"):
        def prepare(a, b):
            theirs = b.fresh(kind)
            a.fresh(kind, init=state != "RESET")
            if state in ("RTR", "RTS"):
                a.connect(*theirs, rts=state == "RTS")
            region = a.region(ALL)
            return a.try_post(dict(dict(at=region[:2], length=8, to=region[:2]), **request))
        return prepare

    for state in ("RESET", "INIT", "RTR"):
        refused(f"SEND posted to a QP in {state}", post(dict(op="SEND"), state), errno.EINVAL)
    refused("a receive posted to a QP in RESET",
            lambda a, b: (a.fresh("RC", init=False), a.try_receive(a.region(ALL)))[1], errno.EINVAL)
    refused("READ posted to an unreliable connection", post(dict(op="READ"), "RTS", "UC"), errno.EINVAL)
    refused("an atomic posted to an unreliable connection", post(dict(op="FETCH_ADD"), "RTS", "UC"), errno.EINVAL)
    refused("WRITE posted to a datagram QP", post(dict(op="WRITE"), "RTS", "UD"), errno.EINVAL)
    refused("an atomic of 4 bytes", post(dict(op="FETCH_ADD", length=4), "RTS"), errno.EINVAL)
    refused("a message longer than 2 GiB", post(dict(op="WRITE", length=(1 << 30) + 1, elements=2), "RTS"),
            errno.EINVAL)
    refused("more elements than a slot holds", post(dict(op="SEND", elements=31), "RTS"), errno.EINVAL)
    refused("more inline data than a slot holds", post(dict(op="SEND", length=4096, inline=True), "RTS"),
            errno.EINVAL)
    refused("RESET to RTS", lambda a, b: (a.fresh("RC", init=False), a.try_to("RTS"))[1], errno.EINVAL)
    refused("a region where no memory is", lambda a, b: a.try_region(1 << 40, 4096), errno.EFAULT)
    refused("a region without a byte", lambda a, b: a.try_region(None, 0), errno.EINVAL)
    refused("a CQ of more entries than there are", lambda a, b: a.try_cq(1 << 30), errno.EINVAL)
    refused("a QP of more requests than there are", lambda a, b: a.try_qp(max_send_wr=1 << 20), errno.EINVAL)
    refused("a QP of more elements than there are", lambda a, b: a.try_qp(max_send_sge=100), errno.EINVAL)
    refused("a P_Key index beyond the table",
            lambda a, b: (a.fresh("RC", init=False), a.try_to_init(pkey_index=1000))[1], errno.EINVAL)

    @case("a full send queue; there is room again when completions are polled")
    def _(a, b):
        pair(a, b)
        near, far = a.region(ALL), b.region(ALL)
        write = dict(op="WRITE", at=near[:2], length=8, to=far[:2])
        a.post([dict(write, wr_id=number) for number in range(16)])
        same("one more", a.try_post(write), errno.ENOMEM)
        same("the sends", a.sends(16), [(number, "SUCCESS") for number in range(16)])
        a.post([dict(write, wr_id=20)])
        same("after that", a.sends(1), [(20, "SUCCESS")])

    @case("a full receive queue; there is room again when completions are polled")
    def _(a, b):
        pair(a, b)
        near, far = a.region(ALL), b.region(ALL)
        for number in range(16):
            b.receive(number, far)
        same("one more", b.try_receive(far), errno.ENOMEM)
        a.post([dict(op="SEND", wr_id=1, at=near[:2], length=8)])
        same("the send", a.sends(1), [(1, "SUCCESS")])
        same("the receive", b.receives(1), [(0, "SUCCESS")])
        b.receive(20, far)
        same("full again", b.try_receive(far), errno.ENOMEM)

    @case("a CQ that overruns takes its QP along, and nothing else")
    def _(a, b):
        pair(a, b)
        near, far = a.region(ALL), b.region(ALL)
        write = dict(op="WRITE", at=near[:2], length=8, to=far[:2])
        entries = a.small_cq(4)
        a.connect(*b.address())
        b.to("RESET")
        b.to_init()
        b.connect(*a.address())
        a.post([dict(write, wr_id=number) for number in range(entries + 1)])
        same("the events", sorted(a.events(patience=True, count=2)), ["CQ_ERR", "QP_FATAL"])
        same("the state", a.state(), "ERR")
        same("what the CQ holds", a.sends(entries), [(number, "SUCCESS") for number in range(entries)])
        same("the peer", (b.state(), b.events()), ("RTS", []))


def datagram_cases():
    """UD and UC: what is wrong at the peer is dropped there without a word."""
    def datagrams(a, b, **more):
        a.fresh("UD", **more)
        number, lid = b.fresh("UD")
        a.connect()
        b.connect()
        return dict(op="SEND", length=8, ud=(number, lid, QKEY))

    def dropped(a, b, bad, good):
        """The bad message completes here and is not seen there; the good one behind it arrives."""
        near, far = a.region(ALL), b.region(ALL)
        b.receive(200, far)
        a.post([dict(dict(at=near[:2], wr_id=1), **bad)])
        same("the bad one", a.sends(1), [(1, "SUCCESS")])
        a.post([dict(dict(at=near[:2], wr_id=2), **good)])
        same("the good one", a.sends(1), [(2, "SUCCESS")])
        same("what arrives", b.receives(1), [(200, "SUCCESS")])
        same("what else arrives", b.quiet(), [])
        same("the states", (a.state(), b.state()), ("RTS", "RTS"))
        same("the events", (a.events(), b.events()), ([], []))

    @case("a datagram with a wrong Q_Key is dropped")
    def _(a, b):
        good = datagrams(a, b)
        dropped(a, b, dict(good, ud=good["ud"][:2] + (QKEY + 1,)), good)

    @case("a datagram to a QP that is not there is dropped")
    def _(a, b):
        good = datagrams(a, b)
        dropped(a, b, dict(good, ud=(0xabcdef,) + good["ud"][1:]), good)

    @case("a datagram to a connected QP is dropped")
    def _(a, b):
        good = datagrams(a, b)
        connected = b.another(*a.address())
        dropped(a, b, dict(good, ud=(connected,) + good["ud"][1:]), good)

    @case("a datagram with the P_Key of another partition is dropped", partition=True)
    def _(a, b):
        good = datagrams(a, b, pkey_index=a.second_pkey())
        near, far = a.region(ALL), b.region(ALL)
        b.receive(200, far)
        a.post([dict(good, at=near[:2], wr_id=1)])
        same("the bad one", a.sends(1), [(1, "SUCCESS")])
        a.to("RESET")
        a.to_init()
        a.connect()
        a.post([dict(good, at=near[:2], wr_id=2)])
        same("the good one", a.sends(1), [(2, "SUCCESS")])
        same("what arrives", b.receives(1) + b.quiet(), [(200, "SUCCESS")])
        a.post([dict(good, at=near[:2], wr_id=3)])
        same("one without a receive", a.sends(1) + b.quiet(), [(3, "SUCCESS")])

    rc("WRITE with the P_Key of another partition, until the retries are used up",
       lambda near, far, a, b: dict(op="WRITE"), "RETRY_EXC_ERR", first=False, partition=True,
       setup=dict(near=dict(timeout=14, retries=2, second_pkey=True)))

    def local(a, b, bad, good):
        """The sends stop in SQE, behind the bad one all are flushed; after that they work again."""
        near, far = a.region(ALL), b.region(ALL)
        a.receive(100, near)
        a.post([dict(dict(at=near[:2], wr_id=1), **bad), dict(dict(at=near[:2], wr_id=2), **good)])
        same("the sends", a.sends(2), [(1, bad["status"]), (2, "WR_FLUSH_ERR")])
        same("the state", a.state(), "SQE")
        same("the receives", a.quiet(), [])
        a.to("RTS", current="SQE")
        b.receive(200, far)
        a.post([dict(dict(at=near[:2], wr_id=3), **good)])
        same("a good one after that", a.sends(1), [(3, "SUCCESS")])
        same("what arrives", b.receives(1), [(200, "SUCCESS")])
        same("the events", (a.events(), b.events()), ([], []))

    @case("a datagram with an L_Key that names nothing stops the sends, not the receives")
    def _(a, b):
        good = datagrams(a, b)
        local(a, b, dict(good, at=(4096, UNKNOWN_KEY), status="LOC_PROT_ERR"), good)

    @case("a datagram longer than the path's packets stops the sends, not the receives")
    def _(a, b):
        good = datagrams(a, b)
        local(a, b, dict(good, length=4097, status="LOC_LEN_ERR"), good)

    @case("an unreliable SEND with an L_Key that names nothing stops the sends, not the receives")
    def _(a, b):
        pair(a, b, kind="UC")
        good = dict(op="SEND", length=8)
        local(a, b, dict(good, at=(4096, UNKNOWN_KEY), status="LOC_PROT_ERR"), good)

    @case("an unreliable WRITE with an R_Key that names nothing is dropped")
    def _(a, b):
        pair(a, b, kind="UC")
        far = b.region(ALL)
        dropped(a, b, dict(op="WRITE", length=8, to=(far[0], UNKNOWN_KEY)), dict(op="SEND", length=8))

    @case("an unreliable SEND without a receive is dropped")
    def _(a, b):
        pair(a, b, kind="UC")
        near = a.region(ALL)
        a.post([dict(op="SEND", length=8, at=near[:2], wr_id=1)])
        same("the send", a.sends(1), [(1, "SUCCESS")])
        same("what arrives", b.quiet(), [])
        far = b.region(ALL)
        b.receive(200, far)
        a.post([dict(op="SEND", length=8, at=near[:2], wr_id=2)])
        same("another one", a.sends(1), [(2, "SUCCESS")])
        same("what arrives", b.receives(1), [(200, "SUCCESS")])


remote_cases()
receive_cases()
requester_cases()
verb_cases()
datagram_cases()


def run(device, host, partition):
    """Tries the cases; gives how many were not well."""
    a, b = End(device), Remote(connect(host, TCP_PORT))
    failed = 0
    for what, _, function in selected(partition):
        try:
            function(a, b)
            print(f"ok {what}", flush=True)
        except Exception as error:  # each case stands for itself
            if not isinstance(error, Failure):
                traceback.print_exc()
            print(f"not ok {what}: {error}", flush=True)
            failed += 1
    b.end()
    return failed


def selected(partition):
    """The cases with or without a second partition."""
    return [one for one in CASES if one[1] == partition]


def main(arguments):
    """Does what the command line says; gives the exit code."""
    partition = arguments[-1:] == ["keys"]
    match arguments[:len(arguments) - partition]:
        case ["count"]:
            print(len(selected(partition)))
        case ["serve", device]:
            serve(device, TCP_PORT)
        case ["run", device, host]:
            return 1 if run(device, host, partition) else 0
        case _:
            sys.exit(__doc__)
    return 0


sys.exit(main(sys.argv[1:]))
