// Copies between host memory and a device's tensors.
//
// upload and download move the bytes of a contiguous tensor, or of strided rows (Tensor::rows_apart), to or from plain
// host memory, where rows are adjacent. They work in the stream's order and return when the host memory may be used
// again. The two that come later return at once: the host memory, a HostBuffer's, must stay as it is (or is not there
// yet) until the stream has reached them. On meta an upload does nothing and a download gives zeros. Tensors beside
// the stream's device, on the disk or on a GPU's host, may be copied by the two that wait: when the stream has done its
// work.
#pragma once
#include <span>
#include <vector>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

void upload(Tensor to, const void* from, Stream& stream);
void download(void* to, ConstTensor from, Stream& stream);
void upload_later(Tensor to, const void* from, Stream& stream);
void download_later(void* to, ConstTensor from, Stream& stream);

// Host memory for copies that come later: page-locked where the stream is a GPU's, so that they need no help from the
// host. Not counted in a ledger: it is small, and of no device.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(std::int64_t bytes, const Stream& stream);
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer() { release(); }

  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(data_), static_cast<std::size_t>(bytes_) / sizeof(T)};
  }

 private:
  void release() noexcept;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  bool pinned_ = false;
};
// A contiguous float tensor's elements as doubles, whatever its type; for reports, not for steps.
std::vector<double> to_doubles(ConstTensor from, Stream& stream);

}  // namespace lockstep
