/* fragment.h - a packet whose headers are not in the linear data.
 *
 * virtio_net leaves all behind the link header of a packet of more than some 100 bytes in the first fragment (page_to_skb in
 * drivers/net/virtio_net.c), and IP pulls it into the linear data only later. A fragment is a struct page: where the memory lies that it
 * stands for, two variables of x86-64 say (arch/x86/mm/kaslr.c). On other machines, and where these are not known, such a packet
 * cannot be read, and is counted. */
#ifndef NETCONSOLE_FRAGMENT_H
#define NETCONSOLE_FRAGMENT_H

#include "netconsole.h"

#define PAGE_MAP_BYTES 64      /* of struct page on x86-64 (_struct_page_alignment in include/linux/mm_types.h) */
#define PAGE_MAP_SHIFT 12

struct page_map {
    u64 page_offset_base;       /* addresses of the variables of these names; 0: not known. The collector fills them in */
    u64 vmemmap_base;
};
BPF_ARRAY(nc_page_map, struct page_map, 1);

struct page_fragment {          /* skb_frag_t: bio_vec before 6.9, then netmem, length and offset */
    u64 storage;
    u32 length;
    u32 offset;
};

/* Goes on to the first fragment, as if it lay behind the linear data, which end at `end`: offsets go on. `size`: of the buffer that begins at
 * `head`. Returns 0 when it can be read. */
static inline int fragment_enter(unsigned char **head, u32 *end, u32 size)
{
    unsigned char *shared = *head + size;
    struct page_map *known;
    struct page_fragment fragment;
    u64 base, first;
    u32 zero = 0;

    known = nc_page_map.lookup(&zero);
    if (!known || !known->page_offset_base || !known->vmemmap_base || !NC_AT(u8, shared + offsetof(struct skb_shared_info, nr_frags)))
        return -1;
    if (bpf_probe_read_kernel(&fragment, sizeof(fragment), shared + offsetof(struct skb_shared_info, frags)))
        return -1;
    if (fragment.storage & 1)   /* memory of a device (NET_IOV in include/net/netmem.h) */
        return -1;
    base = NC_AT(u64, known->page_offset_base);
    first = NC_AT(u64, known->vmemmap_base);
    base += (fragment.storage - first) / PAGE_MAP_BYTES << PAGE_MAP_SHIFT;
    *head = (unsigned char *)(base + fragment.offset - *end);
    *end += fragment.length;
    return 0;
}

#endif /* NETCONSOLE_FRAGMENT_H */
