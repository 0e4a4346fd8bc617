#include "comm/traffic.h"

#include <bit>

#include "comm/parts.h"

namespace lockstep {

namespace {

int log2_up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

Traffic operator+(const Traffic& a, const Traffic& b) {
  return {a.sent + b.sent, a.received + b.received, a.messages + b.messages, a.steps + b.steps};
}

// Everybody hands everybody his piece. Gathering goes the same ways backwards.
Traffic exchanged(const Parts& parts, int rank, int ranks, bool scattering) {
  const std::int64_t mine = (ranks - 1) * parts.size(rank), others = parts.elements() - parts.size(rank);
  return {scattering ? others : mine, scattering ? mine : others, ranks - 1, 1};
}

Traffic round_the_ring(const Parts& parts, int rank, int ranks, bool scattering) {
  const int before = (rank + ranks - 1) % ranks, after = (rank + 1) % ranks;
  const std::int64_t n = parts.elements();
  const std::int64_t sent = n - parts.size(scattering ? rank : after);
  const std::int64_t received = n - parts.size(scattering ? before : rank);
  return {sent, received, ranks - 1, ranks - 1};
}

// Recursive halving over P ranks, of which the first hold the pieces of those from P on as well; `fold` is what passes
// between a rank and its double before the halving and after it.
class Halving {
 public:
  Halving(const Parts& parts, int rank, int ranks)
      : parts_(parts), rank_(rank), ranks_(ranks), power_(static_cast<int>(std::bit_floor(unsigned(ranks)))) {}

  Traffic scatter() const {
    const std::int64_t n = parts_.elements();
    if (rank_ >= power_) return {n, parts_.size(rank_), 1, steps() + 2};
    Traffic t{0, 0, 0, steps() + (ranks_ > power_ ? 2 : 0)};
    for (int distance = power_ / 2; distance > 0; distance /= 2) {
      t.sent += blocks((rank_ / distance ^ 1) * distance, distance);
      t.received += blocks(rank_ / distance * distance, distance);
      ++t.messages;
    }
    if (const int twin = rank_ + power_; twin < ranks_)
      t = t + Traffic{.sent = parts_.size(twin), .received = n, .messages = 1};
    return t;
  }
  // Backwards, and the twin need not be told its own piece.
  Traffic gather() const {
    const std::int64_t n = parts_.elements();
    if (rank_ >= power_) return {parts_.size(rank_), n - parts_.size(rank_), 1, steps() + 2};
    Traffic t = Halving(parts_, rank_, ranks_).scatter();
    if (const int twin = rank_ + power_; twin < ranks_) {
      t.received -= n;
      t.sent -= parts_.size(twin);
      t = t + Traffic{.sent = parts_.size(twin), .received = n - parts_.size(twin)};
    }
    return {t.received, t.sent, t.messages, t.steps};
  }

 private:
  int steps() const { return std::bit_width(unsigned(power_)) - 1; }
  std::int64_t blocks(int first, int count) const {
    const auto begin = [&](int part) { return parts_.begin(std::min(part, ranks_)); };
    return begin(first + count) - begin(first) + begin(first + count + power_) - begin(first + power_);
  }

  const Parts& parts_;
  int rank_, ranks_, power_;
};

// A whole all-reduce by halving: nobody's piece is folded, so the folded ranks give all and get all.
Traffic halved_all_reduce(std::int64_t n, int rank, int ranks) {
  const int power = static_cast<int>(std::bit_floor(unsigned(ranks)));
  const std::int64_t folds = ranks > power ? 2 : 0;
  const std::int64_t steps = 2 * (std::bit_width(unsigned(power)) - 1) + folds;
  if (rank >= power) return {n, n, 1, steps};
  const Parts parts(n, power);
  Traffic t = Halving(parts, rank, power).scatter() + Halving(parts, rank, power).gather();
  if (rank + power < ranks) t = t + Traffic{n, n, 1, 0};
  t.steps = steps;
  return t;
}

// From the root to all, rank by rank on a chain or along a binomial tree; a reduction goes the same way backwards.
Traffic from_root(const Message& m, std::int64_t n, int rank, int ranks) {
  const int from_it = (rank - m.peer + ranks) % ranks;  // the root is 0
  std::int64_t children = 0, steps = 1;
  switch (m.algorithm) {
    case Algorithm::ring:
      // A reduction begins after the root and ends at it; a broadcast begins there.
      if (m.op == CommOp::broadcast)
        children = from_it + 1 < ranks;
      else
        children = from_it != 1;
      steps = ranks - 1;
      break;
    case Algorithm::tree:
      for (int step = 1; from_it + step < ranks && (from_it & step) == 0; step *= 2) ++children;
      steps = log2_up(ranks);
      break;
    default:
      children = from_it == 0 ? ranks - 1 : 0;
  }
  const std::int64_t parents = from_it == 0 ? 0 : 1;
  return {children * n, parents * n, children, steps};
}

Traffic scattered(const Message& m, const Parts& parts, int rank, int ranks) {
  if (m.algorithm == Algorithm::ring) return round_the_ring(parts, rank, ranks, true);
  if (m.algorithm == Algorithm::tree) return Halving(parts, rank, ranks).scatter();
  return exchanged(parts, rank, ranks, true);
}
Traffic gathered(const Message& m, const Parts& parts, int rank, int ranks) {
  if (m.algorithm == Algorithm::ring) return round_the_ring(parts, rank, ranks, false);
  if (m.algorithm == Algorithm::tree) return Halving(parts, rank, ranks).gather();
  return exchanged(parts, rank, ranks, false);
}

}  // namespace

Traffic traffic_of(const Message& m, int rank, int ranks) {
  if (ranks == 1) return {};
  if (!m.also.empty()) {  // the ranks meet once, whatever they carry
    Traffic all;
    for (const Message& pair : pairs_of(m)) {
      const Traffic one = traffic_of(pair, rank, ranks);
      all = {all.sent + one.sent, all.received + one.received, one.messages, one.steps};
    }
    return all;
  }
  const std::int64_t n = count_of(m, ranks);
  const bool root = rank == m.peer;
  switch (m.op) {
    case CommOp::all_reduce: {
      if (m.algorithm == Algorithm::tree) return halved_all_reduce(n, rank, ranks);
      const Parts parts(n, ranks);
      return scattered(m, parts, rank, ranks) + gathered(m, parts, rank, ranks);
    }
    case CommOp::reduce_scatter:
      return scattered(m, Parts(n, ranks, m.counts), rank, ranks);
    case CommOp::all_gather:
      return gathered(m, Parts(n, ranks, m.counts), rank, ranks);
    case CommOp::broadcast:
      return from_root(m, n, rank, ranks);
    case CommOp::reduce: {
      const Traffic t = from_root(m, n, rank, ranks);
      return {t.received, t.sent, root ? 0 : 1, t.steps};
    }
    case CommOp::gather:
    case CommOp::scatter: {
      const std::int64_t mine = Parts(n, ranks, m.counts).size(rank);
      const bool gives = (m.op == CommOp::scatter) == root;
      const std::int64_t elements = root ? n - mine : mine;
      return {gives ? elements : 0, gives ? 0 : elements, gives ? (root ? ranks - 1 : 1) : 0, 1};
    }
    case CommOp::all_to_all: {
      const std::int64_t kept = Parts(n, ranks, m.counts).size(rank);
      return {n - kept, m.out.elements() - kept, ranks - 1, 1};
    }
    case CommOp::send:
      return {n, 0, 1, 1};
    case CommOp::recv:
      return {0, n, 0, 1};
    case CommOp::barrier:
      return {0, 0, log2_up(ranks), log2_up(ranks)};
  }
  return {};
}

}  // namespace lockstep
