#include <algorithm>
#include <chrono>

#include "base/quartile.h"
#include "bench/machine_bench.h"
#include "comm/traffic.h"
#include "plan/message_rates.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

constexpr std::int64_t kLinkBytes = 16 << 20;
constexpr std::int64_t kLinkElements = kLinkBytes / 4;

// Between the first ranks of hosts, one of each: `hosts` has two ranks or more.
class LinkBench {
 public:
  explicit LinkBench(Communicator& hosts)
      : hosts_(hosts), x_(static_cast<std::size_t>(kLinkElements)), y_(static_cast<std::size_t>(kLinkElements)) {}

  MachineLink measure() {
    const double latency = quickest_of(40, [&] { ping(2, 2); }) / 2;
    const auto rate = [&](double seconds) { return kLinkBytes / std::max(seconds - latency, seconds / 4); };
    MachineLink link{.latency = rounded(latency)};
    link.bandwidth = rounded(rate(quickest_of(8, [&] { exchange(); })));
    // One way, and a word back.
    link.pair_efficiency = share(rate(quickest_of(8, [&] { ping(kLinkElements, 2); }) - latency) / link.bandwidth);
    Message sum{.op = CommOp::all_reduce};
    sum.in = sum.out = tensor(x_, kLinkElements);
    const double sent = static_cast<double>(traffic_of(sum, hosts_.rank(), hosts_.size()).sent * 4);
    const double seconds = quickest_of(8, [&] { hosts_.start(sum)->wait(); });
    link.efficiency = share(sent / std::max(seconds - latency, seconds / 4) / link.bandwidth);
    return link;
  }

 private:
  static double share(double value) { return rounded(std::clamp(value, 0.01, 1.0)); }
  static Tensor tensor(std::vector<float>& all, std::int64_t elements) {
    return Tensor(all.data(), DType::f32, Device::cpu, {elements});
  }

  // Of several calls after one that does not count, the quickest quarter's, of each the slowest rank.
  template <class Call>
  double quickest_of(int calls, const Call& call) {
    std::vector<double> times;
    for (int i = 0; i <= calls; ++i) {
      hosts_.barrier()->wait();
      const auto begin = std::chrono::steady_clock::now();
      call();
      double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      hosts_.all_reduce(Tensor(&seconds, DType::f64, Device::cpu, {1}), {Reduction::max})->wait();
      if (i > 0) times.push_back(seconds);
    }
    return lower_quartile(std::move(times));
  }

  // From the first host to the second and back.
  void ping(std::int64_t there, std::int64_t back) {
    if (hosts_.rank() == 0) {
      hosts_.send(tensor(x_, there), 1)->wait();
      hosts_.recv(tensor(y_, back), 1)->wait();
    } else if (hosts_.rank() == 1) {
      hosts_.recv(tensor(y_, there), 0)->wait();
      hosts_.send(tensor(x_, back), 0)->wait();
    }
  }
  void exchange() {
    if (hosts_.rank() > 1) return;
    const int other = 1 - hosts_.rank();
    const auto sent = hosts_.send(tensor(x_, kLinkElements), other),
               received = hosts_.recv(tensor(y_, kLinkElements), other);
    received->wait();
    sent->wait();
  }

  Communicator& hosts_;
  std::vector<float> x_, y_;
};

}  // namespace

void measure_links(MachineSpec& machine, Communicator& ranks, const std::vector<std::string>& hosts) {
  // By rank: its host's number, and whether it is the first there.
  std::vector<std::string> names;
  std::vector<int> host_of;
  std::vector<bool> first;
  for (const std::string& host : hosts) {
    const auto at = std::ranges::find(names, host);
    host_of.push_back(static_cast<int>(at - names.begin()));
    first.push_back(at == names.end());
    if (first.back()) names.push_back(host);
  }
  machine.nodes = std::ssize(names);
  const auto of = [](int rank) { return static_cast<std::size_t>(rank); };
  const auto node = ranks.split([&](int rank) { return Place{host_of[of(rank)], rank}; }, "node");
  const auto leaders = ranks.split([&](int rank) { return Place{first[of(rank)] ? 0 : -1, rank}; }, "hosts");
  if (node->size() > 1) {
    const MessageRates rates = measure_messages(*node, usable_cores(), {.rounds = 20, .quickest = true});
    machine.sum_rate = rounded(rates.summed);
    machine.copy_rate = rounded(rates.copied);
    machine.intra_node = {.bandwidth = rounded(rates.copied / 2), .latency = rounded(rates.latency)};
  }
  ranks.barrier()->wait();
  if (leaders && leaders->size() > 1) machine.inter_node = LinkBench(*leaders).measure();
  ranks.barrier()->wait();
}

}  // namespace lockstep
