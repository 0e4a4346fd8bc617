// What an operation makes one rank send and receive under its algorithm: the numbers that theory has, exactly.
//
// The recorder and `meta` count by this one function. With n elements, N ranks, p(r) the elements of rank r's piece
// (its part, where the operation cuts by rank; of an all-reduce n over N as even as can be: the first n mod N pieces
// have one element more), and r + 1 going round, a rank sends
//
//                   canonical, native        ring                    tree
//   reduce_scatter  n - p(r)                 n - p(r)                halves, then quarters, …
//   all_gather      (N - 1) p(r)             n - p(r + 1)            the same backwards
//   all_reduce      both of these            both                    both
//   broadcast       root: (N - 1) n          n, the last nothing     n for each child
//   reduce          n, the root nothing      n, the root nothing     n, the root nothing
//   gather          p(r), the root nothing
//   scatter         root: n - p(root)
//   all_to_all      n less what it keeps
//   send            n
//
// so where N divides n an all-reduce is 2 n (N - 1) / N for all of them that need no folding. (The tree with P < N, P
// the largest power of two: ranks from P on give all they have to rank r - P first and get the result from it.) A
// barrier sends no elements. A call of several pairs of tensors sends their elements in the messages of one. What all
// ranks of a group send is what all of them receive.
#pragma once
#include "comm/message.h"

namespace lockstep {

struct Traffic {
  std::int64_t sent = 0;      // elements
  std::int64_t received = 0;  // elements
  std::int64_t messages = 0;  // that this rank sends
  std::int64_t steps = 0;     // one after the other until the last rank has its result
  bool operator==(const Traffic&) const = default;
};

// Of a call that check_message lets pass.
Traffic traffic_of(const Message& message, int rank, int ranks);

// Numbers go apart from tensors: counts, losses, the norm's bins and the step's controls are of 8 bytes each and fewer
// than any stored parameter has elements, so a log needs no name for them.
inline constexpr std::int64_t kFewestOfTensor = 256;
inline bool is_number(DType dtype, std::int64_t count) { return size_of(dtype) == 8 && count < kFewestOfTensor; }

}  // namespace lockstep
