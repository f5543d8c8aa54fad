/* file.h - the file that a call is about: what kind it is, and the device and the file system on which it lies. */
#ifndef NETCONSOLE_FILE_H
#define NETCONSOLE_FILE_H

#include "../../common/netconsole.h"

#define KIND_OF_FILE 0170000
#define REGULAR 0100000
#define BLOCK_DEVICE 0060000

/* File systems that show what the kernel knows: nothing of them lies on a device (include/uapi/linux/magic.h). */
static inline int is_of_the_kernel(u64 magic)
{
    switch (magic) {
    case 0x9fa0:            /* proc */
    case 0x62656572:        /* sysfs */
    case 0x27e0eb:          /* cgroup */
    case 0x63677270:        /* cgroup2 */
    case 0x64626720:        /* debugfs */
    case 0x74726163:        /* tracefs */
        return 1;
    }
    return 0;
}

/* What an open file of the task has this number; NULL: none. */
static inline struct file *file_of(struct task_struct *task, u32 number)
{
    struct files_struct *files = NC_READ(task, files);
    struct fdtable *table = NC_READ(files, fdt);
    struct file **opened = NC_READ(table, fd);

    if (number >= NC_READ(table, max_fds))
        return NULL;
    return NC_AT(struct file *, opened + number);
}

/* Text of at most 16 bytes: what comes behind its end is cut off. */
static inline u64 until_its_end(u64 word)
{
    u64 ends = (word - 0x0101010101010101ull) & ~word & 0x8080808080808080ull;

    return ends ? word & (((ends & -ends) >> 7) - 1) : word;
}

static inline void name_file_system(u64 *to, struct super_block *super)
{
    struct file_system_type *type = NC_READ(super, s_type);

    NC_COPY(to, 16, NC_READ(type, name));
    to[1] = until_its_end(to[0]) == to[0] && to[0] >> 56 ? until_its_end(to[1]) : 0;
    to[0] = until_its_end(to[0]);
}

/* The disk of a block device. */
static inline void name_disk_of(u64 *to, struct block_device *device)
{
    struct gendisk *disk = NC_READ(device, bd_disk);

    NC_COPY(to, 32, &disk->disk_name);
}

/* Names the device and the file system; 0: it is no file that may lie on a device. */
static inline int name_file(u64 *device, u64 *file_system, struct file *file)
{
    struct inode *inode = NC_READ(file, f_inode);
    u32 kind = NC_READ(inode, i_mode) & KIND_OF_FILE;
    struct address_space *mapping;
    struct super_block *super;
    struct block_device *lies_on;

    if (kind == REGULAR) {
        super = NC_READ(inode, i_sb);
        if (is_of_the_kernel(NC_READ(super, s_magic)))
            return 0;
        name_file_system(file_system, super);
        lies_on = NC_READ(super, s_bdev);
        if (lies_on)
            name_disk_of(device, lies_on);
        else
            NC_COPY(device, 32, &super->s_id);
        return 1;
    }
    if (kind != BLOCK_DEVICE)
        return 0;
    mapping = NC_READ(file, f_mapping);
    inode = NC_READ(mapping, host);
    name_disk_of(device, &((struct bdev_inode *)((u64)inode - offsetof(struct bdev_inode, vfs_inode)))->bdev);
    return 1;
}

#endif /* NETCONSOLE_FILE_H */
