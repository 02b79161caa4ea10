# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes contexts as a provider does, by the kernel's write interface, without libibverbs.

usage: abi.py other|own
"""

import ctypes
import errno
import os
import struct
import sys

GET_CONTEXT = 0
RESPONSE = 8 + 48  # of the core, of the driver; bytes


def get_context(major, reserved=0):
    """Error of making a context for a provider of this major version; 0 for none."""
    device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
    try:
        response = ctypes.create_string_buffer(RESPONSE)
        body = struct.pack("<QIIQ", ctypes.addressof(response), major, 0, reserved)
        head = struct.pack("<IHH", GET_CONTEXT, (8 + len(body)) // 4, RESPONSE // 4)
        os.write(device, head + body)
        return 0
    except OSError as error:
        return error.errno
    finally:
        os.close(device)


def expect(what, found, wanted):
    """Ends the program where an error is another than wanted."""
    if found != wanted:
        name = errno.errorcode.get
        sys.exit(f"{what}: {name(found, found)}, expected {name(wanted, wanted)}")


if sys.argv[1:] == ["other"]:
    expect("major version 2", get_context(2), errno.EPROTONOSUPPORT)
    expect("major version 0", get_context(0), errno.EPROTONOSUPPORT)
elif sys.argv[1:] == ["own"]:
    expect("reserved bytes", get_context(1, 7), errno.EINVAL)
    expect("major version 1", get_context(1), 0)
else:
    sys.exit(__doc__)
