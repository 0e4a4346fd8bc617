#include "train/link_probe.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/median.h"
#include "comm/traffic.h"

namespace lockstep {

std::optional<LinkRate> probe_link(Communicator* ranks) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kElements = (1 << 20) / 4;
  constexpr int kCalls = 5;
  if (!ranks || ranks->size() == 1) return std::nullopt;
  std::vector<float> values(kElements);
  const Tensor large(values.data(), DType::f32, ranks->device(), {kElements});
  const auto seconds = [&](const Tensor& x) {
    std::vector<double> times;
    ranks->all_reduce(x)->wait();  // the first wakes threads, and connects
    for (int i = 0; i < kCalls; ++i) {
      ranks->barrier()->wait();
      const auto begin = Clock::now();
      ranks->all_reduce(x)->wait();
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return median(std::move(times));
  };
  const double latency = seconds(large.slice(0, 0, 2)), whole = seconds(large);
  const Message message{.op = CommOp::all_reduce, .out = large, .in = large};
  const std::int64_t sent = traffic_of(message, ranks->rank(), ranks->size()).sent * size_of(DType::f32);
  return LinkRate{.latency = latency, .bytes_per_s = static_cast<double>(sent) / std::max(whole, 1e-9)};
}

}  // namespace lockstep
