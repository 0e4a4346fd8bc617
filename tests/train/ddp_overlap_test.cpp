// Gradients are summed while backward goes on: on a slow link, most of the time that takes is hidden.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "comm/delayed.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr int kRanks = 2;

// Blocks that weigh much and an embedding that weighs little: the last gradient of a step cannot be hidden.
Replica::Options options(Switch overlap) {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.width = 192;
  spec.heads = spec.kv_heads = 4;
  spec.head_width = 48;
  spec.ffn_width = 512;
  spec.layers = 8;
  spec.vocabulary = 64;
  spec.max_positions = 64;
  return {.spec = spec, .B = 8, .T = 32, .layout = {.dp = kRanks, .overlap = overlap, .bucket = 1}, .seed = 5};
}

// The fastest of some steps, of both ranks together: a machine with other work is slower, never faster.
double seconds_a_step(Switch overlap, double bytes_per_second) {
  std::array<double, kRanks> fastest;
  fastest.fill(1e30);
  run_ranks(kRanks, [&](std::unique_ptr<Communicator> inner) {
    Link link(0, bytes_per_second);
    Delayed slow(std::move(inner), link);
    CpuDevice cpu;
    const Replica::Options o = options(overlap);
    Replica replica(o, {slow, slow}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const TokenBatch batch = random_batch(o, 1);
    const auto part = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(share.first * o.T),
                                      static_cast<std::size_t>(share.count * o.T));
    };
    for (int step = 0; step < 6; ++step) {
      slow.barrier()->wait();
      const auto begin = std::chrono::steady_clock::now();
      replica.step(part(batch.tokens), part(batch.targets));
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      double& best = fastest[static_cast<std::size_t>(slow.rank())];
      best = std::min(best, took);
    }
  });
  return std::ranges::max(fastest);
}

TEST(DataParallelOverlap, HidesFourFifthsOfWhatTakesHalfAsLongAsComputing) {
  std::int64_t psi = 0;
  {
    HostRun one({.spec = options(Switch::on).spec, .B = 1, .T = 4});
    for (int u = 0; u < one.replica->model().units(); ++u) psi += one.replica->model().unit(u).layout().owned();
  }
  double hidden = 0, shown = 0;
  for (int attempt = 0; attempt < 4 && (hidden < 0.8 || shown < 0.95); ++attempt) {
    const double computing = seconds_a_step(Switch::on, 1e15);
    const double sending = computing / 2;  // 2Ψ(N-1)/N elements of 4 bytes
    const double rate = 4.0 * 2 * static_cast<double>(psi) * (kRanks - 1) / kRanks / sending;
    const double off = seconds_a_step(Switch::off, rate), on = seconds_a_step(Switch::on, rate);
    shown = (off - computing) / sending;
    hidden = 1 - (on - computing) / sending;
    RecordProperty("hidden", std::to_string(hidden));
  }
  EXPECT_GE(hidden, 0.8) << "with overlap";
  EXPECT_GE(shown, 0.95) << "without it, all of the time is to be seen";
}

}  // namespace
}  // namespace lockstep::tests
