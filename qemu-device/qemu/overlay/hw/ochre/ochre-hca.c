/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ochre: a virtual InfiniBand host channel adapter.
 *
 * This file is what QEMU has to see of it: a PCI Express endpoint with registers (BAR 0), doorbell pages (BAR 2)
 * and MSI-X (BAR 4), and its properties. The way to guest memory is in ochre-ram.c, what the device does in the
 * core (ochre-core.h).
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/rcu.h"
#include "qemu/thread.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "hw/pci/msix.h"
#include "hw/pci/pci.h"
#include "hw/pci/pci_device.h"
#include "hw/pci/pcie.h"
#include "hw/qdev-properties.h"
#include "migration/vmstate.h"
#include "qom/object.h"
#include "system/runstate.h"
#include "system/system.h"
#include "ochre-core.h"
#include "ochre-ram.h"

#define TYPE_OCHRE_HCA "ochre-hca"
OBJECT_DECLARE_SIMPLE_TYPE(OchreHca, OCHRE_HCA)

#define OCHRE_PCIE_CAP_OFFSET 0x80

struct OchreHca {
    PCIDevice parent_obj;

    MemoryRegion regs;
    MemoryRegion doorbells;
    MemoryRegion msix;
    OchreLayout layout;

    OchreCore *core;
    QemuThread service;
    Notifier exit_notifier;
    VMChangeStateEntry *vm_state;

    OchreRamMap ram;

    uint8_t ports;
    uint16_t vectors;
    bool crc;
    char *link[OCHRE_MAX_PORTS];
    char *node_guid;
    char *capture;
    char *speed;
    char *width;
    uint64_t drain[OCHRE_MAX_PORTS];
    bool plugged[OCHRE_MAX_PORTS];
    char *faults[OCHRE_MAX_PORTS];
    bool capturing;
};

/* Guest memory */

static int ochre_with_memory(void *opaque, uint64_t addr, uint64_t size,
                             bool is_write, OchreUseMemory *use, void *context)
{
    OchreHca *s = opaque;

    return ochre_ram_access(pci_get_address_space(&s->parent_obj), addr, size,
                            is_write, use, context);
}

/* Interrupts */

static void ochre_raise(void *opaque, uint64_t vectors)
{
    OchreHca *s = opaque;
    bool locked = bql_locked();

    /* A bottom half would cost ten times the latency of taking the lock here. */
    if (!locked) {
        bql_lock();
    }
    while (vectors) {
        unsigned vector = ctz64(vectors);

        vectors &= vectors - 1;
        if (vector < s->vectors) {
            msix_notify(&s->parent_obj, vector);
        }
    }
    if (!locked) {
        bql_unlock();
    }
}

static void ochre_report(void *opaque, const char *message)
{
    OchreHca *s = opaque;
    const char *id = DEVICE(s)->id;

    warn_report("%s: %s", id ? id : TYPE_OCHRE_HCA, message);
}

/* Registers and doorbells */

static uint64_t ochre_regs_read(void *opaque, hwaddr addr, unsigned size)
{
    OchreHca *s = opaque;

    return s->core ? ochre_core_reg_read(s->core, addr, size) : 0;
}

static void ochre_regs_write(void *opaque, hwaddr addr, uint64_t value,
                             unsigned size)
{
    OchreHca *s = opaque;

    if (s->core) {
        ochre_core_reg_write(s->core, addr, value, size);
    }
}

static uint64_t ochre_doorbells_read(void *opaque, hwaddr addr, unsigned size)
{
    return 0;
}

static void ochre_doorbells_write(void *opaque, hwaddr addr, uint64_t value,
                                  unsigned size)
{
    OchreHca *s = opaque;

    if (s->core) {
        ochre_core_doorbell(s->core, addr, value, size);
    }
}

/* Which sizes mean something is the core's business: it sees each access as the guest made it. */
static const MemoryRegionOps ochre_regs_ops = {
    .read = ochre_regs_read,
    .write = ochre_regs_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

static const MemoryRegionOps ochre_doorbells_ops = {
    .read = ochre_doorbells_read,
    .write = ochre_doorbells_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

/* Life */

static void *ochre_service(void *opaque)
{
    OchreHca *s = opaque;

    rcu_register_thread();
    ochre_core_service(s->core);
    rcu_unregister_thread();
    return NULL;
}

static void ochre_write_config(PCIDevice *pdev, uint32_t addr, uint32_t val,
                               int len)
{
    pci_default_write_config(pdev, addr, val, len);
    pcie_cap_flr_write_config(pdev, addr, val, len);
}

/* The machine stops or goes on, as by the monitor. Its processors stand still when this is called. */
static void ochre_vm_state(void *opaque, bool running, RunState state)
{
    OchreHca *s = opaque;

    ochre_core_set_paused(s->core, !running);
}

/* QEMU ends without unplugging its devices. */
static void ochre_at_exit(Notifier *notifier, void *data)
{
    OchreHca *s = container_of(notifier, OchreHca, exit_notifier);

    ochre_core_flush_capture(s->core);
}

static void ochre_realize(PCIDevice *pdev, Error **errp)
{
    OchreHca *s = OCHRE_HCA(pdev);
    OchreLayout *layout = &s->layout;
    OchreConfig config = {
        .abi = OCHRE_CORE_ABI,
        .ports = s->ports,
        .vectors = s->vectors,
        .crc = s->crc,
        .node_guid = s->node_guid,
        .capture = s->capture,
        .speed = s->speed,
        .width = s->width,
    };
    OchreHost host = {
        .opaque = s,
        .ram_dirty = ochre_ram_dirty,
        .with_memory = ochre_with_memory,
        .burst = ochre_ram_burst,
        .raise = ochre_raise,
        .report = ochre_report,
    };
    g_autofree char *name = NULL;
    char message[512] = "";
    int i;

    if (!pci_bus_is_express(pci_get_bus(pdev))) {
        error_setg(errp, "ochre-hca is a PCI Express device; its bus is not "
                   "(use -machine q35)");
        return;
    }
    ochre_core_layout(layout);
    if (s->vectors < 1 || s->vectors > layout->max_vectors) {
        error_setg(errp, "vectors is %u, it can be 1 to %u", s->vectors,
                   layout->max_vectors);
        return;
    }

    memory_region_init_io(&s->regs, OBJECT(s), &ochre_regs_ops, s,
                          "ochre-regs", layout->bar_regs_size);
    pci_register_bar(pdev, layout->bar_regs,
                     PCI_BASE_ADDRESS_MEM_TYPE_64, &s->regs);
    memory_region_init_io(&s->doorbells, OBJECT(s), &ochre_doorbells_ops, s,
                          "ochre-doorbells", layout->bar_doorbells_size);
    pci_register_bar(pdev, layout->bar_doorbells,
                     PCI_BASE_ADDRESS_MEM_TYPE_64 |
                     PCI_BASE_ADDRESS_MEM_PREFETCH, &s->doorbells);
    memory_region_init(&s->msix, OBJECT(s), "ochre-msix",
                       layout->bar_msix_size);
    pci_register_bar(pdev, layout->bar_msix,
                     PCI_BASE_ADDRESS_MEM_TYPE_64, &s->msix);

    if (pcie_endpoint_cap_init(pdev, OCHRE_PCIE_CAP_OFFSET) < 0) {
        error_setg(errp, "cannot add the PCI Express capability");
        return;
    }
    pcie_cap_flr_init(pdev);
    if (msix_init(pdev, s->vectors, &s->msix, layout->bar_msix, 0, &s->msix,
                  layout->bar_msix, layout->msix_pba_offset, 0, errp) < 0) {
        pcie_cap_exit(pdev);
        return;
    }
    for (i = 0; i < s->vectors; i++) {
        msix_vector_use(pdev, i);
    }

    for (i = 0; i < OCHRE_MAX_PORTS; i++) {
        config.link[i] = s->link[i];
    }
    s->core = ochre_core_new(&config, &host, message, sizeof(message));
    if (!s->core) {
        error_setg(errp, "%s", message);
        msix_uninit(pdev, &s->msix, &s->msix);
        pcie_cap_exit(pdev);
        return;
    }
    for (i = 0; i < OCHRE_MAX_PORTS; i++) {
        if (s->faults[i] && !ochre_core_set_faults(s->core, i, s->faults[i],
                                                   message, sizeof(message))) {
            error_setg(errp, "faults%d: %s", i, message);
            ochre_core_free(s->core);
            s->core = NULL;
            msix_uninit(pdev, &s->msix, &s->msix);
            pcie_cap_exit(pdev);
            return;
        }
    }
    for (i = 0; i < s->ports; i++) {
        ochre_core_set_drain(s->core, i, s->drain[i]);
        ochre_core_set_plugged(s->core, i, s->plugged[i]);
    }
    ochre_core_set_capturing(s->core, s->capturing);
    ochre_ram_start(&s->ram, pci_get_address_space(pdev), s->core);
    name = g_strdup_printf("ochre/%s", pdev->qdev.id ? pdev->qdev.id : "hca");
    qemu_thread_create(&s->service, name, ochre_service, s,
                       QEMU_THREAD_JOINABLE);
    ochre_core_set_paused(s->core, !runstate_is_running());
    s->vm_state = qdev_add_vm_change_state_handler(DEVICE(pdev), ochre_vm_state,
                                                   s);
    s->exit_notifier.notify = ochre_at_exit;
    qemu_add_exit_notifier(&s->exit_notifier);
}

static void ochre_exit(PCIDevice *pdev)
{
    OchreHca *s = OCHRE_HCA(pdev);

    qemu_remove_exit_notifier(&s->exit_notifier);
    qemu_del_vm_change_state_handler(s->vm_state);
    /* The service thread may be waiting for the BQL, to raise an interrupt. */
    ochre_core_stop(s->core);
    bql_unlock();
    qemu_thread_join(&s->service);
    bql_lock();

    ochre_ram_stop(&s->ram);
    ochre_core_free(s->core);
    s->core = NULL;
    msix_unuse_all_vectors(pdev);
    msix_uninit(pdev, &s->msix, &s->msix);
    pcie_cap_exit(pdev);
}

/* Cold reset, FLR, and the reset of the machine. */
static void ochre_reset(DeviceState *dev)
{
    OchreHca *s = OCHRE_HCA(dev);

    if (s->core) {
        ochre_core_reset(s->core);
    }
}

/* Properties */

static const Property ochre_properties[] = {
    DEFINE_PROP_UINT8("ports", OchreHca, ports, 1),
    DEFINE_PROP_UINT16("vectors", OchreHca, vectors, 8),
    DEFINE_PROP_STRING("link0", OchreHca, link[0]),
    DEFINE_PROP_STRING("link1", OchreHca, link[1]),
    DEFINE_PROP_STRING("node-guid", OchreHca, node_guid),
    DEFINE_PROP_STRING("capture", OchreHca, capture),
    DEFINE_PROP_BOOL("crc", OchreHca, crc, true),
    DEFINE_PROP_STRING("speed", OchreHca, speed),
    DEFINE_PROP_STRING("width", OchreHca, width),
};

static const struct {
    const char *name, *text;
} ochre_help[] = {
    { "ports", "number of ports, 1 or 2" },
    { "vectors", "MSI-X vectors: one for events and commands, the others for "
                 "completions (1 to 64)" },
    { "link0", "Unix socket path of port 1's link; the first end to come "
               "listens there, the other connects" },
    { "link1", "the same for port 2" },
    { "node-guid", "node GUID, 16 hexadecimal digits; made from the link's "
                   "path and the process id if not given" },
    { "capture", "file that gets all packets of all ports, as ERF records" },
    { "crc", "compute and check ICRC and VCRC of each packet" },
    { "speed", "fastest lane speed: sdr, ddr, qdr, fdr, edr, hdr, ndr, xdr "
               "(default: edr)" },
    { "width", "widest link: 1x, 2x, 4x, 8x, 12x (default: 4x)" },
};

/* drain0, drain1: settable while the device lives. */
static void ochre_get_drain(Object *obj, Visitor *v, const char *name,
                            void *opaque, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);
    uint32_t port = (uintptr_t)opaque;
    uint64_t rate = s->core ? ochre_core_drain(s->core, port) : s->drain[port];

    visit_type_uint64(v, name, &rate, errp);
}

static void ochre_set_drain(Object *obj, Visitor *v, const char *name,
                            void *opaque, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);
    uint32_t port = (uintptr_t)opaque;
    uint64_t rate;

    if (!visit_type_uint64(v, name, &rate, errp)) {
        return;
    }
    s->drain[port] = rate;
    if (s->core) {
        ochre_core_set_drain(s->core, port, rate);
    }
}

/* plugged0, plugged1: pull a port's cable and put it back. */
static void ochre_get_plugged(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);
    uint32_t port = (uintptr_t)opaque;
    bool value = s->core ? ochre_core_plugged(s->core, port) : s->plugged[port];

    visit_type_bool(v, name, &value, errp);
}

static void ochre_set_plugged(Object *obj, Visitor *v, const char *name,
                              void *opaque, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);
    uint32_t port = (uintptr_t)opaque;
    bool value;

    if (!visit_type_bool(v, name, &value, errp)) {
        return;
    }
    s->plugged[port] = value;
    if (s->core) {
        ochre_core_set_plugged(s->core, port, value);
    }
}

/* faults0, faults1: rules for wire faults. Reading gives them with their counts. */
static void ochre_get_faults(Object *obj, Visitor *v, const char *name,
                             void *opaque, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);
    uint32_t port = (uintptr_t)opaque;
    char *text;

    if (s->core) {
        text = ochre_core_faults(s->core, port);
        visit_type_str(v, name, &text, errp);
        ochre_core_free_text(text);
    } else {
        g_autofree char *kept = g_strdup(s->faults[port] ?: "");

        text = kept;
        visit_type_str(v, name, &text, errp);
    }
}

static void ochre_set_faults(Object *obj, Visitor *v, const char *name,
                             void *opaque, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);
    uint32_t port = (uintptr_t)opaque;
    g_autofree char *rules = NULL;
    char message[512] = "";

    if (!visit_type_str(v, name, &rules, errp)) {
        return;
    }
    if (s->core && !ochre_core_set_faults(s->core, port, rules, message,
                                          sizeof(message))) {
        error_setg(errp, "%s: %s", name, message);
        return;
    }
    g_free(s->faults[port]);
    s->faults[port] = g_steal_pointer(&rules);
}

/* capturing: pause the capture and go on with it. */
static bool ochre_get_capturing(Object *obj, Error **errp)
{
    return OCHRE_HCA(obj)->capturing;
}

static void ochre_set_capturing(Object *obj, bool value, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);

    s->capturing = value;
    if (s->core) {
        ochre_core_set_capturing(s->core, value);
    }
}

/* objects: what the guest has made and not destroyed. */
static char *ochre_get_objects(Object *obj, Error **errp)
{
    OchreHca *s = OCHRE_HCA(obj);
    char *text, *copy;

    if (!s->core) {
        return g_strdup("");
    }
    text = ochre_core_objects(s->core);
    copy = g_strdup(text);
    ochre_core_free_text(text);
    return copy;
}

static void ochre_instance_init(Object *obj)
{
    OchreHca *s = OCHRE_HCA(obj);
    int i;

    for (i = 0; i < OCHRE_MAX_PORTS; i++) {
        s->plugged[i] = true;
    }
    s->capturing = true;
    PCI_DEVICE(obj)->cap_present |= QEMU_PCI_CAP_EXPRESS;
}

static void ochre_instance_finalize(Object *obj)
{
    OchreHca *s = OCHRE_HCA(obj);
    int i;

    for (i = 0; i < OCHRE_MAX_PORTS; i++) {
        g_free(s->faults[i]);
    }
}

static const VMStateDescription ochre_vmstate = {
    .name = TYPE_OCHRE_HCA,
    .unmigratable = 1,
};

static void ochre_class_init(ObjectClass *klass, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(klass);
    OchreLayout layout;
    size_t i;
    uintptr_t port;

    ochre_core_layout(&layout);
    pc->realize = ochre_realize;
    pc->exit = ochre_exit;
    pc->config_write = ochre_write_config;
    pc->vendor_id = layout.vendor_id;
    pc->device_id = layout.device_id;
    pc->revision = layout.revision;
    pc->class_id = layout.class_id;

    dc->desc = "Ochre virtual InfiniBand host channel adapter";
    dc->vmsd = &ochre_vmstate;
    set_bit(DEVICE_CATEGORY_NETWORK, dc->categories);
    device_class_set_legacy_reset(dc, ochre_reset);
    device_class_set_props(dc, ochre_properties);
    for (i = 0; i < ARRAY_SIZE(ochre_help); i++) {
        object_class_property_set_description(klass, ochre_help[i].name,
                                              ochre_help[i].text);
    }
    for (port = 0; port < OCHRE_MAX_PORTS; port++) {
        g_autofree char *drain = g_strdup_printf("drain%u", (unsigned)port);
        g_autofree char *plugged = g_strdup_printf("plugged%u", (unsigned)port);
        g_autofree char *faults = g_strdup_printf("faults%u", (unsigned)port);

        object_class_property_add(klass, drain, "uint64", ochre_get_drain,
                                  ochre_set_drain, NULL, (void *)port);
        object_class_property_set_description(klass, drain,
            "bytes per second that the port's receiver takes in, 0 for no "
            "limit; may be set at any time");
        object_class_property_add(klass, plugged, "bool", ochre_get_plugged,
                                  ochre_set_plugged, NULL, (void *)port);
        object_class_property_set_description(klass, plugged,
            "whether the cable is plugged; may be set at any time");
        object_class_property_add(klass, faults, "str", ochre_get_faults,
                                  ochre_set_faults, NULL, (void *)port);
        object_class_property_set_description(klass, faults,
            "rules for wire faults, separated by ';', or @FILE (see "
            "FAULTS.md); may be set at any time, reading adds counts");
    }
    object_class_property_add_bool(klass, "capturing", ochre_get_capturing,
                                   ochre_set_capturing);
    object_class_property_set_description(klass, "capturing",
        "whether packets go to the capture file; may be set at any time");
    object_class_property_add_str(klass, "objects", ochre_get_objects, NULL);
    object_class_property_set_description(klass, "objects",
        "how many objects of each kind the guest has in the device; read only");
}

static const TypeInfo ochre_info = {
    .name = TYPE_OCHRE_HCA,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(OchreHca),
    .instance_init = ochre_instance_init,
    .instance_finalize = ochre_instance_finalize,
    .class_init = ochre_class_init,
    .interfaces = (InterfaceInfo[]) {
        { INTERFACE_PCIE_DEVICE },
        { }
    },
};

static void ochre_register(void)
{
    type_register_static(&ochre_info);
}

type_init(ochre_register)
