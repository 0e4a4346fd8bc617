// What a steady step takes of the heap where ranks are processes: operator new, in each process, in all its threads.
#include "allocations/counted_steps.h"
#include "comm/ranks.h"
#include "spec/layout/layout_toml.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

TEST(SteadyStep, TakesNothingOfTheSizeOfItsTensors) {
  if (!kCountsNew) GTEST_SKIP() << "a sanitizer has operators of its own";
  for (const char* text : {"dp=3,micro=2", "dp=2,dp_kind=central", "dp=4,zero=3", "tp=2", "cp=2", "pp=2,micro=4",
                           "dp=2,pp=2,tp=2,micro=2"}) {
    const LayoutSpec layout = parse_layout(text);
    each_rank(static_cast<int>(layout.ranks()), [&](Communicator& ranks) {
      for (const bool large : {false, true}) {
        const Replica::Options o = steady_options(layout, cut_specs()[8].spec, large);
        const NewCalls taken = count_steps(o, ranks, 2, true, [&] { ranks.barrier()->wait(); });
        expect_bookkeeping_alone(taken, fmt::format("{}, {}, rank {}", text, large, ranks.rank()));
        EXPECT_GT(taken.calls, 0) << "nothing is counted";
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::tests
