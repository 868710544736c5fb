/* Lets user-mode Linux 6.1 run on hosts whose processors have more state than it knows (AMX).
 *
 * It passes a buffer of 2,696 bytes for the registers of its processes; such hosts refuse to set them from less
 * than the whole state (EFAULT, "ptrace set fp regs failed"). Here the rest is filled in from what stands there.
 * Loaded by LD_PRELOAD.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SETREGSET = 0x4205, GETREGSET = 0x4204, XSTATE = 0x202, WHOLE = 65536 };

static char whole[WHOLE]; /* user-mode Linux calls this on one thread */

static long set_xstate(pid_t pid, struct iovec *part)
{
    struct iovec all = {whole, WHOLE};
    if (syscall(SYS_ptrace, GETREGSET, pid, XSTATE, &all) < 0)
        return -1;
    memcpy(whole, part->iov_base, part->iov_len < all.iov_len ? part->iov_len : all.iov_len);
    return syscall(SYS_ptrace, SETREGSET, pid, XSTATE, &all);
}

long ptrace(int request, ...)
{
    va_list rest;
    va_start(rest, request);
    pid_t pid = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
    va_end(rest);
    if (request == SETREGSET && address == (void *)XSTATE)
        return set_xstate(pid, data);
    if (request >= 1 && request <= 3) { /* PEEK*: the C library returns what the system call stores */
        long word = 0;
        long code = syscall(SYS_ptrace, request, pid, address, &word);
        return code < 0 ? code : word;
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}
