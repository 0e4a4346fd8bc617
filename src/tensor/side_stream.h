// A stream beside a rank's compute stream, for messages or for copies to and from the host; and copies within one
// device's memory.
//
// It has no scratch of its own (libraries' products cannot run in it) and costs no memory. On a GPU its work runs
// beside that of other streams, in the order that events set; on the cpu work is done when a call returns. Used by one
// thread at a time. Failure: EnvironmentError with the call that failed.
#pragma once
#include <memory>

#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class SideStream {
 public:
  explicit SideStream(Device device);  // cpu, or the GPU in use by the calling thread

  Stream& stream() { return *stream_; }

 private:
  Ledger nothing_;  // of the scratch that is not there
  std::unique_ptr<Memory> nowhere_;
  std::unique_ptr<Stream> stream_;
};

// In the stream's order, without waiting for it; both are on the stream's device and apart.
void copy_later(void* to, const void* from, std::int64_t bytes, Stream& stream);
// The same of a contiguous tensor, or of strided rows (Tensor::rows_apart), which are adjacent in `to`.
void pack_later(void* to, const ConstTensor& from, Stream& stream);

namespace cuda {
void copy_later(void* to, const void* from, std::int64_t bytes, lockstep::Stream& stream);
void copy_rows_later(void* to, const void* from, std::int64_t rows, std::int64_t row_bytes, std::int64_t pitch_bytes,
                     lockstep::Stream& stream);
}  // namespace cuda

}  // namespace lockstep
