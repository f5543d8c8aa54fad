/* kernel_memory.h - how a probe reads the kernel's memory: every read goes through NC_GET, NC_READ or NC_HEADER. */
#ifndef NETCONSOLE_KERNEL_MEMORY_H
#define NETCONSOLE_KERNEL_MEMORY_H

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 5, 0)
#define bpf_probe_read_kernel bpf_probe_read
#endif

/* A BTF-typed program may load from kernel structures directly, by one instruction; a bad pointer reads as 0. Others call a helper. */
#if NC_DIRECT
#define NC_GET(pointer, member) ((pointer)->member)
#else
#define NC_GET(pointer, member) ({                                                      \
    typeof((pointer)->member) nc_value;                                                 \
    bpf_probe_read_kernel(&nc_value, sizeof(nc_value), &(pointer)->member);             \
    nc_value; })
#endif

/* Always by a helper: for pointers that the verifier does not know or does not trust. Not for the hot path. */
#define NC_READ(pointer, member) ({                                                     \
    typeof((pointer)->member) nc_value;                                                 \
    bpf_probe_read_kernel(&nc_value, sizeof(nc_value), &(pointer)->member);             \
    nc_value; })

/* Packets are bytes, not structures. From 6.2 a BTF-typed program may say what an address points to (bpf_rdonly_cast, which the
 * verifier removes: no call is made) and then load directly. BCC cannot call that function: it compiles a call of this number, and the
 * collector replaces the number. NC_HEADER(iphdr, BTF_ID_iphdr, ip, address) declares struct iphdr *ip, or a copy of it. */
#if NC_DIRECT && defined(HAVE_bpf_rdonly_cast) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static void *(*nc_rdonly_cast)(u64 address, u32 type) = (void *)0x7ffffff0;
#define NC_HEADER(type, id, name, address) struct type *name = nc_rdonly_cast(address, id)
#else
#define NC_HEADER(type, id, name, address)                                              \
    struct type name##_copy, *name = &name##_copy;                                      \
    bpf_probe_read_kernel(name, sizeof(*name), (void *)(address))
#endif

/* The n-th argument of a tracepoint. The function hides from BCC that it points into the kernel: BCC would turn loads into
 * helper calls. */
static inline void *nc_pointer(u64 value)
{
    return (void *)value;
}
#define NC_ARG(n) nc_pointer(ctx->args[n])

/* A program on a function of the kernel, at its entry or return, begins with `int name(void *ctx)`. Whether it is an fentry or a kprobe
 * program is decided when it is loaded, and so is where its arguments are (kernel/function_hooks.py): the source compiles a call of these
 * numbers, and the collector puts one load in its place. NC_PARAMETER(n) is the n-th argument (from 0), at the entry; NC_RESULT what
 * the function returns, at its return; NC_FUNCTION its address. Such programs read the kernel by NC_READ alone.
 *
 * A kprobe's program is skipped while any other one runs on its CPU, an fentry program only while it runs itself. So working memory per
 * CPU belongs to one program, and a counter that several programs add to is added to by one instruction. */
static u64 (*nc_parameter_0)(void *ctx) = (void *)0x7fffffe0;
static u64 (*nc_parameter_1)(void *ctx) = (void *)0x7fffffe1;
static u64 (*nc_parameter_2)(void *ctx) = (void *)0x7fffffe2;
static u64 (*nc_parameter_3)(void *ctx) = (void *)0x7fffffe3;
static u64 (*nc_parameter_4)(void *ctx) = (void *)0x7fffffe4;
static u64 (*nc_parameter_5)(void *ctx) = (void *)0x7fffffe5;
static u64 (*nc_function_result)(void *ctx) = (void *)0x7fffffe6;
static u64 (*nc_function_address)(void *ctx) = (void *)0x7fffffe7;
#define NC_PARAMETER(n) nc_number(nc_parameter_##n(ctx))

/* The verifier knows what the arguments of fentry point to, and then refuses what is done with their addresses as numbers: hashing them.
 * To it, a pointer that was negated is a number. */
static inline void *nc_number(u64 value)
{
    asm volatile("%0 = -%0\n%0 = -%0" : "+r"(value));
    return (void *)value;
}
#define NC_RESULT nc_function_result(ctx)
#define NC_FUNCTION nc_function_address(ctx)

/* Text in a key, eight bytes at a time: NC_WORD('o', 'u', 't', 0, 0, 0, 0, 0). No string constant is needed. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NC_CHAR(c, n) ((u64)(c) << (8 * (n)))
#else
#define NC_CHAR(c, n) ((u64)(c) << (56 - 8 * (n)))
#endif
#define NC_WORD(a, b, c, d, e, f, g, h) (NC_CHAR(a, 0) | NC_CHAR(b, 1) | NC_CHAR(c, 2) | NC_CHAR(d, 3) | \
    NC_CHAR(e, 4) | NC_CHAR(f, 5) | NC_CHAR(g, 6) | NC_CHAR(h, 7))

#endif /* NETCONSOLE_KERNEL_MEMORY_H */
