// Copies between a disk and a device's memory in the order of a stream, through room on the host: of a GPU, which
// cannot read a file itself.
//
// A thread of the driver reads or writes the file when the stream comes to it (tensor/host_call.h), so nothing waits
// but that stream. Reads and writes come one at a time, each with as many requests in flight as the file has
// (tensor/disk/file_memory.h). Room is page-locked, begins at a block (disk::kBlock) and holds whole blocks; between
// the calls of one copy it is nobody else's. On the cpu both copies are made at once.
//
// A failure ends all later reads and writes, and is thrown by rethrow(), which whoever waits for the copies calls: what
// was computed meanwhile is worth nothing.
#pragma once
#include <exception>
#include <functional>
#include <memory>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class DiskCopies {
 public:
  // What copies and calls the host in a stream's order: a test's, whose streams come late.
  struct Means {
    std::function<void(void* to, const void* from, std::int64_t bytes, Stream& stream)> copy;
    std::function<void(std::function<void()> call, Stream& stream)> call;
  };
  explicit DiskCopies(const Means* means = nullptr);

  void bring(const Tensor& place, const Tensor& room, const Tensor& there, Stream& stream);
  void take_back(const Tensor& there, const Tensor& room, const Tensor& place, Stream& stream);
  void rethrow() const;

 private:
  struct Failure;
  // Calls use(file of `there`) when the stream comes to it, unless something has failed.
  template <class Use>
  void later(const Tensor& there, Use use, Stream& stream);

  std::shared_ptr<Failure> failure_;  // calls may outlive this
  const Means* means_;                // none: those of the stream's device
};

}  // namespace lockstep
