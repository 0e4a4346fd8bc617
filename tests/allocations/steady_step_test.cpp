// What a steady step takes of the heap, counted at operator new, in all threads of the program.
#include <gtest/gtest.h>

#include <barrier>

#include "allocations/counted_steps.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout_toml.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// By all ranks together.
NewCalls taken_by(const LayoutSpec& layout, int steps, bool large) {
  const Replica::Options o = steady_options(layout, cut_specs()[8].spec, large);
  const auto ranks = static_cast<int>(layout.ranks());
  NewCalls taken;
  std::barrier together(ranks);
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    const bool first = group->rank() == 0;
    const NewCalls mine = count_steps(o, *group, steps, first, [&] { together.arrive_and_wait(); });
    if (first) taken = mine;
  });
  return taken;
}

TEST(SteadyStep, Takes) {
  for (const char* text : {"dp=1", "micro=3", "dp=2", "dp=3,micro=2", "dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3",
                           "tp=2", "tp=2,sp=off", "cp=2", "cp=2,cp_kind=ulysses", "pp=2,micro=4",
                           "pp=2,micro=4,schedule=zb-h1", "dp=2,dp_kind=central", "dp=2,pp=2,tp=2,micro=2"})
    for (const bool large : {false, true})
      for (const int steps : {1, 4}) {
        const NewCalls c = taken_by(parse_layout(text), steps, large);
        fmt::print("{:<30} {} {} steps: {} calls, {} bytes, largest {}, live {}\n", text, large, steps, c.calls,
                   c.bytes, c.largest, c.live);
      }
}

}  // namespace
}  // namespace lockstep::tests
