/* SPDX-License-Identifier: ((GPL-2.0-or-later WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * What the Ochre kernel driver and its libibverbs provider say to each other.
 *
 * Every structure is a multiple of 8 bytes long and has the same layout for
 * 32-bit and 64-bit programs. Software writes zero to reserved fields; the
 * driver refuses a request in which they are not zero.
 */
#ifndef OCHRE_ABI_USER_H
#define OCHRE_ABI_USER_H

#include <linux/types.h>

#define OCHRE_UVERBS_ABI_VERSION 1

/*
 * alloc_ucontext: which interface the provider speaks. With another major
 * version than the driver's it gets EPROTONOSUPPORT.
 */
struct ochre_alloc_ucontext_req {
	__u32 interface_major;	/* of include/ochre-hw */
	__u32 interface_minor;
	__aligned_u64 reserved;
};

struct ochre_alloc_ucontext_resp {
	__aligned_u64 doorbell_offset;	/* for mmap: the context's doorbell page */
	__u32 doorbell_length;		/* bytes */
	__u32 doorbell_page;		/* number of the page */
	__u32 max_send_wr;
	__u32 max_recv_wr;
	__u32 max_sge;
	__u32 max_inline;
	__u32 max_cqe;
	__u32 interface_minor;		/* of the device */
	__aligned_u64 clock_khz;
};

struct ochre_alloc_pd_resp {
	__u32 pdn;
	__u32 reserved;
};

/* create_cq: the buffer holds a record, then the entries. */
struct ochre_create_cq_req {
	__aligned_u64 buf_addr;	/* on 4096 bytes */
	__aligned_u64 buf_len;	/* bytes, a multiple of 4096 */
	__u32 log_entries;
	__u32 reserved;
};

struct ochre_create_cq_resp {
	__u32 cqn;
	__u32 reserved;
};

/* create_qp: the buffer holds a record, the send slots and the receive slots. */
struct ochre_create_qp_req {
	__aligned_u64 buf_addr;	/* on 4096 bytes */
	__aligned_u64 buf_len;	/* bytes, a multiple of 4096 */
	__u32 sq_offset;	/* bytes */
	__u32 rq_offset;	/* bytes */
	__u8 log_sq_slots;
	__u8 log_sq_stride;
	__u8 log_rq_slots;
	__u8 log_rq_stride;
	__u32 reserved;
};

struct ochre_create_qp_resp {
	__u32 qpn;
	__u32 reserved;
};

struct ochre_create_ah_resp {
	__u32 ahn;
	__u32 reserved;
};

#endif /* OCHRE_ABI_USER_H */
