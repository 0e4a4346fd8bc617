// A library for LD_PRELOAD: a disk that fails under the file of offloaded state, and under no other.
//
// FAULTY_DISK=CALL:NUMBER:WHAT, as in write:12:ENOSPC. The NUMBERth read or write of a file that has no name does WHAT:
//   ENOSPC, EIO   fails with that error, and so do all later ones
//   end           returns 0, as at the end of a file, and so do all later ones
//   flip          it and all later ones read, and turn one bit of what they have read
//   kill          ends the process with SIGKILL, half of the bytes written
//   short         it and all later ones do half of what they are asked for
// There is no io_uring under it, so reads and writes are those of threads (tensor/disk/raw_io.h).
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct Fault {
  bool writes = false;
  long number = 0;
  std::string what;
};

const Fault& fault() {
  static const Fault asked = [] {
    const char* const text = std::getenv("FAULTY_DISK");
    const std::string all = text ? text : "";
    const std::size_t first = all.find(':'), second = all.find(':', first + 1);
    if (second == std::string::npos) return Fault{};
    return Fault{all.substr(0, first) == "write", std::atol(all.c_str() + first + 1), all.substr(second + 1)};
  }();
  return asked;
}

bool has_no_name(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 0;
}

using Call = ssize_t (*)(int, void*, size_t, off_t);

ssize_t faulty(Call call, bool write, int file, void* data, size_t bytes, off_t offset) {
  static std::atomic<long> count{0};
  const Fault& f = fault();
  if (f.what.empty() || write != f.writes || !has_no_name(file)) return call(file, data, bytes, offset);
  const long number = ++count;
  if (number < f.number) return call(file, data, bytes, offset);
  const size_t half = bytes > 8192 ? bytes / 2 / 4096 * 4096 : bytes;
  if (f.what == "short") return call(file, data, half, offset);
  if (f.what == "kill") {
    (void)!call(file, data, half, offset);
    kill(getpid(), SIGKILL);
  }
  if (f.what == "flip") {
    const ssize_t done = call(file, data, bytes, offset);
    if (done > 0) static_cast<char*>(data)[77] ^= 4;
    return done;
  }
  if (f.what == "end") return 0;
  errno = f.what == "ENOSPC" ? ENOSPC : EIO;
  return -1;
}

Call next(const char* name) { return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name)); }

}  // namespace

extern "C" {

ssize_t pread(int file, void* data, size_t bytes, off_t offset) {
  static const Call call = next("pread");
  return faulty(call, false, file, data, bytes, offset);
}
ssize_t pread64(int file, void* data, size_t bytes, off_t offset) { return pread(file, data, bytes, offset); }

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  static const Call call = next("pwrite");
  return faulty(call, true, file, const_cast<void*>(data), bytes, offset);
}
ssize_t pwrite64(int file, const void* data, size_t bytes, off_t offset) { return pwrite(file, data, bytes, offset); }

int io_uring_queue_init(unsigned, void*, unsigned) { return -ENOSYS; }

}  // extern "C"
