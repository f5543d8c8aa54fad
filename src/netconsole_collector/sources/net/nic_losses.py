"""What a counter of ethtool -S means, for those that mean a loss or explain one. N stands for any number.

Such a number is that of a queue, a priority or a class. Names are of Linux 6.18: ixgbe/ixgbe_ethtool.c,
i40e/i40e_ethtool.c and ice/ice_ethtool.c of drivers/net/ethernet/intel, mellanox/mlx5/core/en_stats.c (meanings:
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst), broadcom/bnxt/bnxt_ethtool.c,
drivers/net/virtio_net.c, drivers/net/veth.c.
"""

import re
from typing import NamedTuple, Optional

_NUMBER = re.compile(r"\d+")

# Packets that are gone.
LOSS = {
    # ixgbe, i40e: of the device
    "rx_missed_errors": "no room in the NIC: the host takes packets too slowly",
    "rx_no_dma_resources": "no free buffer in the receive ring",
    "alloc_rx_page_failed": "no memory for a receive buffer",
    "alloc_rx_buff_failed": "no memory for a packet that came in",
    "rx_length_errors": "received with a wrong length",
    "rx_long_length_errors": "received, and longer than allowed",
    "rx_short_length_errors": "received, and shorter than allowed",
    "rx_crc_errors": "received with a wrong checksum of the frame: cable, optics or port",
    "rx_fcoe_dropped": "FCoE frame was dropped",
    "tx_aborted_errors": "sending was given up",
    "tx_carrier_errors": "sent without a carrier",
    # i40e, ice
    "rx_dropped": "received and dropped by the device: no free buffer",
    "tx_dropped": "not sent, dropped by device or driver",
    "rx_alloc_fail": "no memory for a receive buffer",
    "rx_pg_alloc_fail": "no memory for a receive buffer (page)",
    "veb.rx_discards": "dropped in the NIC's own switch, on receiving",
    "veb.tx_discards": "dropped in the NIC's own switch, on sending",
    "port.tx_dropped_link_down": "not sent: the link is down",
    "port.rx_crc_errors": "received with a wrong checksum of the frame: cable, optics or port",
    "port.rx_length_errors": "received with a wrong length",
    "port.rx_undersize": "received, and shorter than allowed",
    "port.rx_fragments": "received in pieces: too short, and with a wrong checksum",
    "port.rx_oversize": "received, and longer than allowed",
    "port.rx_jabber": "received, too long and with a wrong checksum",
    "port.tx_errors": "not sent because of errors",
    "rx_dropped.nic": "no room in the port's packet buffer",
    "tx_dropped_link_down.nic": "not sent: the link is down",
    "rx_crc_errors.nic": "received with a wrong checksum of the frame: cable, optics or port",
    "rx_undersize.nic": "received, and shorter than allowed",
    "rx_fragments.nic": "received in pieces: too short, and with a wrong checksum",
    "rx_oversize.nic": "received, and longer than allowed",
    "rx_jabber.nic": "received, too long and with a wrong checksum",
    "tx_errors.nic": "not sent because of errors",
    # mlx5
    "rx_out_of_buffer": "no free buffer in the receive ring: the host is late",
    "rx_if_down_packets": "received while the interface was down",
    "rx_steer_missed_packets": "no rule of the NIC's flow table fits",
    "rx_discards_phy": "no room in the port's receive buffer",
    "tx_discards_phy": "dropped by the port on sending",
    "tx_errors_phy": "not sent because of errors at the port",
    "rx_crc_errors_phy": "received with a wrong checksum of the frame: cable, optics or port",
    "rx_in_range_len_errors_phy": "received with a wrong length",
    "rx_out_of_range_len_phy": "received with a length that is not allowed",
    "rx_oversize_pkts_phy": "received, and longer than allowed",
    "rx_undersize_pkts_phy": "received, and shorter than allowed",
    "rx_fragments_phy": "received in pieces: too short, and with a wrong checksum",
    "rx_jabbers_phy": "received, too long and with a wrong checksum",
    "rx_unsupported_op_phy": "control frame that the port does not know",
    "rx_oversize_pkts_sw_drop": "received, and longer than the MTU",
    "rx_oversize_pkts_buffer": "received, and longer than the buffer",
    "rx_wqe_err": "receive buffer that the NIC could not use",
    "rx_xdp_drop": "dropped by an XDP program",
    "rx_xdp_tx_full": "not sent back by XDP: the ring is full",
    "rx_xdp_tx_err": "not sent back by XDP: error",
    "tx_xdp_full": "not redirected by XDP: the ring is full",
    "tx_xdp_err": "not redirected by XDP: error",
    "tx_queue_dropped": "not sent: dropped by the driver",
    "tx_cqe_err": "not sent: the NIC says error",
    "tx_tls_drop_no_sync_data": "TLS record was not sent: its key is out of step",
    "dev_internal_queue_oob": "dropped in the NIC: an internal queue is full",
    # bnxt
    "rx_fcs_err_frames": "received with a wrong checksum of the frame: cable, optics or port",
    "rx_align_err_frames": "received with bits missing",
    "rx_ovrsz_frames": "received, and longer than allowed",
    "rx_jbr_frames": "received, too long and with a wrong checksum",
    "rx_mtu_err_frames": "received, and longer than the MTU",
    "rx_undrsz_frames": "received, and shorter than allowed",
    "rx_runt_frames": "received, and shorter than a frame can be",
    "rx_stat_discard": "no room in the port's receive buffer",
    "rx_stat_err": "received with errors at the port",
    "rx_filter_miss": "no filter of the NIC takes it",
    "rx_total_ring_discards": "no free buffer in a receive ring: the host is late",
    "rx_total_oom_discards": "no memory for a packet that came in",
    "rx_total_netpoll_discards": "dropped while the network console was sending",
    "rx_total_buf_errors": "receive buffer that the NIC could not use",
    "tx_total_ring_discards": "dropped by the NIC's send rings",
    "tx_stat_discard": "dropped by the port on sending",
    "tx_stat_error": "not sent because of errors at the port",
    "tx_err": "not sent because of errors",
    "tx_fcs_err_frames": "sent with a wrong checksum of the frame",
    "tx_fifo_underruns": "not sent: data came too slowly from the host",
    "tx_jabber_frames": "sent, and longer than allowed",
    # virtio_net (rxN_, before 6.6 rx_queue_N_) and veth (rx_queue_N_), of each queue. What XDP drops is in
    # rxN_drops of virtio_net, and not in rx_queue_N_drops of a veth.
    "rxN_drops": "dropped by the driver on receiving: no memory, or not a packet",
    "rx_queue_N_drops": "dropped by the driver on receiving: no memory, or not a packet",
    "rx_queue_N_xdp_drops": "dropped by an XDP program",
    "txN_xdp_tx_drops": "not sent by XDP: the ring is full",
    "tx_queue_N_xdp_tx_drops": "not sent by XDP: the ring is full",
    "rx_queue_N_xdp_tx_errors": "not sent back by XDP: error",
    "tx_queue_N_xdp_xmit_errors": "not redirected by XDP: error",
    "rxN_hw_drops": "dropped by the host of this VM: it has no free buffer, or no room",
    "txN_hw_drops": "dropped by the host of this VM on sending",
    "rxN_hw_ratelimit_packets": "over the limit that the host sets for packets received",
    "txN_hw_ratelimit_packets": "over the limit that the host sets for packets sent",
}

# A share of another counter of the same device, by queue or by cause: shown, but not added up.
PART = {
    "port.rx_discards": "no room in the port's packet buffer: since Linux 6.6 in rx_missed_errors, too",
    # the sums that the kernel makes of several counters are in the device's own statistics (ip -s link)
    "rx_errors": "all that was received with errors",
    "tx_errors": "all that was not sent because of errors",
    "veb.tx_errors": "errors of the NIC's own switch",
    "rx_over_errors": "no room in the NIC (0 with this driver)",
    "rx_fifo_errors": "no room in the NIC",
    "rx_frame_errors": "received with bits missing",
    "tx_fifo_errors": "data came too slowly from the host",
    "tx_heartbeat_errors": "no heartbeat from the transceiver",
    "rx_no_buffer_count": "no free buffer when a packet came: it may have waited",
    "rx_unknown_protocol": "packet of a kind that the device does not know",
    "veb.rx_unknown_protocol": "packet of a kind that the NIC's own switch does not know",
    "port.illegal_bytes": "symbols on the wire that are no data",
    "illegal_bytes.nic": "symbols on the wire that are no data",
    # checksums that are wrong inside a packet: the packet goes on to the stack, which drops and counts it
    "rx_csum_offload_errors": "checksum inside a packet is wrong: the stack drops it",
    "port.rx_csum_bad": "checksum inside a packet is wrong: the stack drops it",
    "rx_csum_bad.nic": "checksum inside a packet is wrong: the stack drops it",
    "rx_eipe_error.nic": "checksum of an inner IP header is wrong: the stack drops it",
    "rx_total_lN_csum_errors": "checksum inside a packet is wrong: the stack drops it",
    "[N]: rx_lN_csum_errors": "checksum inside a packet is wrong: the stack drops it",
    # mlx5
    "rx_prioN_discards": "no room in the port's buffer of this priority",
    "rx_prioN_buf_discard": "no room in the port's buffer of this priority",
    "rx_buff_alloc_err": "no memory for a receive buffer: the ring may run dry",
    "rxN_buff_alloc_err": "no memory for a receive buffer: the ring may run dry",
    "rxN_oversize_pkts_sw_drop": "received, and longer than the MTU",
    "rxN_wqe_err": "receive buffer that the NIC could not use",
    "rxN_xdp_drop": "dropped by an XDP program",
    "txN_dropped": "not sent: dropped by the driver",
    "txN_cqe_err": "not sent: the NIC says error",
    "rx_xsk_xdp_drop": "dropped by an XDP program",
    "rx_xsk_wqe_err": "receive buffer that the NIC could not use",
    "rx_xsk_oversize_pkts_sw_drop": "received, and longer than the MTU",
    "rx_xsk_buff_alloc_err": "no memory for a receive buffer: the ring may run dry",
    "tx_xsk_full": "AF_XDP: the ring is full",
    "tx_xsk_err": "AF_XDP: not sent, error",
    "rx_symbol_err_phy": "symbols on the wire that are no data",
    "rx_pcs_symbol_err_phy": "symbols on the wire that could not be corrected",
    # bnxt
    "[N]: rx_discards": "no free buffer in this receive ring: the host is late",
    "[N]: rx_errors": "received with errors by this ring",
    "[N]: tx_discards": "dropped by this send ring",
    "[N]: tx_errors": "not sent by this ring because of errors",
    "[N]: rx_buf_errors": "receive buffer that the NIC could not use",
    "[N]: rx_tpa_errors": "packets that could not be joined",
    "rx_discard_packets_cosN": "no room in the port's buffer of this class",
    "rx_discard_bytes_cosN": "bytes, no room in the port's buffer of this class",
    "rx_pcs_symbol_err": "symbols on the wire that are no data",
    "rx_fec_uncorrectable_blocks": "blocks on the wire that could not be corrected",
    "rxN_xdp_drops": "dropped by an XDP program",
    # virtio_net: of all queues together
    "rx_drops": "dropped by the driver on receiving, all queues",
    "rx_xdp_drops": "dropped by an XDP program, all queues",
    "tx_xdp_tx_drops": "not sent by XDP, all queues",
    "rx_hw_drops": "dropped by the host of this VM, all queues",
    "rx_hw_drop_overruns": "dropped by the host of this VM: no free buffer, all queues",
    "rxN_hw_drop_overruns": "dropped by the host of this VM: no free buffer",
    "tx_hw_drops": "dropped by the host of this VM on sending, all queues",
    "tx_hw_drop_malformed": "dropped by the host of this VM: not a packet, all queues",
    "txN_hw_drop_malformed": "dropped by the host of this VM: not a packet",
    "rx_hw_ratelimit_packets": "over the limit that the host sets, all queues",
    "tx_hw_ratelimit_packets": "over the limit that the host sets for sending, all queues",
}

# No packet is lost by it, but it explains losses (pause frames, a queue that was stopped).
SIGN = {
    "tx_busy": "the send ring was full: the packet waits in the qdisc",
    "tx_restart_queue": "a send queue was stopped, and started again",
    "tx_restart": "a send queue was stopped, and started again",
    "tx_stopped": "a send queue was stopped",
    "tx_timeout_count": "the device did not send for seconds, and was reset",
    "port.tx_timeout": "the device did not send for seconds, and was reset",
    "tx_timeout.nic": "the device did not send for seconds, and was reset",
    "txN_tx_timeouts": "the device did not send for seconds",
    "tx_queue_N_tx_timeouts": "the device did not send for seconds",
    "rx_flow_control_xoff": "the switch asked us to pause",
    "tx_flow_control_xoff": "we asked the switch to pause: the host is late",
    "port.link_xoff_rx": "the switch asked us to pause",
    "port.link_xoff_tx": "we asked the switch to pause: the host is late",
    "link_xoff_rx.nic": "the switch asked us to pause",
    "link_xoff_tx.nic": "we asked the switch to pause: the host is late",
    "port.rx_priority_N_xoff_rx": "the switch asked us to pause this priority",
    "port.tx_priority_N_xoff_tx": "we asked the switch to pause this priority",
    "rx_pause_ctrl_phy": "the switch asked us to pause",
    "tx_pause_ctrl_phy": "we asked the switch to pause: the host is late",
    "rx_prioN_pause": "the switch asked us to pause this priority",
    "tx_prioN_pause": "we asked the switch to pause this priority",
    "tx_pause_storm_error_events": "pause for too long: the port stopped asking",
    "tx_queue_stopped": "a send queue was stopped",
    "link_down_events_phy": "the link went down",
    "outbound_pci_stalled_rd": "percent of time that the NIC waited for the host's memory, reading",
    "outbound_pci_stalled_wr": "percent of time that the NIC waited for the host's memory, writing",
    "outbound_pci_buffer_overflow": "no room on the way to the host's memory",
    "rx_buffer_passed_thres_phy": "the port's receive buffer was almost full",
    "rx_buffer_passed_threshold": "the port's receive buffer was almost full",
    "rx_pause_frames": "the switch asked us to pause",
    "tx_pause_frames": "we asked the switch to pause: the host is late",
    "rx_pfc_frames": "the switch asked us to pause a priority",
    "tx_pfc_frames": "we asked the switch to pause a priority",
    "link_down_events": "the link went down",
    "continuous_pause_events": "pause for too long",
    "total_missed_irqs": "an interrupt was missed: the driver found the work later",
    "[N]: missed_irqs": "an interrupt was missed: the driver found the work later",
    "rx_total_resets": "a receive ring was reset",
    "tx_total_resets": "a send ring was reset",
    "port.mac_local_faults": "this end of the link saw a fault",
    "port.mac_remote_faults": "the other end of the link saw a fault",
    "mac_local_faults.nic": "this end of the link saw a fault",
    "mac_remote_faults.nic": "the other end of the link saw a fault",
    "port.rx_priority_N_xon_N_xoff": "this priority went from running to paused",
    "fdir_overflow": "the NIC's flow table is full: packets take another queue",
}


class LossMeaning(NamedTuple):
    """What a counter means: ``kind`` is loss, part or sign."""

    kind: str
    text: str


MEANINGS = {
    name: LossMeaning(kind, text)
    for kind, words in (("loss", LOSS), ("part", PART), ("sign", SIGN))
    for name, text in words.items()
}
"""By the name of any queue."""


def of_any_queue(name: str) -> str:
    """``rxN_drops`` of rx3_drops: the name of a counter, whatever queue or priority it is of."""
    return _NUMBER.sub("N", name)


def meaning(name: str) -> Optional[LossMeaning]:
    """Of a counter by its name. None: not known as a loss."""
    return MEANINGS.get(of_any_queue(name))
