// Calls of several tensors, held to the bits of calls of one each.
#pragma once
#include "comm/ranks.h"
#include "support/recipes.h"

namespace lockstep::tests {

// What one rank has of some tensors of many magnitudes, before the calls.
struct SeveralRows {
  std::vector<Row> ins, outs;
};
inline SeveralRows several_rows(CommOp op, DType dtype, const Communicator& comm, std::span<const std::int64_t> parts) {
  SeveralRows rows;
  const Recipe recipe = magnitudes(-20, dtype == DType::f16 ? 12 : 20);
  for (const std::int64_t part : parts) {
    const std::int64_t all = part * comm.size();
    rows.ins.emplace_back(dtype, op == CommOp::all_gather ? part : all, [&](std::int64_t i) {
      return round_to(dtype, recipe(static_cast<std::uint64_t>(comm.rank() + 31 * std::ssize(rows.ins)), i));
    });
    rows.outs.emplace_back(dtype, op == CommOp::reduce_scatter ? part : all);
  }
  return rows;
}

inline Message several_message(CommOp op, SeveralRows& rows, std::size_t first, std::size_t end, Algorithm algorithm) {
  Message message{.op = op, .out = rows.outs[first], .in = rows.ins[first], .algorithm = algorithm};
  for (std::size_t i = first + 1; i < end; ++i) message.also.push_back({rows.outs[i], rows.ins[i]});
  return message;
}

// Every operation that takes several, on all ranks of the communicator. Sizes that are no multiple of anything, and
// one tensor of nothing.
inline void expect_several_as_apart(Communicator& comm, std::span<const Algorithm> algorithms) {
  constexpr std::int64_t kParts[] = {257, 0, 1, 5003, 333};
  for (const CommOp op : {CommOp::all_gather, CommOp::reduce_scatter, CommOp::all_reduce})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Algorithm algorithm : algorithms) {
        SeveralRows apart = several_rows(op, dtype, comm, kParts), together = several_rows(op, dtype, comm, kParts);
        for (std::size_t i = 0; i < std::size(kParts); ++i)
          comm.start(several_message(op, apart, i, i + 1, algorithm))->wait();
        comm.start(several_message(op, together, 0, std::size(kParts), algorithm))->wait();
        for (std::size_t i = 0; i < std::size(kParts); ++i) {
          ASSERT_EQ(together.outs[i].bytes(), apart.outs[i].bytes())
              << name_of(op) << ", " << name_of(dtype) << ", " << name_of(algorithm) << ", tensor " << i << " of rank "
              << comm.rank();
          ASSERT_EQ(together.ins[i].bytes(), apart.ins[i].bytes());
        }
      }
}

}  // namespace lockstep::tests
