// Reads and writes of an open file that run beside the thread that asks for them.
//
// The thinnest layer over the system: what comes back is what the system said, a short count or an error included.
// file_io.h makes whole transfers of it. One thread uses it.
#pragma once
#include <cstdint>
#include <memory>

namespace lockstep::disk {

struct RawRequest {
  bool write = false;
  int file = -1;
  std::int64_t offset = 0;  // in the file
  void* data = nullptr;     // stays as it is until the request is done
  std::int64_t bytes = 0;
  std::uint64_t tag = 0;  // comes back with the result
};

struct RawResult {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes done, or a negative errno
};

class RawIo {
 public:
  virtual ~RawIo() = default;     // what was started is done by then
  virtual int depth() const = 0;  // requests that may be under way at once
  virtual void start(const RawRequest& request) = 0;
  virtual RawResult next() = 0;  // of any request that was started; waits for one
};

// By io_uring; nothing where the kernel has none, or forbids it.
std::unique_ptr<RawIo> make_uring_io(int depth);
// By threads that call pread and pwrite: anywhere.
std::unique_ptr<RawIo> make_thread_io(int depth);
// The first of these that there is.
std::unique_ptr<RawIo> make_io(int depth);

}  // namespace lockstep::disk
