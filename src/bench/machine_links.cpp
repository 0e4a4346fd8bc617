#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/quartile.h"
#include "bench/core_bench.h"
#include "bench/machine_bench.h"
#include "comm/traffic.h"
#include "kernels/matmul.h"
#include "plan/message_rates.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

constexpr std::int64_t kSmallElements = 1 << 18, kLargeElements = 1 << 21;
constexpr double kMovesFor = 0.04;  // seconds that messages move beside what is computed

// Between the first ranks of hosts, one of each: `hosts` has two ranks or more.
class LinkBench {
 public:
  explicit LinkBench(Communicator& hosts)
      : hosts_(hosts),
        x_(static_cast<std::size_t>(kLargeElements), 0.0F),
        y_(static_cast<std::size_t>(kLargeElements), 0.0F) {}

  MachineLink measure() {
    MachineLink link;
    link.latency = rounded(quickest_of(40, [&] { ping(2, 2); }) / 2);
    const double sum = quickest_of(40, [&] { hosts_.start(sum_of(2))->wait(); });
    link.collective_latency = rounded(sum / static_cast<double>(traffic(sum_of(2)).steps));
    const double one_way = rate([&](std::int64_t n) { ping(n, 2); }, [](std::int64_t n) { return n * 4; });
    const double both = rate([&](std::int64_t n) { exchange(n); }, [](std::int64_t n) { return n * 4; });
    const double sums =
        rate([&](std::int64_t n) { hosts_.start(sum_of(n))->wait(); }, [&](std::int64_t n) { return sent_for(n); });
    link.bandwidth = rounded(std::max({one_way, both, sums}));
    link.efficiency = share(sums / link.bandwidth);
    link.pair_efficiency = share(one_way / link.bandwidth);
    link.both_ways = share(both / one_way);
    return link;
  }

  // How much longer work takes while messages move: what sends them needs a part of the core.
  double slowdown(int threads) {
    RunSpec run = bench_run_in(Device::cpu, Precision::fp32);
    run.run.threads = threads;
    TimedTensors t(run, TimedTensors::Kind::real);
    const Tensor a = t.tensor({256, 256}), b = t.tensor({256, 256}), c = t.tensor({256, 256});
    const auto product = [&] { matmul({.c = c, .a = a, .b = b}, t.stream()); };
    const auto products = [&](int count) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < count; ++i) product();
      return seconds_since(begin) / count;
    };
    products(10);
    std::vector<double> times;
    for (int i = 0; i < 20; ++i) times.push_back(products(10));
    double alone = lower_quartile(std::move(times));
    const double moves = quickest_of(4, [&] { hosts_.start(sum_of(kLargeElements))->wait(); });
    // All hosts alike: the quickest rank's products end while messages still move.
    double counts[] = {kMovesFor / 2 / alone, kMovesFor / moves};
    hosts_.all_reduce(Tensor(counts, DType::f64, Device::cpu, {2}), {Reduction::max})->wait();
    std::vector<double> slower;
    for (int round = 0; round < 5; ++round) {
      hosts_.barrier()->wait();
      std::vector<Communicator::Started> moving;
      for (int i = 0; i < std::ceil(counts[1]); ++i) moving.push_back(hosts_.start(sum_of(kLargeElements)));
      slower.push_back(products(std::max(1, static_cast<int>(counts[0]))) / alone - 1);
      for (Communicator::Started& message : moving) message->wait();
    }
    double result = std::max(0.0, lower_quartile(std::move(slower)));
    hosts_.all_reduce(Tensor(&result, DType::f64, Device::cpu, {1}), {Reduction::max})->wait();
    return rounded(std::min(result, 10.0));
  }

 private:
  static double share(double value) { return rounded(std::clamp(value, 0.01, 1.0)); }
  static Tensor tensor(std::vector<float>& all, std::int64_t elements) {
    return Tensor(all.data(), DType::f32, Device::cpu, {elements});
  }

  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  // Of several calls after one that does not count, the quickest quarter's, of each the slowest rank.
  template <class Call>
  double quickest_of(int calls, const Call& call) {
    std::vector<double> times;
    for (int i = 0; i <= calls; ++i) {
      hosts_.barrier()->wait();
      const auto begin = std::chrono::steady_clock::now();
      call();
      double seconds = seconds_since(begin);
      hosts_.all_reduce(Tensor(&seconds, DType::f64, Device::cpu, {1}), {Reduction::max})->wait();
      if (i > 0) times.push_back(seconds);
    }
    return lower_quartile(std::move(times));
  }
  // Bytes per second by which a large call is longer than a small one: what both take beside them is the latency, or
  // what a link lets pass at once after a pause.
  template <class Call, class Bytes>
  double rate(const Call& call, const Bytes& bytes) {
    const double small = quickest_of(6, [&] { call(kSmallElements); }),
                 large = quickest_of(6, [&] { call(kLargeElements); });
    return static_cast<double>(bytes(kLargeElements) - bytes(kSmallElements)) / std::max(large - small, large / 4);
  }

  Message sum_of(std::int64_t elements) {
    Message sum{.op = CommOp::all_reduce};
    sum.in = sum.out = tensor(x_, elements);
    return sum;
  }
  Traffic traffic(const Message& message) const { return traffic_of(message, hosts_.rank(), hosts_.size()); }
  std::int64_t sent_for(std::int64_t elements) { return traffic(sum_of(elements)).sent * 4; }

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
  void exchange(std::int64_t elements) {
    if (hosts_.rank() > 1) return;
    const int other = 1 - hosts_.rank();
    const auto sent = hosts_.send(tensor(x_, elements), other), received = hosts_.recv(tensor(y_, elements), other);
    received->wait();
    sent->wait();
  }

  Communicator& hosts_;
  std::vector<float> x_, y_;
};

// Ranks of several hosts send to each other beside what they compute, and each has its share of its host's cores: a
// device.
void make_devices(MachineSpec& machine, std::int64_t ranks) {
  // More ranks than cores have a part of one each.
  const double cores = machine.devices_per_node < ranks
                           ? static_cast<double>(machine.devices_per_node) / static_cast<double>(ranks)
                           : static_cast<double>(machine.devices_per_node / ranks);
  machine.kind = MachineSpec::Kind::devices;
  machine.devices_per_node = ranks;
  machine.memory /= ranks;
  machine.copy_rate = 0;
  if (ranks == 1) machine.intra_node = {};
  MachineSpec::Peaks& p = machine.peaks;
  for (double* peak : {&p.fp64, &p.fp32, &p.bf16, &p.fp16}) *peak = rounded(*peak * cores);
  for (MachineSpec::CopyRate& copy : machine.copies) copy = {std::round(copy.size * cores), rounded(copy.rate * cores)};
}

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
  std::int64_t most_ranks = 0;
  for (std::size_t host = 0; host < names.size(); ++host)
    most_ranks = std::max<std::int64_t>(most_ranks, std::ranges::count(host_of, static_cast<int>(host)));
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
  if (leaders && leaders->size() > 1) {
    LinkBench link(*leaders);
    machine.inter_node = link.measure();
    machine.overlap_slowdown = link.slowdown(static_cast<int>(std::max<std::int64_t>(1, usable_cores() / most_ranks)));
  }
  ranks.barrier()->wait();
  if (machine.nodes > 1 && ranks.rank() == 0) make_devices(machine, most_ranks);
}

}  // namespace lockstep
