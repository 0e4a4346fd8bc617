#include "support/timed_ranks.h"

#include <algorithm>
#include <chrono>

#include "comm/delayed.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {

Replica::Options heavy_blocks(const LayoutSpec& layout) {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.width = 192;
  spec.heads = spec.kv_heads = 4;
  spec.head_width = 48;
  spec.ffn_width = 512;
  spec.layers = 8;
  spec.vocabulary = 64;
  spec.max_positions = 64;
  return {.spec = spec, .B = 8, .T = 32, .layout = layout, .seed = 5};
}

Times times_of_steps(const Replica::Options& o, double bytes_per_second) {
  std::vector<Times> of(static_cast<std::size_t>(o.layout.ranks()));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> inner) {
    Times& mine = of[static_cast<std::size_t>(inner->rank())];
    const auto hosts = inner->split([](int r) { return Place{0, r}; }, "hosts");
    SimulatedLink link(0, bytes_per_second);
    Delayed replicas(std::move(inner), link);
    CpuDevice cpu;
    Replica replica(o, {replicas, *hosts}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const TokenBatch batch = random_batch(o, 1);
    const auto part = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(share.first * o.T),
                                      static_cast<std::size_t>(share.count * o.T));
    };
    std::vector<double> seconds, exposed;
    for (int step = 0; step < 5; ++step) {
      hosts->barrier()->wait();
      const double before = link.exposed();
      const auto begin = std::chrono::steady_clock::now();
      replica.step(part(batch.tokens), part(batch.targets));
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      exposed.push_back(link.exposed() - before);
    }
    mine = {median(seconds), median(exposed)};
  });
  Times slowest{0, 0};
  for (const Times& one : of) slowest = {std::max(slowest.step, one.step), std::max(slowest.exposed, one.exposed)};
  return slowest;
}

std::string sorted_text(std::vector<double> of) {
  std::ranges::sort(of);
  std::string all;
  for (const double one : of) all += fmt::format("{:.3g} ", one);
  return all;
}

bool median_is_good(const std::function<double()>& trial, const std::function<bool(double)>& good,
                    std::vector<double>& all) {
  int yes = 0, no = 0;
  while (yes < 3 && no < 3) {
    all.push_back(trial());
    ++(good(all.back()) ? yes : no);
  }
  return yes == 3;
}

Shown shown_of_messages(LayoutSpec layout) {
  std::int64_t bytes = 0;
  for (const auto& [key, counts] : on_meta(heavy_blocks(layout), 0).sent)
    bytes += std::max(counts[1], counts[2]) * size_of(key.second);
  const auto with = [&](Switch overlap) {
    layout.overlap = overlap;
    return heavy_blocks(layout);
  };
  const double sending = times_of_steps(with(Switch::on), 1e15).step / 2;
  const double rate = static_cast<double>(bytes) / sending;
  return {.with = times_of_steps(with(Switch::on), rate).exposed / sending,
          .without = times_of_steps(with(Switch::off), rate).exposed / sending};
}

}  // namespace lockstep::tests
