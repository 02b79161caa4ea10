# SPDX-License-Identifier: GPL-2.0-or-later
# The devices of Ochre's QEMU: what virtme-ng boots with, a few to test beside, and the HCA itself.
CONFIG_Q35=y
CONFIG_PCIE_PORT=y
CONFIG_SERIAL_ISA=y
CONFIG_WDT_IB6300ESB=y

CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_9P=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_RNG=y
CONFIG_VHOST_USER_FS=y

# Beside the HCA: an IOMMU, a disk to export over a fabric, QEMU's own teaching device.
CONFIG_VTD=y
CONFIG_NVME_PCI=y
CONFIG_EDU=y

CONFIG_OCHRE_HCA=y
