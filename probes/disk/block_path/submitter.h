/* submitter.h - who asks a block device for something: the process of the task that runs. */
#ifndef NETCONSOLE_SUBMITTER_H
#define NETCONSOLE_SUBMITTER_H

#include "../../common/netconsole.h"

struct submitter {
    u64 process[2];     /* name of the process, not of its thread */
    u64 vm;             /* the pid again: the collector shows it as the VM. Of a worker: OF_GROUP and the control group of the I/O */
    u32 pid;            /* 0: the kernel's workers, which are many and take turns */
    u32 pad;
};

#define PF_KTHREAD 0x00200000
#define OF_GROUP (1ull << 63)

/* Whose I/O a kernel worker asks for: what io.max has held back, and what is written for a file, still is of its control group. */
static inline u64 group_of(struct bio *bio)
{
#ifdef HAVE_bio_bi_blkg
    struct blkcg_gq *blkg = NC_GET(bio, bi_blkg);
    struct blkcg *blkcg = NC_GET(blkg, blkcg);
    struct cgroup *cgroup = NC_GET(blkcg, css.cgroup);
    struct kernfs_node *kn = NC_GET(cgroup, kn);

    return OF_GROUP | NC_GET(kn, id);
#else
    return 0;
#endif
}

static inline void submitted_by(struct submitter *by, struct bio *bio)
{
    struct task_struct *task = nc_pointer(bpf_get_current_task());
    struct task_struct *leader = NC_READ(task, group_leader);

    NC_COPY(by->process, sizeof(by->process), &leader->comm);
    by->vm = by->pid = NC_READ(task, tgid);
    if (by->process[0] == NC_WORD('k', 'w', 'o', 'r', 'k', 'e', 'r', '/') && NC_READ(task, flags) & PF_KTHREAD) {
        by->process[0] = NC_WORD('k', 'w', 'o', 'r', 'k', 'e', 'r', 0);
        by->process[1] = by->pid = 0;
        by->vm = group_of(bio);
    }
}

#endif /* NETCONSOLE_SUBMITTER_H */
