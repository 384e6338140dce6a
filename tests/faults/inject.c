// Make the n-th call of the file system below a folder fail, or kill the process there; log all calls.
// Loaded by LD_PRELOAD; `arm` is called through ctypes. Built by tests/faults/runner.py.
// INJECT_CLOCK=SECONDS moves the clock, and INJECT_LOCKS=no makes a file system without locks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, WRITE, FSYNC, RENAME, MKDIR, UNLINK };

static char folder[PATH_MAX];
static long left = -1, count;
static int error, log_fd = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Count calls below `path` from now on. The n-th one fails with errno `e`, or kills the process if `e`
// is -1; n = 0 only counts. Calls are logged to the file descriptor `fd`, unless it is -1.
void arm(const char *path, long n, int e, int fd) {
  snprintf(folder, sizeof folder, "%s/", path);
  left = n, error = e, log_fd = fd, count = 0;
}
long counted(void) { return count; }

static int below(int dir, const char *path, char *full) {
  if (!folder[0]) return 0;
  char link[64], base[PATH_MAX] = "";
  if (path && path[0] == '/') {
    snprintf(full, PATH_MAX, "%s", path);
  } else {
    ssize_t n = 0;
    if (dir == AT_FDCWD) {
      if (getcwd(base, sizeof base)) n = strlen(base);
    } else {
      snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
      n = readlink(link, base, sizeof base - 1);
    }
    if (n <= 0) return 0;
    base[n] = 0;
    if (path) snprintf(full, PATH_MAX, "%.2000s/%.2000s", base, path);
    else snprintf(full, PATH_MAX, "%s", base);
  }
  return !strncmp(full, folder, strlen(folder));
}

// Whether this call has to fail; errno is set.
static int fails(void) {
  count++;
  if (left > 0 && --left == 0) {
    if (error == -1) kill(getpid(), SIGKILL);
    errno = error;
    return 1;
  }
  return 0;
}

static void record(int call, const char *path, const char *second, long offset, const void *data, size_t size) {
  if (log_fd < 0) return;
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "write");
  char head[3 * PATH_MAX];
  int n = snprintf(head, sizeof head, "%d\t%s\t%s\t%ld\t%zu\n", call, path, second, offset, size);
  if (real(log_fd, head, n) != n || (size && real(log_fd, data, size) != (ssize_t)size)) _exit(99);
}

#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = dlsym(RTLD_NEXT, name)

#define GUARD(call, dir, path, run, good, second, offset, data, size) \
  char full[PATH_MAX]; \
  if (!below(dir, path, full)) return run; \
  pthread_mutex_lock(&mutex); \
  long at = offset; \
  __typeof__(run) result = fails() ? -1 : run; \
  int kept = errno; \
  if (good) record(call, full, second, at, data, size); \
  pthread_mutex_unlock(&mutex); \
  errno = kept; \
  return result

#define OPENER(name) \
  int name(const char *path, int flags, ...) { \
    REAL(int, #name, const char *, int, ...); \
    va_list list; va_start(list, flags); int mode = va_arg(list, int); va_end(list); \
    GUARD(OPEN, AT_FDCWD, path, real(path, flags, mode), result >= 0, "", (long)flags, "", 0); \
  }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name) \
  int name(int dir, const char *path, int flags, ...) { \
    REAL(int, #name, int, const char *, int, ...); \
    va_list list; va_start(list, flags); int mode = va_arg(list, int); va_end(list); \
    GUARD(OPEN, dir, path, real(dir, path, flags, mode), result >= 0, "", (long)flags, "", 0); \
  }
OPENER_AT(openat)
OPENER_AT(openat64)

static long where(int fd) {
  struct stat status;
  if (fcntl(fd, F_GETFL) & O_APPEND) return fstat(fd, &status) ? 0 : status.st_size;
  return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  GUARD(WRITE, fd, NULL, real(fd, data, size), result > 0, "", where(fd), data, (size_t)result);
}
ssize_t writev(int fd, const struct iovec *parts, int n) { // one part at a time, as it may be short
  return n ? write(fd, parts[0].iov_base, parts[0].iov_len) : 0;
}
#define WRITER_AT(name, type) \
  ssize_t name(int fd, const void *data, size_t size, type at_offset) { \
    REAL(ssize_t, #name, int, const void *, size_t, type); \
    GUARD(WRITE, fd, NULL, real(fd, data, size, at_offset), result > 0, "", (long)at_offset, data, (size_t)result); \
  }
WRITER_AT(pwrite, off_t)
WRITER_AT(pwrite64, off64_t)

// Copies inside the kernel would not be seen: shutil then reads and writes.
ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) {
  REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
  char full[PATH_MAX];
  if (!below(out, NULL, full)) return real(out, in, offset, size);
  errno = ENOTSOCK;
  return -1;
}

#define SYNC(name) \
  int name(int fd) { \
    REAL(int, #name, int); \
    GUARD(FSYNC, fd, NULL, real(fd), !result, "", 0L, "", 0); \
  }
SYNC(fsync)
SYNC(fdatasync)

static const char *absolute(int dir, const char *path, char *full) {
  below(dir, path, full);
  return full;
}
int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  char second[PATH_MAX];
  GUARD(RENAME, AT_FDCWD, from, real(from, to), !result, absolute(AT_FDCWD, to, second), 0L, "", 0);
}
int renameat(int a, const char *from, int b, const char *to) {
  REAL(int, "renameat", int, const char *, int, const char *);
  char second[PATH_MAX];
  GUARD(RENAME, a, from, real(a, from, b, to), !result, absolute(b, to, second), 0L, "", 0);
}
int mkdir(const char *path, mode_t mode) {
  REAL(int, "mkdir", const char *, mode_t);
  GUARD(MKDIR, AT_FDCWD, path, real(path, mode), !result, "", 0L, "", 0);
}
int mkdirat(int dir, const char *path, mode_t mode) {
  REAL(int, "mkdirat", int, const char *, mode_t);
  GUARD(MKDIR, dir, path, real(dir, path, mode), !result, "", 0L, "", 0);
}
int unlink(const char *path) {
  REAL(int, "unlink", const char *);
  GUARD(UNLINK, AT_FDCWD, path, real(path), !result, "", 0L, "", 0);
}
int rmdir(const char *path) {
  REAL(int, "rmdir", const char *);
  GUARD(UNLINK, AT_FDCWD, path, real(path), !result, "", 0L, "", 0);
}
int unlinkat(int dir, const char *path, int flags) {
  REAL(int, "unlinkat", int, const char *, int);
  GUARD(UNLINK, dir, path, real(dir, path, flags), !result, "", 0L, "", 0);
}

int flock(int fd, int operation) {
  REAL(int, "flock", int, int);
  if (!getenv("INJECT_LOCKS")) return real(fd, operation);
  errno = ENOLCK;
  return -1;
}
static long moved(void) {
  const char *seconds = getenv("INJECT_CLOCK");
  return seconds ? atol(seconds) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *t) {
  REAL(int, "clock_gettime", clockid_t, struct timespec *);
  int result = real(clock, t);
  if (!result && clock == CLOCK_REALTIME) t->tv_sec += moved();
  return result;
}
int gettimeofday(struct timeval *t, void *zone) {
  REAL(int, "gettimeofday", struct timeval *, void *);
  int result = real(t, zone);
  if (!result) t->tv_sec += moved();
  return result;
}
time_t time(time_t *t) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}
