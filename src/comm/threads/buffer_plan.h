// What an operation does once all its ranks have arrived: sums and copies between their buffers, split into pieces.
//
// Used by ranks that can address each other's buffers: threads (threads/rendezvous.h), and processes of one host whose
// tensors are in shared memory (mpi/direct_plan.h). A sum is read straight from the ranks' buffers and written straight
// into them; nothing is staged. Every piece reads and writes elements that no other piece writes, so any threads may
// run the pieces in any order, each once. No element's result depends on how the work was split. For ranks that compute
// in streams of a device the plan is one piece, run in a stream (threads/group_stream.h).
#pragma once
#include <span>
#include <vector>

#include "comm/message.h"

namespace lockstep::threads {

class BufferPlan {
 public:
  struct Sum {
    std::vector<Tensor> outs;
    std::vector<ConstTensor> ins;
    std::vector<std::uint8_t> joins;
    Reduction reduction;
  };
  struct Copy {
    const char* from;
    std::vector<char*> to;
    std::int64_t bytes;
  };

  BufferPlan() = default;
  // Of the calls of all ranks in order; of a message between two, the send and the recv.
  explicit BufferPlan(std::span<const Message> calls);

  std::int64_t pieces() const { return static_cast<std::int64_t>(pieces_.size()); }
  std::int64_t bytes() const { return bytes_; }  // read and written
  void run(std::int64_t piece) const;

  // Makes one piece of it, also where there is nothing to do: what comes after must still wait for every rank.
  void make_whole();
  std::span<const Sum> sums() const { return sums_; }
  std::span<const Copy> copies() const { return copies_; }

 private:
  struct Piece {
    bool sum;
    std::size_t job;
    std::int64_t begin, count;  // elements of a sum, bytes of a copy
  };

  void add(std::span<const Message> calls);
  void reduce(std::span<const Message> calls);
  void spread(std::span<const Message> calls);
  void exchange(std::span<const Message> calls);
  void add_sum(Sum sum);
  void add_copy(const ConstTensor& from, std::span<const Tensor> to);

  std::vector<Sum> sums_;
  std::vector<Copy> copies_;
  std::vector<Piece> pieces_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep::threads
