#include "support/every_op.h"

#include "comm/parts.h"
#include "support/recipes.h"

namespace lockstep::tests {

namespace {

std::vector<std::int64_t> counts_of(const Trial& t, int ranks) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank)
    counts.push_back(!t.uneven ? t.n : rank % 3 == 1 ? 0 : t.n / (rank + 1) + rank);
  return counts;
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

// Of an uneven all_to_all: what one rank gives another, which may be nothing.
std::int64_t given(const Trial& t, int from, int to) { return t.uneven ? (from + 2 * to) % 4 * (t.n / 4) : t.n; }

struct Sizes {
  std::int64_t in, out;
};
Sizes sizes_of(const Trial& t, int rank, int ranks) {
  const std::vector<std::int64_t> counts = counts_of(t, ranks);
  const std::int64_t all = sum_of(counts), mine = counts[static_cast<std::size_t>(rank)];
  switch (t.op) {
    case CommOp::all_reduce:
    case CommOp::broadcast:
    case CommOp::reduce:
      return {all, all};
    case CommOp::reduce_scatter:
    case CommOp::scatter:
      return {all, mine};
    case CommOp::all_gather:
    case CommOp::gather:
      return {mine, all};
    case CommOp::all_to_all: {
      Sizes sizes{0, 0};
      for (int other = 0; other < ranks; ++other) {
        sizes.in += given(t, rank, other);
        sizes.out += given(t, other, rank);
      }
      return sizes;
    }
    default:
      return {t.n, 2 * t.n};  // send: what goes both ways, and room for what comes from both
  }
}

Row values(const Trial& t, std::int64_t elements, int rank) {
  if (t.plain) return row_of(t.dtype, elements, rank);
  if (!is_float(t.dtype))  // some of them wrap around when summed
    return Row(t.dtype, elements, [&](std::int64_t i) {
      return std::floor((uniform_number(static_cast<std::uint64_t>(rank) + 3, i) - 0.5) * 4294967295.0);
    });
  const Recipe recipe = magnitudes(-20, t.dtype == DType::f16 ? 12 : 20);
  return Row(t.dtype, elements,
             [&](std::int64_t i) { return round_to(t.dtype, recipe(static_cast<std::uint64_t>(rank) + 17, i)); });
}

bool has_place(CommOp op) {
  return op == CommOp::all_reduce || op == CommOp::reduce_scatter || op == CommOp::all_gather || op == CommOp::gather ||
         op == CommOp::scatter || op == CommOp::broadcast || op == CommOp::reduce;
}
bool has_cut(CommOp op) {
  return op == CommOp::reduce_scatter || op == CommOp::all_gather || op == CommOp::gather || op == CommOp::scatter ||
         op == CommOp::all_to_all;
}

}  // namespace

std::string describe(const Trial& t) {
  return fmt::format("{} {} of {} {} {} root {}{}{}", name_of(t.op), name_of(t.dtype), t.n, name_of(t.how.reduction),
                     name_of(t.how.algorithm), t.root, t.uneven ? " uneven" : "", t.in_place ? " in place" : "");
}

std::vector<Trial> every_trial(int ranks, const std::vector<Algorithm>& algorithms,
                               const std::vector<std::int64_t>& sizes) {
  std::vector<Trial> trials;
  for (int op = 0; op < kCommOps; ++op)
    for (const DType dtype : kTypes)
      for (const std::int64_t n : sizes)
        for (const bool uneven : {false, true})
          for (const bool in_place : {false, true}) {
            Trial trial{.op = static_cast<CommOp>(op), .dtype = dtype, .n = n};
            trial.uneven = uneven;
            trial.in_place = in_place;
            if (trial.op == CommOp::recv || (trial.op == CommOp::send && ranks == 1)) continue;  // recv: with send
            if ((uneven && !has_cut(trial.op)) || (in_place && !has_place(trial.op))) continue;
            if (trial.op == CommOp::barrier && (dtype != DType::f32 || n != sizes[0])) continue;
            trial.root = has_root(trial.op) ? static_cast<int>(trials.size()) % ranks : 0;
            if (!reduces(trial.op)) {
              trials.push_back(trial);
              continue;
            }
            for (const Algorithm algorithm : algorithms)
              for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max}) {
                if (reduction == Reduction::mean && !is_float(dtype)) continue;
                trial.how = {reduction, algorithm};
                trial.plain = algorithm == Algorithm::native;
                trials.push_back(trial);
              }
          }
  return trials;
}

TrialBuffers before(const Trial& t, int rank, int ranks) {
  const auto [in, out] = sizes_of(t, rank, ranks);
  TrialBuffers buffers{values(t, in, rank), Row(t.dtype, out)};
  if (!t.in_place) return buffers;
  if (t.op == CommOp::all_reduce || t.op == CommOp::broadcast || t.op == CommOp::reduce)
    buffers.out = buffers.in;
  else if (t.op == CommOp::all_gather || (t.op == CommOp::gather && rank == t.root)) {
    const std::vector<std::int64_t> counts = counts_of(t, ranks);
    const std::int64_t begin = Parts(sum_of(counts), ranks, counts).begin(rank);
    for (std::int64_t i = 0; i < in; ++i) buffers.out.set(begin + i, buffers.in[i]);
  }
  return buffers;
}

std::vector<Message> calls_of(const Trial& t, int rank, int ranks, const Tensor& in, const Tensor& out) {
  Message m{
      .op = t.op, .out = out, .in = in, .reduction = t.how.reduction, .algorithm = t.how.algorithm, .peer = t.root};
  const bool at_root = rank == t.root;
  const std::vector<std::int64_t> counts = counts_of(t, ranks);
  const Parts parts(sum_of(counts), ranks, counts);
  const std::int64_t begin = parts.begin(rank), mine = parts.size(rank);
  if (t.uneven && t.op != CommOp::all_to_all) m.counts = counts;
  switch (t.op) {
    case CommOp::all_reduce:
      if (t.in_place) m.in = out;
      return {m};
    case CommOp::reduce_scatter:
      if (t.in_place) m.out = in.slice(0, begin, mine);
      return {m};
    case CommOp::all_gather:
      if (t.in_place) m.in = out.slice(0, begin, mine);
      return {m};
    case CommOp::broadcast:
      if (t.in_place) m.in = out;
      if (!at_root) m.in = {};
      return {m};
    case CommOp::reduce:
      if (t.in_place && at_root) m.in = out;
      if (!at_root) m.out = {};
      return {m};
    case CommOp::gather:
      if (t.in_place && at_root) m.in = out.slice(0, begin, mine);
      if (!at_root) m.out = {};
      return {m};
    case CommOp::scatter:
      if (t.in_place && at_root) m.out = in.slice(0, begin, mine);
      if (!at_root) m.in = {};
      return {m};
    case CommOp::all_to_all:
      if (t.uneven)
        for (int to = 0; to < ranks; ++to) m.counts.push_back(given(t, rank, to));
      return {m};
    case CommOp::send: {  // both ways round the ranks, and all send before any receives
      const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
      return {{.op = CommOp::send, .in = in, .peer = next},
              {.op = CommOp::send, .in = in, .peer = last},
              {.op = CommOp::recv, .out = out.slice(0, 0, t.n), .peer = last},
              {.op = CommOp::recv, .out = out.slice(0, t.n, t.n), .peer = next}};
    }
    default:
      return {{.op = CommOp::barrier}};
  }
}

std::vector<std::vector<TrialBuffers>> references(const std::vector<Trial>& trials, int ranks) {
  std::vector<std::vector<TrialBuffers>> all(trials.size());
  for (std::size_t i = 0; i < trials.size(); ++i)
    for (int rank = 0; rank < ranks; ++rank) all[i].push_back(before(trials[i], rank, ranks));
  each_rank(ranks, [&](Communicator& comm) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      TrialBuffers& mine = all[i][static_cast<std::size_t>(comm.rank())];
      std::vector<std::unique_ptr<Pending>> pending;
      for (const Message& call : calls_of(trials[i], comm.rank(), ranks, mine.in, mine.out))
        pending.push_back(comm.start(call));
      for (auto& one : pending) one->wait();
    }
  });
  return all;
}

TrialBuffers run_trial(const Trial& trial, Communicator& comm, Memory& memory, Stream& stream) {
  TrialBuffers host = before(trial, comm.rank(), comm.size());
  const auto on_device = [&](const Row& row, Buffer& buffer) {
    buffer = memory.allocate(std::max<std::int64_t>(1, static_cast<std::int64_t>(row.bytes().size())), Tag::data);
    const Tensor t = view(buffer, trial.dtype, {row.elements()});
    upload(t, row.bytes().data(), stream);
    return t;
  };
  Buffer in_buffer, out_buffer;
  const Tensor in = on_device(host.in, in_buffer), out = on_device(host.out, out_buffer);
  std::vector<std::unique_ptr<Pending>> pending;
  for (const Message& call : calls_of(trial, comm.rank(), comm.size(), in, out)) pending.push_back(comm.start(call));
  for (auto& one : pending) one->wait();
  download(static_cast<Tensor>(host.in).raw(), in, stream);
  download(static_cast<Tensor>(host.out).raw(), out, stream);
  return host;
}

std::string difference(const Trial& t, const TrialBuffers& got, const TrialBuffers& want) {
  const double allowed =
      t.how.algorithm == Algorithm::native && t.how.reduction == Reduction::mean ? 8 * unit_roundoff(t.dtype) : 0;
  for (const auto& [a, b, which] : {std::tuple(&got.in, &want.in, "in"), std::tuple(&got.out, &want.out, "out")}) {
    if (a->bytes() == b->bytes()) continue;
    for (std::int64_t i = 0; i < a->elements(); ++i)
      if (!(std::abs((*a)[i] - (*b)[i]) <= allowed * std::max(1.0, std::abs((*b)[i]))))
        return fmt::format("{}: element {} of {} {} is {}, expected {}", describe(t), i, a->elements(), which, (*a)[i],
                           (*b)[i]);
    if (allowed == 0) return fmt::format("{}: bits of {} that are no number's", describe(t), which);
  }
  return "";
}

}  // namespace lockstep::tests
