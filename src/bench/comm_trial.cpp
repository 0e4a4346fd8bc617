#include "bench/comm_trial.h"

#include <algorithm>
#include <cmath>

#include "comm/traffic.h"

namespace lockstep {

std::int64_t least_copied(const CommTrial& trial) {
  const double N = trial.ranks, n = static_cast<double>(trial.bytes());
  const auto half = [&](double read, double written) { return std::llround((read + written) / 2 / N); };
  switch (trial.op) {
    case CommOp::all_reduce:
      return trial.ranks == 1 ? 0 : half(N * n, N * n);
    case CommOp::reduce_scatter:
    case CommOp::reduce:
      return half(N * n, n);
    case CommOp::all_gather:
      return half(n, N * n);
    case CommOp::broadcast:
      return trial.ranks == 1 ? 0 : half(n, (N - 1) * n);
    case CommOp::all_to_all:
      return half(N * n, N * n);
    default:  // gather, scatter
      return half(n, n);
  }
}

Message message_of(const CommTrial& trial, Algorithm algorithm, int rank, const RankTensors& tensors) {
  const auto part = [&](const Tensor& t) { return t.slice(0, rank * trial.share(), trial.share()); };
  const bool root = rank == 0;
  Message m{.op = trial.op, .algorithm = algorithm};
  switch (trial.op) {
    case CommOp::all_reduce:
      m.in = tensors.x;
      m.out = algorithm == Algorithm::native ? tensors.y : tensors.x;
      break;
    case CommOp::reduce_scatter:
      m.in = tensors.x;
      m.out = part(tensors.y);
      break;
    case CommOp::all_gather:
      m.in = part(tensors.x);
      m.out = tensors.y;
      break;
    case CommOp::broadcast:
      root ? void(m.in = tensors.x) : void(m.out = tensors.y);
      break;
    case CommOp::reduce:
      m.in = tensors.x;
      if (root) m.out = tensors.y;
      break;
    case CommOp::gather:
      m.in = part(tensors.x);
      if (root) m.out = tensors.y;
      break;
    case CommOp::scatter:
      if (root) m.in = tensors.x;
      m.out = part(tensors.y);
      break;
    default:  // all_to_all
      m.in = tensors.x;
      m.out = tensors.y;
  }
  return m;
}

std::int64_t most_sent(const CommTrial& trial, Algorithm algorithm) {
  const Tensor shadow(nullptr, DType::f32, Device::meta, {trial.elements});
  std::int64_t most = 0;
  for (int rank = 0; rank < trial.ranks; ++rank)
    most = std::max(most, traffic_of(message_of(trial, algorithm, rank, {shadow, shadow}), rank, trial.ranks).sent);
  return most * CommTrial::kElement;
}

namespace {

// Small whole numbers, whose sums are exact in any order.
float given(int rank, std::int64_t i) { return static_cast<float>((i + 3 * rank) % 17 + rank); }

// Element i of what this rank gets.
float expected(const CommTrial& trial, int rank, std::int64_t i) {
  const auto sum = [&](std::int64_t at) {
    float total = 0;
    for (int r = 0; r < trial.ranks; ++r) total += given(r, at);
    return total;
  };
  const std::int64_t mine = rank * trial.share();
  switch (trial.op) {
    case CommOp::all_reduce:
    case CommOp::reduce:
      return sum(i);
    case CommOp::reduce_scatter:
      return sum(mine + i);
    case CommOp::all_gather:
    case CommOp::gather:
      return given(static_cast<int>(i / trial.share()), i);
    case CommOp::broadcast:
      return given(0, i);
    case CommOp::scatter:
      return given(0, mine + i);
    default:  // all_to_all
      return given(static_cast<int>(i / trial.share()), mine + i % trial.share());
  }
}

}  // namespace

void prove(Communicator& comm, const CommTrial& trial, Algorithm algorithm, const RankTensors& tensors) {
  constexpr std::int64_t kLookedAt = 10007;
  float *const x = tensors.x.data<float>(), *const y = tensors.y.data<float>();
  for (std::int64_t i = 0; i < trial.elements; ++i) x[i] = given(comm.rank(), i);
  std::fill_n(y, trial.elements, -1.0f);
  const Message m = message_of(trial, algorithm, comm.rank(), tensors);
  comm.start(m)->wait();
  const std::int64_t count = m.out ? m.out.elements() : 0;
  for (std::int64_t at = 0; at < count; at += std::max<std::int64_t>(1, count / kLookedAt)) {
    const float found = m.out.data<float>()[at], right = expected(trial, comm.rank(), at);
    LOCKSTEP_CHECK(found == right, "{} gave rank {} {} for element {}, not {}", describe(m, trial.ranks), comm.rank(),
                   found, at, right);
  }
  comm.barrier()->wait();  // nobody reads what another clears
  std::fill_n(x, trial.elements, 0.0f);
  std::fill_n(y, trial.elements, 0.0f);
}

}  // namespace lockstep
