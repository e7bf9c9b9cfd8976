/* Makes a chosen call of this process fail, or kills the process there; sets its clock back.

   Preloaded by faults.py, which arms it in a child. Calls count if their file lies below a folder:
   0 open to write, 1 write, 2 fsync, 3 rename, 4 mkdir, 5 open to read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, WRITE, FSYNC, RENAME, MKDIR, READ, KINDS };
static char folder[PATH_MAX];
static long counts[KINDS], last_call;
static int kind = -1, error, sticks, failed;
static time_t back;

/* error 0: kill the process. sticks: all later calls of the kind fail as well. */
void faults_arm(const char *path, int which, long number, int number_of_error, int for_good) {
    memset(counts, 0, sizeof counts);
    snprintf(folder, sizeof folder, "%s", path);
    kind = which, last_call = number, error = number_of_error, sticks = for_good, failed = 0;
}

long faults_count(int which) { return counts[which]; }

void faults_set_clock_back(long seconds) { back = seconds; }

static int fails_at(int which, const char *path) {
    if (!folder[0] || strncmp(path, folder, strlen(folder)))
        return 0;
    long number = __atomic_add_fetch(&counts[which], 1, __ATOMIC_SEQ_CST);
    if (which != kind || !(number == last_call || (sticks && number > last_call)))
        return 0;
    if (!error)
        kill(getpid(), SIGKILL);
    failed = 1;
    errno = error;
    return 1;
}

static int fails(int which, int at, const char *path) {
    char whole[2 * PATH_MAX], place[PATH_MAX], link[64];
    int before = errno, result;
    if (path[0] != '/') {
        if (at == AT_FDCWD) {
            if (!getcwd(place, sizeof place))
                return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t length = readlink(link, place, sizeof place - 1);
            if (length < 0)
                return errno = before, 0;
            place[length] = 0;
        }
        snprintf(whole, sizeof whole, "%s/%s", place, path);
        path = whole;
    }
    result = fails_at(which, path);
    if (!result)
        errno = before;
    return result;
}

static int fails_on(int which, int descriptor) {
    char link[64], path[PATH_MAX];
    int before = errno, result;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0)
        return 0;
    path[length] = 0;
    result = fails_at(which, path);
    if (!result)
        errno = before;
    return result;
}

#define REAL(name) \
    static typeof(&name) real; \
    if (!real) real = (typeof(&name))dlsym(RTLD_NEXT, #name)
#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
    }
#define HOW (flags & O_ACCMODE ? OPEN : READ)

int open(const char *path, int flags, ...) {
    REAL(open); MODE
    return fails(HOW, AT_FDCWD, path) ? -1 : real(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    REAL(open64); MODE
    return fails(HOW, AT_FDCWD, path) ? -1 : real(path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    REAL(openat); MODE
    return fails(HOW, at, path) ? -1 : real(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    REAL(openat64); MODE
    return fails(HOW, at, path) ? -1 : real(at, path, flags, mode);
}
/* As a disk that has become full: it takes a part, and refuses what is left. */
static int refused_next;
ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(write);
    if (refused_next == descriptor + 1) {
        refused_next = 0;
        errno = error;
        return -1;
    }
    if (!fails_on(WRITE, descriptor))
        return real(descriptor, data, size);
    if (size < 2 || sticks)
        return -1;
    refused_next = descriptor + 1;
    return real(descriptor, data, size / 2);
}
size_t fwrite(const void *data, size_t size, size_t number, FILE *file) { /* As numpy writes. */
    REAL(fwrite);
    if (!fails_on(WRITE, fileno(file)))
        return real(data, size, number, file);
    int reason = errno;
    size_t written = real(data, size, number / 2, file);
    errno = reason;
    return written;
}
int fsync(int descriptor) {
    REAL(fsync);
    return fails_on(FSYNC, descriptor) ? -1 : real(descriptor);
}
int rename(const char *old, const char *new) {
    REAL(rename);
    return fails(RENAME, AT_FDCWD, new) ? -1 : real(old, new);
}
int renameat(int old_at, const char *old, int new_at, const char *new) {
    REAL(renameat);
    return fails(RENAME, new_at, new) ? -1 : real(old_at, old, new_at, new);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return fails(MKDIR, AT_FDCWD, path) ? -1 : real(path, mode);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec -= back;
    return result;
}
