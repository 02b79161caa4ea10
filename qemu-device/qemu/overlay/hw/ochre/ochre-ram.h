/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest RAM as the Ochre HCA's DMA reaches it.
 */
#ifndef HW_OCHRE_RAM_H
#define HW_OCHRE_RAM_H

#include "exec/memory.h"
#include "ochre-core.h"

/* Keeps the core's RAM table in step with an address space. Used under the BQL. */
typedef struct OchreRamMap {
    AddressSpace *as;
    OchreCore *core;
    MemoryListener listener;
    GArray *sections;           /* MemoryRegionSection, each with a reference to its region */
    bool changed;
    GPtrArray *ranges;          /* MemoryRegionCache, one for each range of the core's table */
} OchreRamMap;

void ochre_ram_start(OchreRamMap *map, AddressSpace *as, OchreCore *core);
void ochre_ram_stop(OchreRamMap *map);

/* OchreHost's ram_dirty. */
void ochre_ram_dirty(void *cache, uint64_t offset, uint64_t size);

/*
 * OchreHost's burst: one RCU read section around the work. Every write of guest memory enters one, and leaving the
 * outermost costs a full memory barrier or two.
 */
void ochre_ram_burst(OchreWork *work, void *context);

/*
 * OchreHost's with_memory. RAM behind an IOMMU is reached; MMIO is refused, because an access to it would need the
 * BQL, which the caller may hold or not, while it holds the core's lock.
 */
int ochre_ram_access(AddressSpace *as, uint64_t addr, uint64_t size,
                     bool is_write, OchreUseMemory *use, void *context);

#endif
