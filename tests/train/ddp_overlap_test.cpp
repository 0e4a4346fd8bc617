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

struct Times {
  double step = 1e30, waited = 1e30;  // the least of some steps: a machine with other work is slower, never faster
};

Times of_steps(Switch overlap, double bytes_per_second) {
  std::array<Times, kRanks> of;
  run_ranks(kRanks, [&](std::unique_ptr<Communicator> inner) {
    Times& mine = of[static_cast<std::size_t>(inner->rank())];
    const auto hosts = inner->split([](int r) { return Place{0, r}; }, "hosts");
    double waited = 0;
    Link link(0, bytes_per_second);
    Timed replicas(std::make_unique<Delayed>(std::move(inner), link), waited);
    CpuDevice cpu;
    const Replica::Options o = options(overlap);
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
  return {std::max(of[0].step, of[1].step), std::max(of[0].waited, of[1].waited)};
}

TEST(DataParallelOverlap, HidesFourFifthsOfWhatTakesHalfAsLongAsComputing) {
  std::int64_t psi = 0;
  {
    HostRun one({.spec = options(Switch::on).spec, .B = 1, .T = 4});
    for (int u = 0; u < one.replica->model().units(); ++u) psi += one.replica->model().unit(u).layout().owned();
  }
  double hidden = 0, shown = 0;
  for (int attempt = 0; attempt < 8 && (hidden < 0.8 || shown < 0.95); ++attempt) {
    const double sending = of_steps(Switch::on, 1e15).step / 2;  // 2Ψ(N-1)/N elements of 4 bytes
    const double rate = 4.0 * 2 * static_cast<double>(psi) * (kRanks - 1) / kRanks / sending;
    shown = of_steps(Switch::off, rate).waited / sending;
    hidden = 1 - of_steps(Switch::on, rate).waited / sending;
  }
  EXPECT_GE(hidden, 0.8) << "with overlap";
  // Between a start and its wait there is a moment, and on a busy machine a long one.
  EXPECT_GE(shown, 0.95) << "without it, all of the time is to be seen";
}

}  // namespace
}  // namespace lockstep::tests
