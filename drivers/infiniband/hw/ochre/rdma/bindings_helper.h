/* SPDX-License-Identifier: GPL-2.0-or-later */

/* What bindgen reads to make the bindings of the RDMA subsystem. */

#include <rdma/ib_verbs.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_umem.h>
#include <rdma/iter.h>
#include <rdma/uverbs_ioctl.h>

#include "../helpers.h"
