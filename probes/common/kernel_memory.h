/* kernel_memory.h - how a probe reads the kernel's memory: every read goes through one of these macros. */
#ifndef NETCONSOLE_KERNEL_MEMORY_H
#define NETCONSOLE_KERNEL_MEMORY_H

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 5, 0)
#define bpf_probe_read_kernel bpf_probe_read
#endif

/* Calling a helper for each member is what reading the kernel costs. There are two ways without a call; a bad address reads as 0 in both.
 *   NC_DIRECT: a BTF-typed raw tracepoint loads through the pointers that it was given.
 *   NC_CAST: from 6.2 a program of any kind may say what an address points to (bpf_rdonly_cast, which the verifier removes) and then load.
 *     BCC cannot call that function: it compiles a call of this number, and the collector replaces the number. The verifier takes only
 *     types of vmlinux. For it, each value lies at the beginning of a struct pt_regs, which begins with 16 words of numbers. */
#if NC_CAST
static void *(*nc_rdonly_cast)(u64 address, u32 type) = (void *)0x7ffffff0;
#endif

/* The value of this type at an address. */
#if NC_CAST
#define NC_AT(type, address) ({                                                         \
    _Static_assert(sizeof(type) <= 16 * 8, "too large for a struct pt_regs");           \
    type *nc_place = nc_rdonly_cast((u64)(address), BTF_ID_pt_regs);                    \
    *nc_place; })
#else
#define NC_AT(type, address) ({                                                         \
    type nc_value;                                                                      \
    bpf_probe_read_kernel(&nc_value, sizeof(nc_value), (void *)(address));              \
    nc_value; })
#endif

/* A member, by any pointer. */
#define NC_READ(pointer, member) NC_AT(typeof((pointer)->member), &(pointer)->member)

/* A member, by a pointer that the verifier knows where the program is BTF-typed: one that the tracepoint gave, or that was read from such a
 * one by NC_GET. */
#if NC_DIRECT
#define NC_GET(pointer, member) ((pointer)->member)
#else
#define NC_GET(pointer, member) NC_READ(pointer, member)
#endif

/* The name of a device, 16 bytes, by a pointer as NC_GET takes it. */
#if NC_DIRECT
#define NC_NAME(to, dev) ({ (to)[0] = *(u64 *)&(dev)->name[0]; (to)[1] = *(u64 *)&(dev)->name[8]; })
#elif NC_CAST
#define NC_NAME(to, dev) ({ (to)[0] = NC_AT(u64, &(dev)->name[0]); (to)[1] = NC_AT(u64, &(dev)->name[8]); })
#else
#define NC_NAME(to, dev) bpf_probe_read_kernel(to, 16, &(dev)->name)
#endif

/* Members that lie close together, by one call of a helper where it needs one: NC_SPAN(struct ptr_ring, ring, producer, queue, address)
 * declares `ring`, and NC_OF(ring, size) is a member between these two, whichever comes first. NC_OF_AS(u32, ...) reads it as another type. */
#if NC_CAST
#define NC_SPAN(type, name, a, b, address) type *name = (void *)(address)
#define NC_OF(name, member) NC_READ(name, member)
#define NC_OF_AS(type, name, member) NC_AT(type, &(name)->member)
#else
#define NC_END_OF(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#define NC_SPAN_FROM(type, a, b) ((offsetof(type, a) < offsetof(type, b) ? offsetof(type, a) : offsetof(type, b)) & ~7ul)
#define NC_SPAN_TO(type, a, b) (NC_END_OF(type, a) > NC_END_OF(type, b) ? NC_END_OF(type, a) : NC_END_OF(type, b))
#define NC_SPAN(type, name, a, b, address)                                              \
    u64 name##_words[(NC_SPAN_TO(type, a, b) - NC_SPAN_FROM(type, a, b) + 7) / 8];      \
    type *name = (void *)name##_words - NC_SPAN_FROM(type, a, b);                       \
    bpf_probe_read_kernel(name##_words, sizeof(name##_words), (void *)(address) + NC_SPAN_FROM(type, a, b))
#define NC_OF(name, member) ((name)->member)
#define NC_OF_AS(type, name, member) (*(type *)&(name)->member)
#endif

/* Copies a number of bytes that is a multiple of 8, of at most 128, to where words may lie. Not 0: a helper could not read them. */
#if NC_CAST
#define NC_COPY(to, size, address) ({                                                   \
    struct nc_words { u64 word[(size) / 8]; };                                          \
    *(struct nc_words *)(to) = NC_AT(struct nc_words, address);                         \
    0; })
#else
#define NC_COPY(to, size, address) bpf_probe_read_kernel(to, size, (void *)(address))
#endif

/* Packets are bytes, not structures. NC_HEADER(iphdr, BTF_ID_iphdr, ip, address) declares struct iphdr *ip, or a copy of it. */
#if NC_CAST
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
 * the function returns, at its return; NC_FUNCTION its address. Such programs read the kernel by NC_READ and its like, not by NC_GET.
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
/* A member of what the n-th argument of a program on a function points to, for members that every run needs. fentry and fexit load it by
 * themselves before 6.2, too. A kprobe's program cannot: there the manifest names another function, which uses NC_READ. */
#if NC_CAST || NC_PLAIN
#define NC_MEMBER_OF(n, type, member) NC_READ((struct type *)NC_PARAMETER(n), member)
#else
#define NC_MEMBER_OF(n, type, member) ((struct type *)nc_pointer(nc_parameter_##n(ctx)))->member
#endif
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
