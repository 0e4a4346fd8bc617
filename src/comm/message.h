// What one rank asks of its group: one call of one operation, as data.
//
// Tensors are contiguous and taken as flat rows of elements, whatever their shape. Which of them an operation uses,
// with n elements, N ranks and `part(r)` the elements that are rank r's (n / N of them where `counts` is empty):
//
//   all_reduce      in (n), out (n); the same tensor, or apart
//   reduce_scatter  in (n), out (part of this rank), which may be that part of in
//   all_gather      in (part of this rank), which may be that part of out; out (n)
//   broadcast       in on the root, out elsewhere; where both are given, the root's out is written too
//   reduce          in (n); out (n) on the root, in itself or apart
//   gather          in (part of this rank); out (n) on the root, of which in may be the root's part
//   scatter         in (n) on the root; out (part of this rank), which may be the root's part of in
//   all_to_all      in: `counts[r]` elements for each rank r; out: what the others send here, in order; apart
//   send, recv      in or out, and the other end
//   barrier         neither
//
// All ranks of a group give the same op, type, count, counts (but in all_to_all), reduction, algorithm and root.
//
// One call may carry several pairs of tensors (`also`): each pair is what a message of its own would be, none of them
// has to be next to another in memory, and the ranks meet once for all of them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tree_sum.h"
#include "tensor/tensor.h"

namespace lockstep {

enum class CommOp : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier,
};
inline constexpr int kCommOps = 11;
std::string_view name_of(CommOp op);
constexpr bool point_to_point(CommOp op) { return op == CommOp::send || op == CommOp::recv; }
constexpr bool reduces(CommOp op) {
  return op == CommOp::all_reduce || op == CommOp::reduce_scatter || op == CommOp::reduce;
}
constexpr bool has_root(CommOp op) {
  return op == CommOp::broadcast || op == CommOp::reduce || op == CommOp::gather || op == CommOp::scatter;
}

// The order of sums and the way of the messages (comm/sum_order.h, comm/traffic.h). The canonical one gives the same
// bits on every backend; the others are deterministic and no more. Native is the backend's own; where a backend has
// none of its own (threads, meta), canonical.
enum class Algorithm : std::uint8_t { canonical, ring, tree, native };
std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Reduction reduction);

struct Operands {
  Tensor out;
  ConstTensor in;
};

struct Message {
  CommOp op = CommOp::barrier;
  Tensor out = {};
  ConstTensor in = {};
  Reduction reduction = Reduction::sum;
  Algorithm algorithm = Algorithm::canonical;
  int peer = 0;                           // the root, or the other end
  std::vector<std::int64_t> counts = {};  // elements by rank; empty: equal shares
  double deadline = 0;                    // seconds that this rank waits for it; 0: as long as for any other
  // Further pairs that go in the same call: of an all_reduce, reduce_scatter or all_gather in equal shares, of one
  // type.
  std::vector<Operands> also = {};
};

DType dtype_of_message(const Message& message);
// A call of several pairs, one message for each of them.
std::vector<Message> pairs_of(const Message& message);
// The elements the operation is about, of all pairs: n above; of all_to_all what this rank gives.
std::int64_t count_of(const Message& message, int ranks);

// "all_reduce of 1000 fp32 (sum, canonical)".
std::string describe(const Message& message, int ranks);

// A call that no rank could make breaks the program (ProgramError): operands missing, with gaps, on another device, of
// sizes that do not fit each other or the counts, overlapping where they may not.
void check_message(const Message& message, int rank, int ranks, Device device);

// Whether two ranks' calls are of one operation. A send agrees with the recv that it meets.
bool agree(const Message& a, const Message& b, int ranks);

}  // namespace lockstep
