// What a steady step takes of the heap where ranks are processes: operator new, in each process, in all its threads.
#include "allocations/counted_steps.h"
#include "comm/ranks.h"
#include "spec/layout_toml.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

TEST(SteadyStep, Takes) {
  for (const char* text : {"dp=2", "dp=4,zero=3", "tp=2", "cp=2", "pp=2,micro=4", "dp=2,pp=2,tp=2,micro=2"}) {
    const LayoutSpec layout = parse_layout(text);
    each_rank(static_cast<int>(layout.ranks()), [&](Communicator& ranks) {
      for (const bool large : {false, true})
        for (const int steps : {1, 4}) {
          const Replica::Options o = steady_options(layout, cut_specs()[8].spec, large);
          const NewCalls c = count_steps(o, ranks, steps, true, [&] { ranks.barrier()->wait(); });
          if (ranks.rank() == 0)
            fmt::print("{:<30} {} {} steps: {} calls, {} bytes, largest {}, live {}\n", text, large, steps, c.calls,
                       c.bytes, c.largest, c.live);
        }
    });
  }
}

}  // namespace
}  // namespace lockstep::tests
