// Shifts the wall clock of a process by the seconds in the file CLOCK_OFFSET_FILE. The monotonic clock stays.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static const volatile int64_t *offset = MAP_FAILED;

__attribute__((constructor)) static void begin(void) {
  real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("CLOCK_OFFSET_FILE");
  if (path) offset = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, open(path, O_RDONLY), 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real) begin();
  int result = real(clock, now);
  if (clock == CLOCK_REALTIME && offset != MAP_FAILED) now->tv_sec += *offset;
  return result;
}
