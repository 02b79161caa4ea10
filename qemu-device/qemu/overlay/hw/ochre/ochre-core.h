/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The C ABI between QEMU's side of the Ochre HCA (ochre-hca.c) and its core (the Rust crate ochre-qemu).
 * abi.rs in that crate is the twin of this file; OCHRE_CORE_ABI changes with it.
 *
 * Locks: MMIO callbacks hold QEMU's big lock (BQL) and may take the core's lock inside. The core never calls
 * back while it holds its own lock, except ram_dirty, with_memory and burst, which take no BQL.
 */
#ifndef HW_OCHRE_CORE_H
#define HW_OCHRE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OCHRE_CORE_ABI 4
#define OCHRE_MAX_PORTS 2

/* The device: firmware, ports, links. Opaque to C. */
typedef struct OchreCore OchreCore;

/* A range of guest RAM as the device's DMA sees it. */
typedef struct OchreRam {
    uint64_t base;      /* DMA address of the first byte */
    uint64_t size;      /* bytes */
    uint8_t *host;      /* where the range is mapped in this process */
    void *cache;        /* handle for ram_dirty */
} OchreRam;

/* Called with a piece of guest memory. */
typedef void OchreUseMemory(void *context, uint8_t *host, uint64_t size);

/* A piece of the core's work. */
typedef void OchreWork(void *context);

/* What the core asks of QEMU. `opaque` is handed back in each call. */
typedef struct OchreHost {
    void *opaque;
    /* Bytes [offset, offset + size) of a range were written. From any thread. */
    void (*ram_dirty)(void *cache, uint64_t offset, uint64_t size);
    /*
     * Slow path, for addresses that no range holds (an IOMMU, read-only memory): `use` is called with each piece of
     * the memory, in order, and what it writes is made known to QEMU. Gives 0, or -1 where there is no memory; the
     * pieces before it were used. Takes no BQL. From any thread that QEMU's RCU knows.
     */
    int (*with_memory)(void *opaque, uint64_t addr, uint64_t size, bool is_write,
                       OchreUseMemory *use, void *context);
    /*
     * Do a piece of work that writes guest memory many times: what QEMU has to do around each write is done once
     * around all of them. The work takes no BQL. From a thread that QEMU's RCU knows.
     */
    void (*burst)(OchreWork *work, void *context);
    /* Raise the MSI-X vectors whose bits are set. From any thread, with or without the BQL. */
    void (*raise)(void *opaque, uint64_t vectors);
    /* Tell the user about a problem that the device lives on with. From any thread. */
    void (*report)(void *opaque, const char *message);
} OchreHost;

/* Properties of a device. Strings may be NULL. */
typedef struct OchreConfig {
    uint32_t abi;                       /* OCHRE_CORE_ABI */
    uint32_t ports;                     /* 1 or 2 */
    uint32_t vectors;                   /* MSI-X vectors, 1 to 64 */
    bool crc;                           /* compute and check ICRC and VCRC */
    const char *link[OCHRE_MAX_PORTS];  /* Unix socket path of each port's link */
    const char *node_guid;              /* 16 hexadecimal digits, with or without 0x and colons */
    const char *capture;                /* file that gets ERF records */
    const char *speed;                  /* sdr, ddr, qdr, fdr, edr, hdr, ndr, xdr */
    const char *width;                  /* 1x, 2x, 4x, 8x, 12x */
} OchreConfig;

/* Sizes and ids that the PCI side needs, from the hardware contract. */
typedef struct OchreLayout {
    uint16_t vendor_id;
    uint16_t device_id;
    uint16_t class_id;
    uint8_t revision;
    uint8_t bar_regs;
    uint8_t bar_doorbells;
    uint8_t bar_msix;
    uint16_t max_vectors;
    uint32_t msix_pba_offset;
    uint64_t bar_regs_size;
    uint64_t bar_doorbells_size;
    uint64_t bar_msix_size;
} OchreLayout;

void ochre_core_layout(OchreLayout *layout);

/* Make a device. On failure NULL, and a message of at most error_size bytes in error. */
OchreCore *ochre_core_new(const OchreConfig *config, const OchreHost *host,
                          char *error, size_t error_size);
/* After the service thread was joined. */
void ochre_core_free(OchreCore *core);

/* Body of the service thread; returns after ochre_core_stop. */
void ochre_core_service(OchreCore *core);
void ochre_core_stop(OchreCore *core);

/* Everything is gone but the configuration and the links' sockets. */
void ochre_core_reset(OchreCore *core);

/*
 * The machine stands still, or goes on. While it stands still the core leaves guest memory alone and raises no
 * interrupt; the links stay up, and the firmware answers subnet management. It stands still until told otherwise.
 */
void ochre_core_set_paused(OchreCore *core, bool paused);

/* The RAM table. When this returns, no thread uses the former one. */
void ochre_core_set_ram(OchreCore *core, const OchreRam *ram, size_t count);

uint64_t ochre_core_reg_read(OchreCore *core, uint64_t offset, uint32_t size);
void ochre_core_reg_write(OchreCore *core, uint64_t offset, uint64_t value, uint32_t size);
void ochre_core_doorbell(OchreCore *core, uint64_t offset, uint64_t value, uint32_t size);

/* Runtime settings of a port (0 or 1). The drain rate is in bytes per second, 0 is unlimited. */
void ochre_core_set_drain(OchreCore *core, uint32_t port, uint64_t rate);
uint64_t ochre_core_drain(const OchreCore *core, uint32_t port);
void ochre_core_set_plugged(OchreCore *core, uint32_t port, bool plugged);
bool ochre_core_plugged(const OchreCore *core, uint32_t port);

/*
 * Rules for wire faults of a port (0 or 1); `rules` are the rules themselves or '@' and the path of a file. On failure
 * false, and a message of at most error_size bytes in error; the former rules then stay.
 */
bool ochre_core_set_faults(OchreCore *core, uint32_t port, const char *rules, char *error, size_t error_size);
/* The rules, and how often each has acted. To be freed by ochre_core_free_text. */
char *ochre_core_faults(const OchreCore *core, uint32_t port);
/* How many objects of each kind the guest has made and not destroyed. To be freed by ochre_core_free_text. */
char *ochre_core_objects(const OchreCore *core);
void ochre_core_free_text(char *text);

/* Whether packets go to the capture file, if there is one. */
void ochre_core_set_capturing(OchreCore *core, bool capturing);
/* Write out what the capture has buffered. */
void ochre_core_flush_capture(OchreCore *core);

#endif
