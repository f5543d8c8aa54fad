"""Coverage counters of ovs-vswitchd that count what went wrong, or was in the way, and what each means."""

from typing import Dict, Mapping

DROPS: Dict[str, str] = {
    "datapath_drop_lock_error": "packets without a flow were lost while flows were put",
    "datapath_drop_rx_invalid_packet": "packets came in that are malformed",
    "datapath_drop_userspace_action_error": "packets for a controller or sFlow were lost",
    "datapath_drop_tunnel_push_error": "packets could not be put into a tunnel",
    "datapath_drop_tunnel_pop_error": "packets could not be taken out of a tunnel",
    "datapath_drop_recirc_error": "packets went through the datapath too often",
    "datapath_drop_invalid_port": "packets were for a port that does not exist",
    "datapath_drop_invalid_bond": "packets were for a bond that does not exist",
    "datapath_drop_invalid_tnl_port": "packets were for a tunnel that does not exist",
    "datapath_drop_sample_error": "sampled packets were lost",
    "datapath_drop_nsh_decap_error": "packets had no valid service header",
    "datapath_drop_hw_miss_recover": "packets that the hardware had begun could not be gone on with",
    "drop_action_recursion_too_deep": "rules lead too deep into each other",
    "drop_action_too_many_resubmit": "rules send packets through too many tables",
    "drop_action_stack_too_deep": "rules put too much on their stack",
    "drop_action_no_recirculation_context": "packets came back that nobody remembers",
    "drop_action_recirculation_conflict": "packets came back to other rules than they left",
    "drop_action_too_many_mpls_labels": "packets had too many MPLS labels",
    "drop_action_invalid_tunnel_metadata": "tunnel options were not valid",
    "drop_action_unsupported_packet_type": "packets were of a type that is not supported",
    "drop_action_congestion": "packets with a congestion mark could not leave their tunnel",
    "drop_action_forwarding_disabled": "packets came to a port that does not forward (STP, bond)",
    "netdev_geneve_tso_drops": "large packets could not be cut for Geneve",
    "netdev_vxlan_tso_drops": "large packets could not be cut for VXLAN",
    "netdev_push_header_drops": "packets could not get the header of a tunnel",
    "netdev_soft_seg_drops": "large packets could not be cut in software",
    "dpif_execute_error": "packets that ovs-vswitchd sends itself were refused",
    "conntrack_full": "the table of connections is full",
    "conntrack_zone_full": "a zone has all the connections that it may have",
    "conntrack_l3csum_err": "packets for connection tracking had a wrong IP checksum",
    "conntrack_l4csum_err": "packets for connection tracking had a wrong checksum of TCP or UDP",
}
"""Each of these is a packet that was lost, or a few."""
OTHERS: Dict[str, str] = {
    "datapath_drop_meter": "a meter was exceeded",
    "vhost_tx_contention": "threads waited for each other, to send into one queue of a VM",
    "upcall_flow_limit_hit": "new flows were not kept, the flow table is full",
    "dpif_flow_put_error": "flows were refused by the datapath",
    "packet_in_overflow": "a controller did not take packets as fast as they came",
}
MEANINGS: Mapping[str, str] = {**DROPS, **OTHERS}
