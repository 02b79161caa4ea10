/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest RAM as the Ochre HCA's DMA reaches it.
 *
 * A listener on the device's DMA address space keeps a table of the ranges of RAM, each with a MemoryRegionCache that
 * holds its mapping in this process, so that the core's access is a look-up and a copy.
 */
#include "qemu/osdep.h"
#include "qemu/rcu.h"
#include "ochre-ram.h"

void ochre_ram_dirty(void *cache, uint64_t offset, uint64_t size)
{
    address_space_cache_invalidate(cache, offset, size);
}

void ochre_ram_burst(OchreWork *work, void *context)
{
    RCU_READ_LOCK_GUARD();
    work(context);
}

int ochre_ram_access(AddressSpace *as, uint64_t addr, uint64_t size,
                     bool is_write, OchreUseMemory *use, void *context)
{
    RCU_READ_LOCK_GUARD();
    while (size) {
        hwaddr len = size, xlat;
        MemoryRegion *mr = address_space_translate(as, addr, &xlat, &len,
                                                   is_write,
                                                   MEMTXATTRS_UNSPECIFIED);
        MemoryRegionCache piece = {
            .xlat = xlat, .mrs.mr = mr, .is_write = is_write,
        };

        if (!len || !memory_access_is_direct(mr, is_write,
                                             MEMTXATTRS_UNSPECIFIED)) {
            return -1;
        }
        piece.ptr = (uint8_t *)memory_region_get_ram_ptr(mr) + xlat;
        piece.len = len;
        use(context, piece.ptr, len);
        if (is_write) {
            address_space_cache_invalidate(&piece, 0, len);
        }
        addr += len;
        size -= len;
    }
    return 0;
}

static void range_free(gpointer data)
{
    address_space_cache_destroy(data);
    g_free(data);
}

static gint ram_compare(gconstpointer a, gconstpointer b)
{
    const OchreRam *x = a, *y = b;

    return x->base < y->base ? -1 : x->base > y->base;
}

static void rebuild(OchreRamMap *map)
{
    g_autoptr(GArray) table = g_array_new(false, false, sizeof(OchreRam));
    GPtrArray *ranges = g_ptr_array_new_with_free_func(range_free);
    GPtrArray *old = map->ranges;
    guint i;

    for (i = 0; i < map->sections->len; i++) {
        MemoryRegionSection *section =
            &g_array_index(map->sections, MemoryRegionSection, i);
        hwaddr base = section->offset_within_address_space;
        hwaddr left = int128_get64(section->size);

        while (left) {
            MemoryRegionCache *cache = g_new0(MemoryRegionCache, 1);
            int64_t len = address_space_cache_init(cache, map->as, base, left,
                                                   true);
            OchreRam ram = {
                .base = base, .size = len, .host = cache->ptr, .cache = cache,
            };

            if (len <= 0 || !cache->ptr) {
                range_free(cache);
                break;
            }
            g_ptr_array_add(ranges, cache);
            g_array_append_val(table, ram);
            base += len;
            left -= len;
        }
    }
    g_array_sort(table, ram_compare);
    ochre_core_set_ram(map->core, (OchreRam *)table->data, table->len);
    map->ranges = ranges;
    /* Nobody uses the former ranges any more. */
    if (old) {
        g_ptr_array_unref(old);
    }
}

static void region_add(MemoryListener *listener, MemoryRegionSection *section)
{
    OchreRamMap *map = container_of(listener, OchreRamMap, listener);
    MemoryRegionSection copy = *section;

    if (!memory_access_is_direct(section->mr, true, MEMTXATTRS_UNSPECIFIED)) {
        return;
    }
    memory_region_ref(copy.mr);
    copy.fv = NULL;
    g_array_append_val(map->sections, copy);
    map->changed = true;
}

static void region_del(MemoryListener *listener, MemoryRegionSection *section)
{
    OchreRamMap *map = container_of(listener, OchreRamMap, listener);
    guint i;

    for (i = 0; i < map->sections->len; i++) {
        MemoryRegionSection *have =
            &g_array_index(map->sections, MemoryRegionSection, i);

        if (have->mr == section->mr &&
            have->offset_within_address_space ==
            section->offset_within_address_space &&
            int128_eq(have->size, section->size)) {
            memory_region_unref(have->mr);
            g_array_remove_index_fast(map->sections, i);
            map->changed = true;
            return;
        }
    }
}

/* The address space's new view is in force only now. */
static void commit(MemoryListener *listener)
{
    OchreRamMap *map = container_of(listener, OchreRamMap, listener);

    if (map->changed) {
        map->changed = false;
        rebuild(map);
    }
}

void ochre_ram_start(OchreRamMap *map, AddressSpace *as, OchreCore *core)
{
    map->as = as;
    map->core = core;
    map->sections = g_array_new(false, false, sizeof(MemoryRegionSection));
    map->listener = (MemoryListener) {
        .name = "ochre-hca",
        .region_add = region_add,
        .region_del = region_del,
        .commit = commit,
        .priority = MEMORY_LISTENER_PRIORITY_DEV_BACKEND,
    };
    memory_listener_register(&map->listener, as);
}

void ochre_ram_stop(OchreRamMap *map)
{
    guint i;

    memory_listener_unregister(&map->listener);
    ochre_core_set_ram(map->core, NULL, 0);
    g_clear_pointer(&map->ranges, g_ptr_array_unref);
    for (i = 0; i < map->sections->len; i++) {
        memory_region_unref(
            g_array_index(map->sections, MemoryRegionSection, i).mr);
    }
    g_clear_pointer(&map->sections, g_array_unref);
}
