// What a stage without a flush holds and sends: what meta says, to the byte and the element, and what is derived.
#include <gtest/gtest.h>

#include <mutex>

#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

Replica::Options unflushed_options(const ModelSpec& like, const LayoutSpec& layout) {
  ModelSpec spec = like;
  spec.layers = 7;
  return {.spec = spec, .B = layout.micro * layout.dp, .T = 6, .layout = layout, .seed = 5};
}

std::int64_t stashed_bytes(const Ledger::Rows& rows) {
  std::int64_t all = 0;
  for (const auto& [row, count] : rows)
    if (row.first == Tag::parameter && row.second.ends_with(WeightVersions::kRow)) all += count.peak;
  return all;
}

struct HeldAndSent {
  Ledger::Rows rows;
  std::int64_t sent;  // elements of the third step's tensors
};

HeldAndSent run_three_steps(const Replica::Options& o, std::unique_ptr<Communicator> group, Memory& memory,
                            Stream& stream) {
  CommLog log;
  Recorder ranks(std::move(group), log);
  Replica replica(o, {ranks, ranks}, memory, stream);
  replica.init_weights();
  const auto of_tensors = [&] {
    std::int64_t sent = 0;
    for (const auto& [key, total] : log.totals())
      if (size_of(std::get<DType>(key)) < 8) sent += total.sent;
    return sent;
  };
  std::int64_t before = 0;
  for (int step = 0; step < 3; ++step) {
    before = of_tensors();
    const TokenBatch all = random_batch(o, 1);
    const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                      static_cast<std::size_t>(given.count * o.T));
    };
    replica.step(part(all.tokens), part(all.targets));
  }
  const std::int64_t sent = of_tensors() - before;
  EXPECT_TRUE(replica.drain());
  return {memory.ledger().rows(), sent};
}

// Stage s of p keeps p - s versions of its weights, or 2, one of which is updated; every micro-batch sends one tensor
// on and one back, and replicas sum the gradients of every update.
TEST(PipeDreamMemory, IsWhatMetaSaysAndWhatIsDerived) {
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw})
    for (LayoutSpec layout :
         {LayoutSpec{.pp = 1, .micro = 2}, LayoutSpec{.pp = 4, .micro = 5}, LayoutSpec{.dp = 2, .pp = 3, .micro = 2}}) {
      layout.schedule = kind;
      const Replica::Options o = unflushed_options(tiny_specs()[0].spec, layout);
      run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> group) {
        const int rank = group->rank(), stage = static_cast<int>(layout.stage(rank));
        CpuDevice cpu;
        const HeldAndSent real = run_three_steps(o, std::move(group), cpu.memory(), cpu.stream());
        Ledger ledger;
        const auto memory = make_memory(Device::meta, ledger);
        const auto stream = make_stream(*memory, 1, Device::cpu);  // with what a real one takes
        const HeldAndSent counted = run_three_steps(
            o, std::make_unique<meta::Communicator>(rank, static_cast<int>(layout.ranks())), *memory, *stream);
        const std::string what = fmt::format("{}, rank {}", to_text(layout), rank);
        EXPECT_EQ(real.rows, counted.rows) << what;
        EXPECT_EQ(real.sent, counted.sent) << what;

        meta::Communicator alike(rank, static_cast<int>(layout.ranks()));
        const Replica shape(o, {alike, alike}, *memory, *stream);
        std::int64_t stored = 0;
        for (int u = 0; u < shape.model().units(); ++u)
          if (shape.rank_step().shape.has(u)) stored += shape.model().unit(u).layout().owned();
        const std::int64_t versions = kind == ScheduleKind::pipedream ? layout.pp - stage : 2;
        EXPECT_EQ(stashed_bytes(real.rows), (versions - 1) * stored * 4) << what;
        const std::int64_t boundaries = (stage > 0) + (stage + 1 < layout.pp);
        const std::int64_t updates = kind == ScheduleKind::pipedream ? layout.micro : 1;
        EXPECT_EQ(real.sent,
                  layout.micro * boundaries * o.T * o.spec.width + updates * 2 * stored * (layout.dp - 1) / layout.dp)
            << what;
      });
    }
}

}  // namespace
}  // namespace lockstep::tests
