// Steady steps of one rank, with every call of operator new in its process counted.
#pragma once
#include <functional>
#include <optional>

#include "allocations/counted_new.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "train/replica.h"

namespace lockstep::tests {

// A small run, and the same with tensors four times as large or more.
inline Replica::Options steady_options(const LayoutSpec& layout, const ModelSpec& model, bool large,
                                       const PrecisionSpec& precision = Precision::fp32) {
  ModelSpec spec = model;
  if (large) {
    spec.width *= 4;
    spec.head_width *= 4;
    spec.ffn_width *= 4;
    spec.vocabulary *= 4;
  }
  Replica::Options o = learning_options(spec, layout, precision);
  o.B = 12;
  o.T = large ? 24 : 12;
  return o;
}

// Two steps, and then those that are counted, by ranks that count. `together` returns when all ranks have called it.
inline NewCalls count_steps(const Replica::Options& o, Communicator& ranks, int steps, bool counts,
                            const std::function<void()>& together) {
  CpuDevice cpu;
  Replica replica(o, {ranks, ranks}, cpu.memory(), cpu.stream());
  replica.init_weights();
  const TokenBatch all = random_batch(o, 1);
  const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
    return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                    static_cast<std::size_t>(given.count * o.T));
  };
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) replica.step(part(all.tokens), part(all.targets));
    replica.settle();
  };
  run(2);
  const std::int64_t buffers = cpu.memory().ledger().allocations();
  NewCalls taken;
  std::optional<CountNew> count;
  together();
  if (counts) count.emplace();
  together();
  run(steps);
  together();
  if (counts) taken = count->so_far();
  count.reset();
  together();
  EXPECT_EQ(cpu.memory().ledger().allocations(), buffers) << to_text(o.layout) << ": a steady step takes a buffer";
  return taken;
}

// No single piece of a kilobyte, whatever the tensors' sizes, and all of them given back: what is taken are handles of
// messages and short lists, no data.
inline void expect_bookkeeping_alone(const NewCalls& taken, const std::string& what) {
  EXPECT_LE(taken.largest, 1024) << what;
  EXPECT_EQ(taken.live, 0) << what << ": " << taken.calls << " calls of " << taken.bytes << " bytes";
}

}  // namespace lockstep::tests
