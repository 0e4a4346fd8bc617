#include "comm/nccl/steps.h"

#include <algorithm>

#include "comm/failure_text.h"
#include "comm/parts.h"
#include "comm/sum_order.h"

namespace lockstep::nccl {

namespace {

template <class View>
View part(const View& t, std::int64_t begin, std::int64_t count) {
  return t.reshape({t.elements()}).slice(0, begin, count);
}

// One operation; its steps share it.
class StepBuilder : public std::enable_shared_from_this<StepBuilder> {
 public:
  StepBuilder(Message message, const StepContext& context) : m_(std::move(message)), context_(context) {}

  std::vector<Step> steps() {
    switch (m_.op) {
      case CommOp::all_reduce:
      case CommOp::reduce_scatter:
      case CommOp::reduce:
        return m_.algorithm == Algorithm::native ? native() : reduction();
      case CommOp::all_gather:
      case CommOp::gather:
      case CommOp::scatter:
        if (!m_.also.empty())
          return {step([](StepBuilder& o) {
            o.grouped([&] {
              for (const Message& pair : pairs_of(o.m_)) o.link().all_gather(pair.out, pair.in, o.stream());
            });
          })};
        cut(m_.counts);
        if (m_.op == CommOp::all_gather && m_.counts.empty())
          return {step([](StepBuilder& o) { o.link().all_gather(o.m_.out, o.m_.in, o.stream()); })};
        return {step([](StepBuilder& o) { o.grouped([&] { o.spread(); }); })};
      case CommOp::broadcast:
        return {step([](StepBuilder& o) { o.broadcast(); })};
      case CommOp::all_to_all:
        return all_to_all();
      case CommOp::barrier:
        return {step([](StepBuilder& o) {
          const Tensor word = o.staged(DType::i32, 0, 1);
          o.link().all_reduce(word, word, Reduction::max, o.stream());
        })};
      default:
        LOCKSTEP_CHECK(false, "{} is no collective", name_of(m_.op));
    }
  }

 private:
  Link& link() { return context_.in_flight.link(); }
  Stream& stream() { return context_.in_flight.stream(); }

  template <class Body>
  Step step(Body body) {
    return [self = shared_from_this(), body]() mutable {
      body(*self);
      return true;
    };
  }

  // A group is closed whatever happens: it is the thread's, and the next communicator's calls would go into it.
  template <class Body>
  void grouped(Body&& body) {
    link().begin_group();
    try {
      body();
    } catch (...) {
      try {
        link().end_group();
      } catch (const CommError&) {  // the same failure again
      }
      throw;
    }
    link().end_group();
  }

  void cut(std::vector<std::int64_t> counts) {
    counts_ = std::move(counts);
    parts_.emplace(count_of(m_, context_.ranks), context_.ranks, counts_);
  }

  void send(const ConstTensor& x, int to) {
    if (x.elements() > 0) link().send(x, to, stream());
  }
  void recv(const Tensor& x, int from) {
    if (x.elements() > 0) link().recv(x, from, stream());
  }
  void keep(const Tensor& to, const ConstTensor& from) {
    if (to.raw() != from.raw()) copy_later(to.raw(), from.raw(), from.bytes(), stream());
  }

  // `elements` of the staging buffer, from a byte on.
  Tensor staged(DType dtype, std::int64_t byte, std::int64_t elements) {
    return {static_cast<char*>(context_.staging.data()) + byte, dtype, stream().device(), {elements}};
  }

  // ------------------------------------------------------------------------------------------------ sums

  std::vector<Step> native() {
    switch (m_.op) {
      case CommOp::all_reduce:
        return {step([](StepBuilder& o) { o.link().all_reduce(o.m_.out, o.m_.in, o.m_.reduction, o.stream()); })};
      case CommOp::reduce:
        return {
            step([](StepBuilder& o) { o.link().reduce(o.m_.out, o.m_.in, o.m_.reduction, o.m_.peer, o.stream()); })};
      default:
        if (m_.counts.empty())
          return {step([](StepBuilder& o) { o.link().reduce_scatter(o.m_.out, o.m_.in, o.m_.reduction, o.stream()); })};
        cut(m_.counts);
        return {step([](StepBuilder& o) {
          o.grouped([&] {
            for (int to = 0; to < o.context_.ranks; ++to)
              if (const std::int64_t count = o.parts_->size(to); count > 0)
                o.link().reduce(to == o.context_.rank ? o.m_.out : Tensor{}, part(o.m_.in, o.parts_->begin(to), count),
                                o.m_.reduction, to, o.stream());
          });
        })};
    }
  }

  // A reduction to a root is one that scatters everything to it.
  std::vector<Step> reduction() {
    const std::int64_t n = m_.in.elements();
    std::vector<std::int64_t> counts = m_.counts;
    if (counts.empty()) {
      const Parts even(n, context_.ranks);
      for (int rank = 0; rank < context_.ranks; ++rank)
        counts.push_back(m_.op != CommOp::reduce ? even.size(rank) : rank == m_.peer ? n : 0);
    }
    cut(std::move(counts));
    order_ = sum_order(m_.op, m_.algorithm, context_.ranks, context_.rank);
    slot_bytes_ = context_.staging.bytes() / (context_.ranks - 1) / kAlignment * kAlignment;
    fragment_ = slot_bytes_ / size_of(m_.in.dtype());
    LOCKSTEP_CHECK(fragment_ > 0, "a staging buffer of {} bytes for {} ranks", context_.staging.bytes(),
                   context_.ranks);
    const std::int64_t longest = *std::max_element(counts_.begin(), counts_.end());
    std::vector<Step> steps = {step([](StepBuilder& o) { o.grouped([&] { o.exchange(0); }); })};
    for (std::int64_t at = 0; at < longest; at += fragment_)
      steps.push_back(step([at, last = at + fragment_ >= longest](StepBuilder& o) {
        o.sum(at);
        if (last && o.m_.op != CommOp::all_reduce) return;
        o.grouped([&] {
          if (o.m_.op == CommOp::all_reduce) o.give_back(at);
          if (!last) o.exchange(at + o.fragment_);
        });
      }));
    return steps;
  }

  // How much of a rank's piece the fragment at this place has.
  std::int64_t fragment_of(int rank, std::int64_t at) const {
    return std::clamp<std::int64_t>(parts_->size(rank) - at, 0, fragment_);
  }
  Tensor slot(int rank, std::int64_t count) {
    return staged(m_.in.dtype(), (rank < context_.rank ? rank : rank - 1) * slot_bytes_, count);
  }
  void exchange(std::int64_t at) {
    for (int rank = 0; rank < context_.ranks; ++rank) {
      if (rank == context_.rank) continue;
      const std::int64_t theirs = fragment_of(rank, at);
      if (theirs > 0) send(part(m_.in, parts_->begin(rank) + at, theirs), rank);
      recv(slot(rank, fragment_of(context_.rank, at)), rank);
    }
  }
  void sum(std::int64_t at) {
    const std::int64_t count = fragment_of(context_.rank, at), begin = parts_->begin(context_.rank) + at;
    if (count == 0) return;
    std::vector<ConstTensor> ins;
    for (const int rank : order_.ranks)
      ins.push_back(rank == context_.rank ? part(m_.in, begin, count) : ConstTensor(slot(rank, count)));
    const Tensor out = part(m_.out, m_.op == CommOp::all_reduce ? begin : at, count);
    tree_sum({.outs = {&out, 1}, .ins = ins, .joins = order_.joins, .reduction = m_.reduction}, stream());
  }
  void give_back(std::int64_t at) {
    const std::int64_t mine = fragment_of(context_.rank, at);
    for (int rank = 0; rank < context_.ranks; ++rank) {
      if (rank == context_.rank) continue;
      if (mine > 0) send(part(m_.out, parts_->begin(context_.rank) + at, mine), rank);
      if (const std::int64_t theirs = fragment_of(rank, at); theirs > 0)
        recv(part(m_.out, parts_->begin(rank) + at, theirs), rank);
    }
  }

  // ------------------------------------------------------------------------------------------------ copies

  void broadcast() {
    const bool root = m_.peer == context_.rank;
    link().broadcast(root && !m_.out ? Tensor(const_cast<void*>(m_.in.raw()), m_.in.dtype(), m_.in.device(),
                                              m_.in.shape())  // in place: NCCL leaves it as it is
                                     : m_.out,
                     root ? m_.in : ConstTensor(m_.out), m_.peer, stream());
  }

  void spread() {
    const int rank = context_.rank, root = m_.peer;
    const auto of = [&](const auto& t, int r) { return part(t, parts_->begin(r), parts_->size(r)); };
    const bool to_all = m_.op == CommOp::all_gather, scatters = m_.op == CommOp::scatter;
    for (int other = 0; other < context_.ranks; ++other) {
      if (other == rank) continue;
      if (to_all || (!scatters && other == root)) send(m_.in, other);
      if (to_all || (!scatters && rank == root)) recv(of(m_.out, other), other);
      if (scatters && rank == root) send(of(m_.in, other), other);
      if (scatters && other == root) recv(m_.out, other);
    }
    if (to_all || (!scatters && rank == root)) keep(of(m_.out, rank), m_.in);
    if (scatters && rank == root) keep(m_.out, of(m_.in, rank));
  }

  std::vector<Step> all_to_all() {
    cut(m_.counts);
    incoming_.assign(static_cast<std::size_t>(context_.ranks), m_.in.elements() / context_.ranks);
    std::vector<Step> steps;
    if (!m_.counts.empty()) {
      steps.push_back(step([](StepBuilder& o) { o.send_counts(); }));
      steps.push_back(step([](StepBuilder& o) { o.receive_counts(); }));
      steps.push_back([self = shared_from_this()] { return self->counts_received(); });
    }
    steps.push_back(step([](StepBuilder& o) { o.grouped([&] { o.transpose(); }); }));
    return steps;
  }
  // What this rank gives to each, for them to know.
  void send_counts() {
    const std::int64_t row = context_.ranks * std::int64_t{8};
    std::copy(m_.counts.begin(), m_.counts.end(), context_.counts.as<std::int64_t>().begin());
    const Tensor mine = staged(DType::i64, 0, context_.ranks), theirs = staged(DType::i64, row, context_.ranks);
    upload_later(mine, context_.counts.as<std::int64_t>().data(), stream());
    grouped([&] {
      for (int rank = 0; rank < context_.ranks; ++rank)
        if (rank != context_.rank) {
          send(part(mine, rank, 1), rank);
          recv(part(theirs, rank, 1), rank);
        }
    });
    keep(part(theirs, context_.rank, 1), part(mine, context_.rank, 1));
  }
  void receive_counts() {
    const std::int64_t row = context_.ranks * std::int64_t{8};
    download_later(context_.counts.as<std::int64_t>().data() + context_.ranks, staged(DType::i64, row, context_.ranks),
                   stream());
    counts_event_ = stream().make_event();
    stream().record(*counts_event_);
  }
  bool counts_received() {
    if (!counts_event_->done()) return false;
    const auto all = context_.counts.as<std::int64_t>();
    std::int64_t sum = 0;
    for (int rank = 0; rank < context_.ranks; ++rank)
      sum += incoming_[static_cast<std::size_t>(rank)] = all[static_cast<std::size_t>(context_.ranks + rank)];
    if (sum != m_.out.elements()) throw CommError(room_text(context_.rank, m_.out.elements(), sum));
    return true;
  }
  void transpose() {
    std::int64_t filled = 0;
    for (int rank = 0; rank < context_.ranks; ++rank) {
      const std::int64_t count = incoming_[static_cast<std::size_t>(rank)];
      const ConstTensor given = part(m_.in, parts_->begin(rank), parts_->size(rank));
      const Tensor place = part(m_.out, filled, count);
      if (rank == context_.rank) {
        keep(place, given);
      } else {
        send(given, rank);
        recv(place, rank);
      }
      filled += count;
    }
  }

  Message m_;
  StepContext context_;
  std::vector<std::int64_t> counts_;
  std::optional<Parts> parts_;
  SumOrder order_ = {};
  std::int64_t slot_bytes_ = 0, fragment_ = 0;
  std::vector<std::int64_t> incoming_;  // of an all_to_all, by rank
  std::unique_ptr<Event> counts_event_;
};

}  // namespace

std::vector<Step> steps_of(const Message& message, const StepContext& context) {
  const bool uneven_all_to_all = message.op == CommOp::all_to_all && !message.counts.empty();
  if (message.op != CommOp::barrier && !uneven_all_to_all && count_of(message, context.ranks) == 0) return {};
  if (!message.also.empty() && reduces(message.op)) {  // they share the staging buffer, one after the other
    std::vector<Step> all;
    for (const Message& pair : pairs_of(message))
      for (Step& step : steps_of(pair, context)) all.push_back(std::move(step));
    return all;
  }
  return std::make_shared<StepBuilder>(message, context)->steps();
}

}  // namespace lockstep::nccl
