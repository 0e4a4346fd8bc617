#include "comm/message.h"

#include <fmt/ranges.h>

#include <numeric>

#include "comm/parts.h"

namespace lockstep {

std::string_view name_of(CommOp op) {
  constexpr std::string_view kNames[kCommOps] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                 "reduce",     "gather",         "scatter",    "all_to_all",
                                                 "send",       "recv",           "barrier"};
  return kNames[static_cast<int>(op)];
}

std::string_view name_of(Algorithm algorithm) {
  constexpr std::string_view kNames[] = {"canonical", "ring", "tree", "native"};
  return kNames[static_cast<int>(algorithm)];
}

std::string_view name_of(Reduction reduction) {
  constexpr std::string_view kNames[] = {"sum", "mean", "max"};
  return kNames[static_cast<int>(reduction)];
}

DType dtype_of_message(const Message& m) { return m.in ? m.in.dtype() : m.out.dtype(); }

std::vector<Message> pairs_of(const Message& m) {
  std::vector<Message> pairs(m.also.size() + 1);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    pairs[i] = {.op = m.op,
                .out = i == 0 ? m.out : m.also[i - 1].out,
                .in = i == 0 ? m.in : m.also[i - 1].in,
                .reduction = m.reduction,
                .algorithm = m.algorithm,
                .peer = m.peer,
                .counts = m.counts,
                .deadline = m.deadline};
  return pairs;
}

std::int64_t count_of(const Message& m, int ranks) {
  if (!m.also.empty()) {
    std::int64_t all = 0;
    for (const Message& pair : pairs_of(m)) all += count_of(pair, ranks);
    return all;
  }
  const std::int64_t in = m.in ? m.in.elements() : 0, out = m.out ? m.out.elements() : 0;
  switch (m.op) {
    case CommOp::barrier:
      return 0;
    case CommOp::all_gather:
    case CommOp::recv:
      return out;
    case CommOp::broadcast:
      return m.in ? in : out;
    case CommOp::gather:
      return m.counts.empty() ? in * ranks : std::accumulate(m.counts.begin(), m.counts.end(), std::int64_t{0});
    case CommOp::scatter:
      return m.counts.empty() ? out * ranks : std::accumulate(m.counts.begin(), m.counts.end(), std::int64_t{0});
    default:
      return in;
  }
}

std::string describe(const Message& m, int ranks) {
  if (m.op == CommOp::barrier) return "barrier";
  std::string text = fmt::format("{} of {} {}", name_of(m.op), count_of(m, ranks), name_of(dtype_of_message(m)));
  if (!m.also.empty()) text += fmt::format(" in {} tensors", m.also.size() + 1);
  if (!m.counts.empty() && m.counts.size() <= 16) text += fmt::format(" cut [{}]", fmt::join(m.counts, ", "));
  if (m.op == CommOp::send) return text + fmt::format(" to {}", m.peer);
  if (m.op == CommOp::recv) return text + fmt::format(" from {}", m.peer);
  text += " (";
  if (reduces(m.op)) text += fmt::format("{}, ", name_of(m.reduction));
  if (has_root(m.op)) text += fmt::format("root {}, ", m.peer);
  return text + fmt::format("{})", name_of(m.algorithm));
}

namespace {

class Checker {
 public:
  Checker(const Message& m, int rank, int ranks, Device device) : m_(m), rank_(rank), ranks_(ranks), device_(device) {}

  void check() {
    const bool at_root = m_.peer == rank_;
    LOCKSTEP_CHECK(m_.op == CommOp::barrier || m_.in || m_.out, "{} of nothing", name());
    if (has_root(m_.op) || point_to_point(m_.op))
      LOCKSTEP_CHECK(m_.peer >= 0 && m_.peer < ranks_, "{}: rank {} of {}", name(), m_.peer, ranks_);
    if (point_to_point(m_.op)) LOCKSTEP_CHECK(!at_root, "{}: rank {} to itself", name(), rank_);
    if (reduces(m_.op) && m_.reduction == Reduction::mean)
      LOCKSTEP_CHECK(is_float(dtype_of_message(m_)), "{}: integers have no mean", name());
    counts();
    const std::int64_t n = count_of(m_, ranks_);
    const bool cut = m_.op == CommOp::reduce_scatter || m_.op == CommOp::all_gather || m_.op == CommOp::gather ||
                     m_.op == CommOp::scatter;
    const Parts parts = cut ? Parts(n, ranks_, m_.counts) : Parts(n, ranks_);
    const std::int64_t mine = cut ? parts.size(rank_) : 0, begin = cut ? parts.begin(rank_) : 0;
    switch (m_.op) {
      case CommOp::all_reduce:
        return both(n, n, 0);
      case CommOp::reduce_scatter:
        return both(n, mine, begin);
      case CommOp::all_gather:
        return both(mine, n, begin);
      case CommOp::broadcast:
        LOCKSTEP_CHECK(at_root ? m_.in.elements() == n && m_.in : !m_.out.none(), "{}: an operand is missing", name());
        if (m_.in) operand("in", m_.in, n);
        if (m_.out) operand("out", m_.out, n);
        return overlap(0);
      case CommOp::reduce:
        return at_root ? both(n, n, 0) : operand("in", m_.in, n);
      case CommOp::gather:
        return at_root ? both(mine, n, begin) : operand("in", m_.in, mine);
      case CommOp::scatter:
        return at_root ? both(n, mine, begin) : operand("out", m_.out, mine);
      case CommOp::all_to_all:
        if (m_.counts.empty())
          LOCKSTEP_CHECK(n % ranks_ == 0, "{}: {} elements for {} ranks; give counts", name(), n, ranks_);
        return both(n, m_.counts.empty() ? n : m_.out.elements(), -1);
      case CommOp::send:
        return operand("in", m_.in, n);
      case CommOp::recv:
        return operand("out", m_.out, n);
      case CommOp::barrier:
        return;
    }
  }

 private:
  std::string_view name() const { return name_of(m_.op); }

  void counts() const {
    if (m_.counts.empty()) return;
    LOCKSTEP_CHECK(static_cast<int>(m_.counts.size()) == ranks_, "{}: {} counts for {} ranks", name(), m_.counts.size(),
                   ranks_);
    std::int64_t sum = 0;
    for (const std::int64_t count : m_.counts) {
      LOCKSTEP_CHECK(count >= 0, "{}: a count of {}", name(), count);
      sum += count;
    }
    LOCKSTEP_CHECK(sum == count_of(m_, ranks_), "{}: counts of {} in all for {} elements", name(), sum,
                   count_of(m_, ranks_));
  }

  void operand(const char* which, const ConstTensor& t, std::int64_t elements) const {
    LOCKSTEP_CHECK(!t.none(), "{}: {} is missing", name(), which);
    LOCKSTEP_CHECK(t.contiguous(), "{}: {} {} is not contiguous", name(), which, t.shape());
    LOCKSTEP_CHECK(t.elements() == elements, "{}: {} has {} elements, expected {}", name(), which, t.elements(),
                   elements);
    LOCKSTEP_CHECK(t.device() == device_, "{}: {} is on {}, the ranks on {}", name(), which, name_of(t.device()),
                   name_of(device_));
  }

  void both(std::int64_t in, std::int64_t out, std::int64_t place) const {
    operand("in", m_.in, in);
    operand("out", m_.out, out);
    LOCKSTEP_CHECK(m_.in.dtype() == m_.out.dtype(), "{}: in is {}, out {}", name(), name_of(m_.in.dtype()),
                   name_of(m_.out.dtype()));
    overlap(place);
  }

  // The smaller operand begins `place` elements into the larger one, or they are apart. Negative: they must be apart.
  void overlap(std::int64_t place) const {
    if (!m_.in || !m_.out || !m_.in.raw() || m_.in.bytes() == 0 || m_.out.bytes() == 0) return;
    const char *in = static_cast<const char*>(m_.in.raw()), *out = static_cast<const char*>(m_.out.raw());
    if (in + m_.in.bytes() <= out || out + m_.out.bytes() <= in) return;
    const std::int64_t into = m_.in.elements() < m_.out.elements() ? in - out : out - in;
    LOCKSTEP_CHECK(place >= 0 && into == place * size_of(m_.in.dtype()),
                   "{}: in and out overlap where they may not (in place is exactly this rank's part)", name());
  }

  const Message& m_;
  int rank_, ranks_;
  Device device_;
};

}  // namespace

void check_message(const Message& message, int rank, int ranks, Device device) {
  if (message.also.empty()) return Checker(message, rank, ranks, device).check();
  const bool takes_several =
      message.op == CommOp::all_reduce || message.op == CommOp::reduce_scatter || message.op == CommOp::all_gather;
  LOCKSTEP_CHECK(takes_several && message.counts.empty(), "{} of several tensors", name_of(message.op));
  for (const Message& pair : pairs_of(message)) {
    Checker(pair, rank, ranks, device).check();
    LOCKSTEP_CHECK(dtype_of_message(pair) == dtype_of_message(message), "{}: tensors of {} and {} in one call",
                   name_of(message.op), name_of(dtype_of_message(message)), name_of(dtype_of_message(pair)));
  }
}

bool agree(const Message& a, const Message& b, int ranks) {
  if (point_to_point(a.op) || point_to_point(b.op))
    return point_to_point(a.op) && point_to_point(b.op) && dtype_of_message(a) == dtype_of_message(b) &&
           count_of(a, ranks) == count_of(b, ranks);
  if (a.op != b.op) return false;
  if (a.op == CommOp::barrier) return true;
  if (dtype_of_message(a) != dtype_of_message(b) || a.algorithm != b.algorithm) return false;
  if (reduces(a.op) && a.reduction != b.reduction) return false;
  if (has_root(a.op) && a.peer != b.peer) return false;
  if (a.also.size() != b.also.size()) return false;
  for (std::size_t i = 0; i < a.also.size(); ++i)
    if (a.also[i].in.elements() != b.also[i].in.elements()) return false;
  if (a.op == CommOp::all_to_all) return true;  // each gives what it likes; what comes is checked when all are there
  return count_of(a, ranks) == count_of(b, ranks) && a.counts == b.counts;
}

}  // namespace lockstep
