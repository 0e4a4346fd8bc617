#include "comm/threads/buffer_plan.h"

#include <algorithm>
#include <cstring>

#include "base/integers.h"
#include "comm/parts.h"
#include "comm/sum_order.h"

namespace lockstep::threads {

namespace {

// Large enough that handing out a piece costs nothing beside running it, small enough that two cores end together.
constexpr std::int64_t kPieceBytes = 1 << 19;

template <class View>
View part(const View& t, std::int64_t begin, std::int64_t count) {
  return t.reshape({t.elements()}).slice(0, begin, count);
}

std::int64_t elements_of(const ConstTensor& t) { return t ? t.elements() : 0; }

}  // namespace

BufferPlan::BufferPlan(std::span<const Message> calls) { add(calls); }

void BufferPlan::add(std::span<const Message> calls) {
  const Message& first = calls[0];
  if (first.op == CommOp::barrier) return;
  if (!first.also.empty()) {
    std::vector<std::vector<Message>> by_rank;
    for (const Message& call : calls) by_rank.push_back(pairs_of(call));
    for (std::size_t i = 0; i <= first.also.size(); ++i) {
      std::vector<Message> pair;
      for (const std::vector<Message>& of_rank : by_rank) pair.push_back(of_rank[i]);
      add(pair);
    }
    return;
  }
  if (calls.size() == 1)  // a group of one: all its operations are this
    return first.out ? add_copy(first.in, {&first.out, 1}) : void();
  switch (first.op) {
    case CommOp::all_reduce:
    case CommOp::reduce_scatter:
    case CommOp::reduce:
      return reduce(calls);
    case CommOp::all_to_all:
      return exchange(calls);
    case CommOp::send:
      return add_copy(first.in, {&calls[1].out, 1});
    default:
      return spread(calls);
  }
}

void BufferPlan::reduce(std::span<const Message> calls) {
  const Message& first = calls[0];
  const int ranks = static_cast<int>(calls.size());
  const std::int64_t n = first.in.elements();
  const auto sum_of = [&](int piece, std::int64_t begin, std::int64_t count) {
    SumOrder order = sum_order(first.op, first.algorithm, ranks, piece);
    Sum sum{{}, {}, std::move(order.joins), first.reduction};
    for (const int rank : order.ranks) sum.ins.push_back(part(calls[static_cast<std::size_t>(rank)].in, begin, count));
    return sum;
  };
  if (first.op == CommOp::reduce) {
    Sum sum = sum_of(first.peer, 0, n);
    sum.outs.push_back(part(calls[static_cast<std::size_t>(first.peer)].out, 0, n));
    return add_sum(std::move(sum));
  }
  if (first.op == CommOp::all_reduce && first.algorithm != Algorithm::ring) {  // one order for all elements
    Sum sum = sum_of(0, 0, n);
    for (const Message& call : calls) sum.outs.push_back(part(call.out, 0, n));
    return add_sum(std::move(sum));
  }
  const Parts parts = first.op == CommOp::all_reduce ? Parts(n, ranks) : Parts(n, ranks, first.counts);
  for (int piece = 0; piece < ranks; ++piece) {
    const std::int64_t begin = parts.begin(piece), count = parts.size(piece);
    Sum sum = sum_of(piece, begin, count);
    if (first.op == CommOp::reduce_scatter)
      sum.outs.push_back(part(calls[static_cast<std::size_t>(piece)].out, 0, count));
    else
      for (const Message& call : calls) sum.outs.push_back(part(call.out, begin, count));
    add_sum(std::move(sum));
  }
}

// What goes from some ranks to some others unchanged, each element read once for all who get it.
void BufferPlan::spread(std::span<const Message> calls) {
  const Message& first = calls[0];
  const int ranks = static_cast<int>(calls.size());
  const Message& root = calls[static_cast<std::size_t>(first.peer)];
  if (first.op == CommOp::broadcast) {
    std::vector<Tensor> to;
    for (const Message& call : calls)
      if (call.out) to.push_back(call.out);
    return add_copy(root.in, to);
  }
  const Parts parts(count_of(first, ranks), ranks, first.counts);
  for (int rank = 0; rank < ranks; ++rank) {
    const Message& call = calls[static_cast<std::size_t>(rank)];
    const std::int64_t begin = parts.begin(rank), count = parts.size(rank);
    std::vector<Tensor> to;
    if (first.op == CommOp::all_gather)
      for (const Message& other : calls) to.push_back(part(other.out, begin, count));
    else
      to.push_back(first.op == CommOp::gather ? part(root.out, begin, count) : part(call.out, 0, count));
    add_copy(first.op == CommOp::scatter ? part(root.in, begin, count) : part(call.in, 0, count), to);
  }
}

void BufferPlan::exchange(std::span<const Message> calls) {
  const int ranks = static_cast<int>(calls.size());
  std::vector<std::int64_t> filled(calls.size());
  for (const Message& call : calls) {
    const Parts parts(call.in.elements(), ranks, call.counts);
    for (int to = 0; to < ranks; ++to) {
      const auto at = static_cast<std::size_t>(to);
      const Tensor target = part(calls[at].out, filled[at], parts.size(to));
      add_copy(part(call.in, parts.begin(to), parts.size(to)), {&target, 1});
      filled[at] += parts.size(to);
    }
  }
}

void BufferPlan::add_sum(Sum sum) {
  const std::int64_t n = elements_of(sum.ins[0]), size = size_of(sum.ins[0].dtype());
  const auto ins = static_cast<std::int64_t>(sum.ins.size()), outs = static_cast<std::int64_t>(sum.outs.size());
  const std::int64_t each = round_up(std::max<std::int64_t>(4096, kPieceBytes / (size * ins)), 512);
  for (std::int64_t at = 0; at < n; at += each) pieces_.push_back({true, sums_.size(), at, std::min(each, n - at)});
  bytes_ += n * size * (ins + outs);
  sums_.push_back(std::move(sum));
}

void BufferPlan::add_copy(const ConstTensor& from, std::span<const Tensor> to) {
  Copy copy{static_cast<const char*>(from.raw()), {}, from.bytes()};
  for (const Tensor& t : to)
    if (t.raw() != from.raw()) copy.to.push_back(static_cast<char*>(t.raw()));
  if (copy.to.empty()) return;
  const std::int64_t bytes = from.bytes(), places = static_cast<std::int64_t>(copy.to.size()) + 1;
  const std::int64_t each = round_up(std::max<std::int64_t>(1 << 14, kPieceBytes / places), 64);
  for (std::int64_t at = 0; at < bytes; at += each)
    pieces_.push_back({false, copies_.size(), at, std::min(each, bytes - at)});
  bytes_ += bytes * places;
  copies_.push_back(std::move(copy));
}

void BufferPlan::make_whole() {
  pieces_.assign(1, {});
  bytes_ = 0;  // for whoever gives it to a stream
}

void BufferPlan::run(std::int64_t number) const {
  const Piece& piece = pieces_[static_cast<std::size_t>(number)];
  if (piece.sum) {
    const Sum& sum = sums_[piece.job];
    return cpu::tree_sum_range({.outs = sum.outs, .ins = sum.ins, .joins = sum.joins, .reduction = sum.reduction},
                               piece.begin, piece.count);
  }
  const Copy& copy = copies_[piece.job];
  for (char* to : copy.to)
    std::memcpy(to + piece.begin, copy.from + piece.begin, static_cast<std::size_t>(piece.count));
}

}  // namespace lockstep::threads
