/* SPDX-License-Identifier: GPL-2.0-or-later */

/* Static inlines and macros of the kernel, as functions that Rust can call. */

#ifndef OCHRE_HELPERS_H
#define OCHRE_HELPERS_H

#include <linux/sysfs.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/iter.h>
#include <rdma/uverbs_ioctl.h>

struct ib_umem *ochre_umem_get_va(struct ib_device *device, unsigned long addr,
				  size_t size, int access);
size_t ochre_umem_num_dma_blocks(struct ib_umem *umem, unsigned long pgsz);
void ochre_umem_block_iter_start(struct ib_block_iter *iter,
				 struct ib_umem *umem, unsigned long pgsz);
bool ochre_umem_block_iter_next(struct ib_block_iter *iter);
u64 ochre_block_iter_dma_address(struct ib_block_iter *iter);

struct ib_ucontext *ochre_udata_context(struct ib_udata *udata);
struct ib_udata *ochre_attrs_udata(struct uverbs_attr_bundle *attrs);
int ochre_udata_in_empty(struct ib_udata *udata);
int ochre_respond_empty_udata(struct ib_udata *udata);

int ochre_mmap_io_noncached(struct ib_ucontext *context,
			    struct vm_area_struct *vma, u64 phys, size_t size,
			    struct rdma_user_mmap_entry *entry);
u64 ochre_mmap_offset(const struct rdma_user_mmap_entry *entry);

extern const struct attribute_group ochre_device_group;

void ochre_table_init(struct xarray *xa);
int ochre_table_store(struct xarray *xa, unsigned long index, void *entry);
void ochre_table_erase(struct xarray *xa, unsigned long index, void *entry);
void *ochre_table_next(struct xarray *xa, unsigned long *index);
unsigned long ochre_table_lock(struct xarray *xa);
void ochre_table_unlock(struct xarray *xa, unsigned long flags);

size_t ochre_layout(unsigned int which);

#endif
