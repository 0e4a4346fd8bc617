#include "comm/communicator.h"

#include <algorithm>

namespace lockstep {

using Started = Communicator::Started;

namespace {
Message several(CommOp op, const std::vector<Operands>& all, Reducing how) {
  LOCKSTEP_CHECK(!all.empty(), "{} of nothing", name_of(op));
  return {.op = op,
          .out = all.front().out,
          .in = all.front().in,
          .reduction = how.reduction,
          .algorithm = how.algorithm,
          .also = {all.begin() + 1, all.end()}};
}
}  // namespace

Started Communicator::all_reduce(const std::vector<Operands>& all, Reducing how) {
  return start(several(CommOp::all_reduce, all, how));
}

Started Communicator::reduce_scatter(const std::vector<Operands>& all, Reducing how) {
  return start(several(CommOp::reduce_scatter, all, how));
}

Started Communicator::all_gather(const std::vector<Operands>& all) {
  return start(several(CommOp::all_gather, all, {}));
}

Started Communicator::all_reduce(const Tensor& x, Reducing how) {
  return start({.op = CommOp::all_reduce, .out = x, .in = x, .reduction = how.reduction, .algorithm = how.algorithm});
}

Started Communicator::reduce_scatter(const Tensor& out, const ConstTensor& in, Reducing how, Counts counts) {
  return start({.op = CommOp::reduce_scatter,
                .out = out,
                .in = in,
                .reduction = how.reduction,
                .algorithm = how.algorithm,
                .counts = std::move(counts)});
}

Started Communicator::all_gather(const Tensor& out, const ConstTensor& in, Counts counts) {
  return start({.op = CommOp::all_gather, .out = out, .in = in, .counts = std::move(counts)});
}

Started Communicator::broadcast(const Tensor& x, int root) {
  return start({.op = CommOp::broadcast, .out = x, .in = x, .peer = root});
}

Started Communicator::reduce(const Tensor& out, const ConstTensor& in, int root, Reducing how) {
  return start({.op = CommOp::reduce,
                .out = out,
                .in = in,
                .reduction = how.reduction,
                .algorithm = how.algorithm,
                .peer = root});
}

Started Communicator::gather(const Tensor& out, const ConstTensor& in, int root, Counts counts) {
  return start({.op = CommOp::gather, .out = out, .in = in, .peer = root, .counts = std::move(counts)});
}

Started Communicator::scatter(const Tensor& out, const ConstTensor& in, int root, Counts counts) {
  return start({.op = CommOp::scatter, .out = out, .in = in, .peer = root, .counts = std::move(counts)});
}

Started Communicator::all_to_all(const Tensor& out, const ConstTensor& in, Counts counts) {
  return start({.op = CommOp::all_to_all, .out = out, .in = in, .counts = std::move(counts)});
}

Started Communicator::send(const ConstTensor& x, int to) { return start({.op = CommOp::send, .in = x, .peer = to}); }

Started Communicator::recv(const Tensor& x, int from) { return start({.op = CommOp::recv, .out = x, .peer = from}); }

Started Communicator::barrier() { return start({.op = CommOp::barrier}); }

std::vector<int> members_of(int rank, int size, const std::function<Place(int rank)>& place) {
  const int color = place(rank).color;
  std::vector<std::pair<int, int>> order;  // key, rank
  for (int r = 0; r < size; ++r)
    if (const Place at = place(r); at.color == color) order.emplace_back(at.key, r);
  std::sort(order.begin(), order.end());
  std::vector<int> members;
  for (const auto& [key, r] : order) members.push_back(r);
  return members;
}

}  // namespace lockstep
