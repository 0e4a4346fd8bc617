// What a steady step takes of the heap, counted at operator new, in all threads of the program.
#include <gtest/gtest.h>

#include <barrier>

#include "allocations/counted_new.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout_toml.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

struct Taken {
  NewCalls calls;
  std::int64_t messages = 0;  // that all ranks began
};

// Of some steps after the first two.
Taken taken_by(const LayoutSpec& layout, int steps, const ModelSpec& spec) {
  Replica::Options o = learning_options(spec, layout, Precision::fp32);
  o.B = 12;
  o.T = 12;
  const auto ranks = static_cast<int>(layout.ranks());
  Taken taken;
  std::barrier together(ranks);
  std::optional<CountNew> count;
  std::atomic<std::int64_t> messages{0};
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    const int rank = group->rank();
    CpuDevice cpu;
    Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const TokenBatch all = random_batch(o, 1);
    const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                      static_cast<std::size_t>(given.count * o.T));
    };
    const auto step = [&] { replica.step(part(all.tokens), part(all.targets)); };
    for (int warm = 0; warm < 2; ++warm) step();
    replica.settle();
    together.arrive_and_wait();
    if (rank == 0) count.emplace();
    together.arrive_and_wait();
    for (int s = 0; s < steps; ++s) step();
    replica.settle();
    together.arrive_and_wait();
    if (rank == 0) {
      taken.calls = count->so_far();
      count.reset();
    }
    together.arrive_and_wait();
  });
  return taken;
}

TEST(SteadyStep, Takes) {
  for (const char* text : {"dp=1", "micro=3", "dp=2", "dp=3,micro=2", "dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3",
                           "tp=2", "tp=2,sp=off", "cp=2", "cp=2,cp_kind=ulysses", "pp=2,micro=4",
                           "pp=2,micro=4,schedule=zb-h1", "dp=2,dp_kind=central", "dp=2,pp=2,tp=2,micro=2"}) {
    for (const int steps : {1, 4}) {
      const NewCalls c = taken_by(parse_layout(text), steps, cut_specs()[8].spec).calls;
      fmt::print("{:<30} {} steps: {} calls, {} bytes, largest {}, live {}\n", text, steps, c.calls, c.bytes, c.largest,
                 c.live);
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
