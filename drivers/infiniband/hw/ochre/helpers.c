// SPDX-License-Identifier: GPL-2.0-or-later

#include <linux/array_size.h>
#include <linux/device.h>
#include <linux/mm.h>
#include "helpers.h"

struct ib_umem *ochre_umem_get_va(struct ib_device *device, unsigned long addr,
				  size_t size, int access)
{
	return ib_umem_get_va(device, addr, size, access);
}

size_t ochre_umem_num_dma_blocks(struct ib_umem *umem, unsigned long pgsz)
{
	return ib_umem_num_dma_blocks(umem, pgsz);
}

void ochre_umem_block_iter_start(struct ib_block_iter *iter,
				 struct ib_umem *umem, unsigned long pgsz)
{
	__rdma_umem_block_iter_start(iter, umem, pgsz);
}

bool ochre_umem_block_iter_next(struct ib_block_iter *iter)
{
	return __rdma_umem_block_iter_next(iter);
}

u64 ochre_block_iter_dma_address(struct ib_block_iter *iter)
{
	return rdma_block_iter_dma_address(iter);
}

/* The user context of a system call, or NULL where the kernel itself calls. */
struct ib_ucontext *ochre_udata_context(struct ib_udata *udata)
{
	return udata ? rdma_udata_to_uverbs_attr_bundle(udata)->context : NULL;
}

struct ib_udata *ochre_attrs_udata(struct uverbs_attr_bundle *attrs)
{
	return attrs ? &attrs->driver_udata : NULL;
}

int ochre_udata_in_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata);
}

int ochre_respond_empty_udata(struct ib_udata *udata)
{
	return ib_respond_empty_udata(udata);
}

int ochre_mmap_io_noncached(struct ib_ucontext *context,
			    struct vm_area_struct *vma, u64 phys, size_t size,
			    struct rdma_user_mmap_entry *entry)
{
	return rdma_user_mmap_io(context, vma, phys >> PAGE_SHIFT, size,
				 pgprot_noncached(vma->vm_page_prot), entry);
}

u64 ochre_mmap_offset(const struct rdma_user_mmap_entry *entry)
{
	return rdma_user_mmap_get_offset(entry);
}

/* What infiniband-diags and ibv_devinfo show of a device, from its attributes. */

static ssize_t hw_rev_show(struct device *device, struct device_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%x\n", rdma_device_to_ibdev(device)->attrs.hw_ver);
}
static DEVICE_ATTR_RO(hw_rev);

static ssize_t hca_type_show(struct device *device,
			     struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "Ochre\n");
}
static DEVICE_ATTR_RO(hca_type);

static struct attribute *ochre_device_attrs[] = {
	&dev_attr_hw_rev.attr,
	&dev_attr_hca_type.attr,
	NULL,
};

const struct attribute_group ochre_device_group = {
	.attrs = ochre_device_attrs,
};

/*
 * Tables of objects by number. They are looked up from interrupt handlers, so
 * their lock is taken with interrupts off.
 */

void ochre_table_init(struct xarray *xa)
{
	xa_init_flags(xa, XA_FLAGS_LOCK_IRQ);
}

/* Process context only: memory is allocated. */
int ochre_table_store(struct xarray *xa, unsigned long index, void *entry)
{
	return xa_err(xa_store_irq(xa, index, entry, GFP_KERNEL));
}

/* Erase the slot, unless another entry has taken it in the meantime. */
void ochre_table_erase(struct xarray *xa, unsigned long index, void *entry)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	if (xa_load(xa, index) == entry)
		__xa_erase(xa, index);
	xa_unlock_irqrestore(xa, flags);
}

/* The first entry at or behind the index, which is set to the entry's own. */
void *ochre_table_next(struct xarray *xa, unsigned long *index)
{
	return xa_find(xa, index, ULONG_MAX, XA_PRESENT);
}

unsigned long ochre_table_lock(struct xarray *xa)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	return flags;
}

void ochre_table_unlock(struct xarray *xa, unsigned long flags)
{
	xa_unlock_irqrestore(xa, flags);
}

/*
 * What this compiler makes of the structures that Rust fills in; bindgen asks
 * another one. Returns 0 where there are no more.
 */
size_t ochre_layout(unsigned int which)
{
	static const size_t layout[] = {
		sizeof(struct ib_device),
		offsetof(struct ib_device, attrs),
		sizeof(struct ib_device_ops),
		offsetof(struct ib_device_ops, size_ib_qp),
		sizeof(struct ib_ucontext),
		sizeof(struct ib_pd),
		sizeof(struct ib_ah),
		sizeof(struct ib_cq),
		sizeof(struct ib_qp),
		sizeof(struct ib_mr),
		sizeof(struct ib_wc),
		sizeof(struct rdma_user_mmap_entry),
	};

	return which < ARRAY_SIZE(layout) ? layout[which] : 0;
}
