#include "plan/call_crossing.h"

#include <algorithm>

#include "comm/sum_order.h"

namespace lockstep {

namespace {

using NodesOfMembers = std::vector<std::int32_t>;

Algorithm algorithm_of_sums(ReduceKind kind) {
  constexpr Algorithm kAlgorithms[] = {Algorithm::canonical, Algorithm::ring, Algorithm::tree, Algorithm::native};
  return kAlgorithms[static_cast<int>(kind)];
}

std::vector<std::int64_t> members_by_node(const NodesOfMembers& labels) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(*std::ranges::max_element(labels)) + 1);
  for (const std::int32_t label : labels) ++counts[static_cast<std::size_t>(label)];
  return counts;
}

// The operands that a node gives to sums of other nodes' pieces, in elements of a piece: those of one rank, and sums of
// several ranks, which are wide. Added up over the pieces.
struct GivenOperands {
  double single = 0, folded = 0;
};

// Every piece is summed in one order: its maximal subtrees of one node, as processes::operands_of finds them.
std::vector<GivenOperands> given_in_order(const SumOrder& order, const NodesOfMembers& labels,
                                          const std::vector<std::int64_t>& counts) {
  constexpr std::int32_t kMixed = -1;
  struct Subtree {
    std::int32_t node;
    bool several;
  };
  std::vector<GivenOperands> given(counts.size());
  const auto keep = [&](const Subtree& tree) {
    if (tree.node == kMixed) return;
    GivenOperands& of = given[static_cast<std::size_t>(tree.node)];
    (tree.several ? of.folded : of.single) += 1;
  };
  std::vector<Subtree> stack;
  for (std::size_t i = 0; i < order.ranks.size(); ++i) {
    stack.push_back({labels[static_cast<std::size_t>(order.ranks[i])], false});
    for (int join = 0; join < order.joins[i]; ++join) {
      const Subtree right = stack.back();
      stack.pop_back();
      Subtree& left = stack.back();
      if (left.node != right.node || left.node == kMixed) {
        keep(left);
        keep(right);
        left.node = kMixed;
      }
      left.several = true;
    }
  }
  keep(stack.front());
  for (std::size_t node = 0; node < counts.size(); ++node) {
    const double elsewhere = static_cast<double>(std::ssize(labels) - counts[node]);
    given[node] = {given[node].single * elsewhere, given[node].folded * elsewhere};
  }
  return given;
}

// The piece of rank p is summed from p + 1 round to p: the members of one node that come first are summed there, all
// others are added one by one.
std::vector<GivenOperands> given_round_the_ring(const NodesOfMembers& labels, const std::vector<std::int64_t>& counts) {
  const std::size_t n = labels.size();
  std::vector<std::int64_t> run(n, 1);  // members of one node from here on; some of the ring's end go on at its begin
  for (std::size_t i = 2 * n - 1; i-- > 0;)
    if (labels[i % n] == labels[(i + 1) % n]) run[i % n] = run[(i + 1) % n] + 1;
  std::vector<GivenOperands> given(counts.size());
  for (std::size_t node = 0; node < counts.size(); ++node)
    given[node].single = static_cast<double>(counts[node] * (std::ssize(labels) - counts[node]));
  for (std::size_t piece = 0; piece < n; ++piece) {
    const std::size_t first = (piece + 1) % n;
    if (labels[first] == labels[piece] || run[first] == 1) continue;
    GivenOperands& of = given[static_cast<std::size_t>(labels[first])];
    of.single -= static_cast<double>(run[first]);
    of.folded += 1;
  }
  return given;
}

std::vector<GivenOperands> given_to_sums(CommOp op, ReduceKind reduce, const NodesOfMembers& labels,
                                         const std::vector<std::int64_t>& counts) {
  if (reduce == ReduceKind::ring && op != CommOp::reduce) return given_round_the_ring(labels, counts);
  return given_in_order(sum_order(op, algorithm_of_sums(reduce), static_cast<int>(labels.size()), 0), labels, counts);
}

// The members of a group as they send: what leaves their nodes.
class CallOnNodes {
 public:
  CallOnNodes(const NodesOfMembers& labels) : labels_(labels), counts_(members_by_node(labels)), out_(labels.size()) {}

  std::vector<double> take() { return std::move(out_); }
  double size() const { return static_cast<double>(labels_.size()); }
  double hosts() const { return static_cast<double>(counts_.size()); }
  bool apart(std::size_t i, std::size_t j) const { return labels_[i] != labels_[j]; }
  double together(std::size_t i) const { return static_cast<double>(counts_[static_cast<std::size_t>(labels_[i])]); }
  template <class Bytes>
  void each(const Bytes& bytes) {
    for (std::size_t i = 0; i < out_.size(); ++i) out_[i] += bytes(i);
  }
  void exchange(double sent) {
    each([&](std::size_t i) { return sent * (size() - together(i)) / (size() - 1); });
  }
  // A library's ring passes each node once, and what a rank sends leaves it.
  void ring_of_nodes(double sent) {
    each([&](std::size_t i) { return sent / together(i); });
  }
  void ring_of_ranks(double sent, std::size_t distance = 1) {
    each([&](std::size_t i) { return apart(i, (i + distance) % labels_.size()) ? sent : 0; });
  }
  void gathered_by_leaders(double whole) {
    each([&](std::size_t) { return whole / size() * (hosts() - 1); });
  }
  void summed_by_leaders(CommOp op, DType dtype, ReduceKind reduce, double whole) {
    const std::vector<GivenOperands> given = given_to_sums(op, reduce, labels_, counts_);
    const DType wide = is_float(dtype) ? accumulator_of(dtype) : dtype;
    const double widened = static_cast<double>(size_of(wide)) / static_cast<double>(size_of(dtype));
    each([&](std::size_t i) {
      const GivenOperands& of = given[static_cast<std::size_t>(labels_[i])];
      return whole / size() * (of.single + of.folded * widened) / together(i);
    });
  }
  void to_root(double each_sends) {
    each([&](std::size_t i) { return apart(i, 0) ? each_sends : 0; });
  }
  void from_root(double bytes) { out_[0] += bytes; }
  // Node by node: all but the last pass it on.
  void along_nodes(double whole) {
    each([&](std::size_t i) {
      return labels_[i] + 1 < static_cast<std::int32_t>(counts_.size()) ? whole / together(i) : 0;
    });
  }

 private:
  const NodesOfMembers& labels_;
  std::vector<std::int64_t> counts_;
  std::vector<double> out_;
};

}  // namespace

std::vector<double> crossing_of_call(CommOp op, DType dtype, ReduceKind reduce, double sent, double received,
                                     const std::vector<std::int32_t>& labels, Route route) {
  CallOnNodes call(labels);
  if (call.hosts() == 1) return call.take();
  const double others = call.size() - 1;
  const bool native = reduces(op) && reduce == ReduceKind::native, direct = route == Route::direct;
  switch (op) {
    case CommOp::all_reduce:
    case CommOp::reduce_scatter:
    case CommOp::all_gather: {
      // What a rank sends is (N - 1) / N of the whole; in an all-reduce twice that.
      const double whole = sent * call.size() / others / (op == CommOp::all_reduce ? 2 : 1);
      if (direct && (native || op == CommOp::all_gather))
        call.ring_of_nodes(sent);
      else if (direct)
        call.exchange(sent);
      else if (native)
        call.ring_of_ranks(sent);
      else {
        if (op != CommOp::all_gather) call.summed_by_leaders(op, dtype, reduce, whole);
        if (op != CommOp::reduce_scatter) call.gathered_by_leaders(whole);
      }
      break;
    }
    case CommOp::all_to_all:
      call.exchange(sent);
      break;
    case CommOp::broadcast:
      if (direct)
        call.along_nodes(sent / others);
      else
        call.from_root(sent / others * (call.hosts() - 1));
      break;
    case CommOp::scatter:
      call.from_root(sent * (call.size() - call.together(0)) / others);
      break;
    case CommOp::gather:
      call.to_root(received / others);
      break;
    case CommOp::reduce:
      if (direct && native)
        call.along_nodes(received / others);
      else if (direct || native)
        call.to_root(received / others);
      else {
        call.summed_by_leaders(op, dtype, reduce, received / others);
        call.to_root(received / others / call.size());  // each piece's sum
      }
      break;
    default:
      break;
  }
  return call.take();
}

std::vector<double> crossing_of_send(double sent, std::int64_t distance, const std::vector<std::int32_t>& labels) {
  CallOnNodes call(labels);
  call.ring_of_ranks(sent, static_cast<std::size_t>(distance));
  return call.take();
}

}  // namespace lockstep
