// What the NCCL backend asks of NCCL: the library itself, opened when first needed, or what tests put in its place.
//
// A Link is one of NCCL's communicators, of the non-blocking kind: a call may return before its work is in the stream,
// also while the ranks are still connecting, and the next call is made when settled() has said true. So nothing here
// waits, and whoever waits has a deadline. Tensors are contiguous and on the stream's device.
// Failure: CommError with NCCL's own words; EnvironmentError where the library is not there.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "comm/error.h"
#include "kernels/tree_sum.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep::nccl {

using Id = std::array<char, 128>;  // of one communicator, made by one of its ranks and known to all

// A communicator that is to be made, and this rank in it.
struct LinkSpec {
  Id id;
  int rank;
  int ranks;
  std::string name;
  double deadline_seconds;  // for the work it still has when it is destroyed; what takes longer is aborted
};

// Used by one thread at a time, by whichever. Destroyed: brings what it was given to its end, then leaves.
class Link {
 public:
  virtual ~Link() = default;
  virtual bool settled() = 0;
  // Sends and receives between the two run at once, and meet those of the other ranks in any order.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  virtual void send(const ConstTensor& x, int to, Stream& stream) = 0;
  virtual void recv(const Tensor& x, int from, Stream& stream) = 0;
  virtual void all_gather(const Tensor& out, const ConstTensor& in, Stream& stream) = 0;
  virtual void broadcast(const Tensor& out, const ConstTensor& in, int root, Stream& stream) = 0;
  virtual void all_reduce(const Tensor& out, const ConstTensor& in, Reduction reduction, Stream& stream) = 0;
  virtual void reduce_scatter(const Tensor& out, const ConstTensor& in, Reduction reduction, Stream& stream) = 0;
  virtual void reduce(const Tensor& out, const ConstTensor& in, Reduction reduction, int root, Stream& stream) = 0;
  // Ends what runs, whatever it has written by then; from now on it can only be destroyed.
  virtual void abort() noexcept = 0;
};

// Thread-safe; outlives its links.
class Library {
 public:
  virtual ~Library() = default;
  virtual Id make_id() = 0;
  virtual std::unique_ptr<Link> connect(const LinkSpec& spec) = 0;  // returns at once
  virtual void enter_thread() = 0;  // the calling thread, new, works on the GPU of the one that opened the library
};

// NCCL, for the GPU that the calling thread uses.
std::unique_ptr<Library> open_library();

// Makes the GPU with this number, or with that of the launcher's LOCAL_RANK, the calling thread's, and says which it
// is; to be called before the rank takes memory there. Without either it is GPU 0. UserError where there are not that
// many.
int choose_gpu(std::optional<int> number = {});

}  // namespace lockstep::nccl
