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

namespace {

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A communicator that knows how long its rank has stood waiting: what of the messages is not hidden.
class Timed final : public Communicator {
 public:
  Timed(std::unique_ptr<Communicator> inner, double& waited)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
        inner_(std::move(inner)),
        waited_(waited) {}

  Started start(const Message& message) override { return std::make_unique<Waiting>(inner_->start(message), waited_); }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return inner_->split(place, name);
  }

 private:
  class Waiting final : public Pending {
   public:
    Waiting(Started inner, double& waited) : inner_(std::move(inner)), waited_(waited) {}
    bool done() override { return inner_->done(); }
    void wait() override {
      const auto begin = std::chrono::steady_clock::now();
      inner_->wait();
      waited_ += since(begin);
    }

   private:
    Started inner_;
    double& waited_;
  };

  std::unique_ptr<Communicator> inner_;
  double& waited_;
};

}  // namespace

Times times_of_steps(const Replica::Options& o, double bytes_per_second) {
  std::vector<Times> of(static_cast<std::size_t>(o.layout.dp));
  run_ranks(static_cast<int>(o.layout.dp), [&](std::unique_ptr<Communicator> inner) {
    Times& mine = of[static_cast<std::size_t>(inner->rank())];
    const auto hosts = inner->split([](int r) { return Place{0, r}; }, "hosts");
    double waited = 0;
    Link link(0, bytes_per_second);
    Timed replicas(std::make_unique<Delayed>(std::move(inner), link), waited);
    CpuDevice cpu;
    Replica replica(o, {replicas, *hosts}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const TokenBatch batch = random_batch(o, 1);
    const auto part = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(static_cast<std::size_t>(share.first * o.T),
                                      static_cast<std::size_t>(share.count * o.T));
    };
    for (int step = 0; step < 6; ++step) {
      hosts->barrier()->wait();
      waited = 0;
      const auto begin = std::chrono::steady_clock::now();
      replica.step(part(batch.tokens), part(batch.targets));
      mine = {std::min(mine.step, since(begin)), std::min(mine.waited, waited)};
    }
  });
  Times slowest{0, 0};
  for (const Times& one : of) slowest = {std::max(slowest.step, one.step), std::max(slowest.waited, one.waited)};
  return slowest;
}

Shown shown_of_messages(LayoutSpec layout) {
  std::int64_t bytes = 0;
  for (const auto& [key, counts] : on_meta(heavy_blocks(layout), 0).sent)
    bytes += std::max(counts[1], counts[2]) * size_of(key.second);
  const auto with = [&](Switch overlap) {
    layout.overlap = overlap;
    return heavy_blocks(layout);
  };
  const Times free = times_of_steps(with(Switch::on), 1e15);
  const double sending = free.step / 2, rate = static_cast<double>(bytes) / sending;
  // Ranks wait for each other even where messages take no time: that is nothing that could be hidden.
  return {.with = (times_of_steps(with(Switch::on), rate).waited - free.waited) / sending,
          .without = times_of_steps(with(Switch::off), rate).waited / sending};
}

}  // namespace lockstep::tests
