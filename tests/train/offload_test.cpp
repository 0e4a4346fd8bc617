// Offloaded state changes where bytes are, and not a bit of what is learned.
//
// Between two memories of the host here, which is what a GPU does with its own and the host's, and on a disk.
#include <gtest/gtest.h>

#include "spec/layout/layout_toml.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

MemorySpec offloaded_to(Offload where, double share = 1, std::int64_t window = 0) {
  return {.offload_optimizer = where, .offload_share = share, .offload_window = window};
}

MemorySpec weights_offloaded_to(Offload where, double share = 1, bool with_state = false) {
  return {.offload_optimizer = with_state ? where : Offload::none,
          .offload_parameters = where,
          .offload_share = share,
          .offload_window = 0};
}

MemorySpec gradients_offloaded_to(Offload where, double share = 1) {
  return {.offload_gradients = where, .offload_share = share, .offload_window = 0};
}

MemorySpec all_offloaded_to(Offload where, double share = 1, bool weights = true) {
  MemorySpec memory = weights_offloaded_to(where, share, true);
  memory.offload_gradients = where;
  if (!weights) memory.offload_parameters = Offload::none;
  return memory;
}

std::string text_of(const MemorySpec& memory) {
  return fmt::format("optimizer on {}, gradients on {}, parameters on {}, share {}, window {}, update {}",
                     name_of(memory.offload_optimizer), name_of(memory.offload_gradients),
                     name_of(memory.offload_parameters), memory.offload_share, memory.offload_window,
                     name_of(memory.offload_update));
}

// Updated where it is, on the host.
MemorySpec updated_there(double share = 1, std::int64_t window = 0) {
  MemorySpec memory = offloaded_to(Offload::host, share, window);
  memory.offload_update = OffloadUpdate::host;
  return memory;
}

struct OffloadedRun {
  std::vector<double> losses;
  std::vector<char> weights, state;
  Ledger::Rows device, offloaded;
  Staging::Traffic moved;
};

std::vector<char> whole_state(const HostRun& run) {
  std::vector<char> all;
  for (const StateTensor& t : run.replica->state()) {
    std::vector<char> bytes(static_cast<std::size_t>(t.live.bytes()));
    download(bytes.data(), t.live, *run.stream);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

OffloadedRun learn_offloaded(const Replica::Options& o) {
  HostRun run(o);
  run.replica->init_weights();
  OffloadedRun learned;
  for (unsigned step = 0; step < 4; ++step) {
    const TokenBatch batch = random_batch(o, step);
    learned.losses.push_back(run.replica->step(batch.tokens, batch.targets).loss);
    if (step == 1) learned.losses.push_back(run.replica->evaluate(batch.tokens, batch.targets));
  }
  learned.moved = run.replica->traffic();
  learned.weights = weight_bytes(run);
  learned.state = whole_state(run);
  learned.device = run.ledger.rows();
  learned.offloaded = run.offloaded.rows();
  return learned;
}

struct OffloadCase {
  std::string name;
  PrecisionSpec precision;
  OptimizerSpec optimizer;
};

std::vector<OffloadCase> offload_cases() {
  PrecisionSpec small = Precision::bf16;
  small.moments = StateType::bf16;
  small.gradients = StateType::bf16;
  PrecisionSpec smallest = small;
  smallest.master = StateType::bf16;
  return {{"fp32", Precision::fp32, {.clip = 0.1}},
          {"bf16", Precision::bf16, {.clip = 0.1}},
          {"bf16_state", small, {.clip = 0.1}},
          {"bf16_masters", smallest, {.clip = 0.1}},
          {"bf16_momentum", small, {.kind = OptimizerKind::sgd, .momentum = 0.9, .clip = 0.1}},
          {"fp64_sgd", Precision::fp64, {.kind = OptimizerKind::sgd, .momentum = 0.9, .clip = 0}},
          {"bf16_plain_sgd", Precision::bf16, {.kind = OptimizerKind::sgd, .momentum = 0, .clip = 0}}};
}

class Offloading : public ::testing::TestWithParam<std::tuple<NamedSpec, OffloadCase>> {
 protected:
  static Replica::Options options(const MemorySpec& memory) {
    const auto& [model, c] = GetParam();
    return {.spec = model.spec,
            .B = 4,
            .T = 17,
            .layout = {.micro = 2, .zero = memory.offload_parameters != Offload::none ? 3 : 0},
            .precision = c.precision,
            .optimizer = c.optimizer,
            .seed = 3,
            .how = {.memory = memory},
            .host_threads = 3};
  }
};

TEST_P(Offloading, ChangesNoBitAndHoldsWhatMetaSays) {
  const OffloadedRun here = learn_offloaded(options({}));
  for (const MemorySpec& memory :
       {offloaded_to(Offload::host), offloaded_to(Offload::host, 0.4), offloaded_to(Offload::host, 1, 1),
        offloaded_to(Offload::disk), offloaded_to(Offload::disk, 0.4), updated_there(), updated_there(0.4),
        updated_there(1, 1), weights_offloaded_to(Offload::host), weights_offloaded_to(Offload::host, 0.4, true),
        weights_offloaded_to(Offload::disk, 0.4), weights_offloaded_to(Offload::disk, 1, true),
        gradients_offloaded_to(Offload::host), gradients_offloaded_to(Offload::disk, 0.4),
        all_offloaded_to(Offload::host, 0.4), all_offloaded_to(Offload::disk)}) {
    const std::string what = text_of(memory);
    const OffloadedRun there = learn_offloaded(options(memory));
    EXPECT_EQ(there.losses, here.losses) << what;
    EXPECT_TRUE(there.weights == here.weights) << what << ": other weights";
    EXPECT_TRUE(there.state == here.state) << what << ": other state";
    EXPECT_GT(there.moved.from_device, 0) << what;

    Ledger ledger, offloaded;
    const auto nothing = make_memory(Device::meta, ledger), nowhere = make_memory(Device::meta, offloaded);
    meta::Stream stream(*nothing, cpu::kScratchBytes);
    const Replica::Options o = options(memory);
    Replica counted(o, *nothing, stream, nowhere.get());
    counted.init_weights();
    const TokenBatch batch = random_batch(o, 0);
    for (unsigned step = 0; step < 4; ++step) {
      counted.step(batch.tokens, batch.targets);
      if (step == 1) counted.evaluate(batch.tokens, batch.targets);
    }
    EXPECT_EQ(counted.traffic(), there.moved) << what;
    EXPECT_EQ(ledger.rows(), there.device) << what;
    EXPECT_EQ(offloaded.rows(), there.offloaded) << what;
  }
}

// What a unit has beside its weights and gradients is in the one memory or in the other, whole.
TEST_P(Offloading, MovesWholeUnitsTheLastFirst) {
  const auto state_of_units = [](const Ledger::Rows& rows) {
    std::map<std::string, std::int64_t> bytes;
    for (const auto& [key, count] : rows)
      if (key.first == Tag::optimizer && count.current > 0) bytes[key.second] = count.current;
    return bytes;
  };
  const auto all = state_of_units(learn_offloaded(options({})).device);
  const OffloadedRun moved = learn_offloaded(options(offloaded_to(Offload::host)));
  EXPECT_EQ(state_of_units(moved.offloaded), all);
  EXPECT_TRUE(state_of_units(moved.device).empty());

  const OffloadedRun some = learn_offloaded(options(offloaded_to(Offload::host, 0.01)));
  auto left = all;
  ASSERT_TRUE(left.erase("head"));
  EXPECT_EQ(state_of_units(some.device), left);
  EXPECT_EQ(state_of_units(some.offloaded), (std::map<std::string, std::int64_t>{{"head", all.at("head")}}));
}

INSTANTIATE_TEST_SUITE_P(Models, Offloading,
                         testing::Combine(testing::ValuesIn(tiny_specs()), testing::ValuesIn(offload_cases())),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
                           std::erase_if(name, [](char c) { return c != '_' && std::isalnum(c) == 0; });
                           return name;
                         });

TEST(OffloadedState, IsTheSameUnderEveryLayout) {
  const std::vector<NamedSpec> specs = cut_specs();
  const auto even = std::ranges::find_if(specs, [](const NamedSpec& s) { return s.spec.kv_heads % 2 == 0; });
  ASSERT_NE(even, specs.end());
  const ModelSpec& spec = even->spec;
  for (const char* text :
       {"micro=2", "dp=3,micro=2", "dp=4,zero=1,micro=2", "dp=4,zero=2,micro=2", "dp=4,zero=3,micro=2",
        "dp=3,dp_kind=central,micro=2", "pp=2,micro=4", "pp=2,micro=4,schedule=zb-h1", "tp=2,micro=2", "cp=2,micro=2",
        "dp=2,pp=2,zero=1,micro=2", "dp=2,tp=2,zero=3,micro=2", "zero=3,micro=2", "pp=2,zero=3,micro=4",
        "dp=2,pp=2,zero=3,micro=4,schedule=zb-h1", "cp=2,zero=3,micro=2", "pp=2,micro=4,schedule=afab",
        "dp=3,micro=2,grad_sync=micro", "pp=2,micro=4,chunks=2,schedule=interleaved"})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const LayoutSpec layout = parse_layout(text);
      // Ranks that do not update have no masters, and bf16 weights are another copy than those.
      if (layout.dp_kind == DpKind::central && precision == Precision::bf16) continue;
      Replica::Options o = learning_options(spec, layout, precision);
      const Learned here = learn(o);
      std::vector<MemorySpec> all{offloaded_to(Offload::host), offloaded_to(Offload::disk, 0.5), updated_there()};
      if (layout.zero == 3) {
        all.push_back(weights_offloaded_to(Offload::host, 0.5));
        all.push_back(weights_offloaded_to(Offload::disk, 1, true));
        all.push_back(all_offloaded_to(Offload::host, 0.5));
        all.push_back(all_offloaded_to(Offload::disk));
      } else if (layout.replicas() == 1 || layout.passes_on()) {
        all.push_back(gradients_offloaded_to(Offload::host));
        all.push_back(all_offloaded_to(Offload::disk, 0.5, false));
      }
      for (const MemorySpec& memory : all) {
        o.how.memory = memory;
        expect_equal(learn(o), here, std::string(text) + ", " + text_of(memory));
      }
    }
}

// All gradients of a rank are elsewhere, but for those that are being added to.
TEST(OffloadedState, LeavesOnlyGradientsOnTheirWayOnTheDevice) {
  Replica::Options o = learning_options(tiny_specs().front().spec, {.micro = 2}, Precision::bf16);
  const auto gradients = [](const Ledger& ledger) {
    std::map<std::string, std::int64_t> bytes;
    for (const auto& [key, count] : ledger.rows())
      if (key.first == Tag::gradient) bytes[key.second] += count.current;
    return bytes;
  };
  const HostRun here(o);
  o.how.memory = gradients_offloaded_to(Offload::host);
  const HostRun there(o);
  std::int64_t offloaded = 0;
  for (const auto& [unit, bytes] : gradients(there.offloaded)) offloaded += bytes;
  EXPECT_EQ(offloaded, gradients(here.ledger).at("all units"));
  auto left = gradients(there.ledger);
  EXPECT_GT(left.at("on their way"), 0);
  EXPECT_LE(left.at("on their way"), offloaded);
  left.erase("on their way");
  auto tied = gradients(here.ledger);
  tied.erase("all units");
  EXPECT_EQ(left, tied);
}

// The weights of all units are elsewhere, and the device has those of two units at a time.
TEST(OffloadedState, LeavesOnlyGatheredWeightsOnTheDevice) {
  Replica::Options o = learning_options(tiny_specs().front().spec, {.micro = 2, .zero = 3}, Precision::bf16);
  const auto parameters = [](const Ledger& ledger) {
    std::int64_t bytes = 0;
    for (const auto& [key, count] : ledger.rows())
      if (key.first == Tag::parameter) bytes += count.current;
    return bytes;
  };
  const HostRun here(o);
  o.how.memory = weights_offloaded_to(Offload::host);
  const HostRun there(o);
  EXPECT_GT(parameters(here.ledger), 0);
  EXPECT_EQ(parameters(there.ledger), 0);
  EXPECT_EQ(parameters(there.offloaded), parameters(here.ledger));
}

// A step that updates nothing leaves offloaded state as it was, and the next one finds it.
TEST(OffloadedState, SurvivesAStepWithABadValue) {
  Replica::Options o = learning_options(tiny_specs().front().spec, {}, Precision::bf16);
  const auto run = [&](const MemorySpec& memory) {
    o.how.memory = memory;
    HostRun one(o);
    one.replica->init_weights();
    std::vector<bool> updated;
    for (unsigned step = 0; step < 4; ++step) {
      const TokenBatch batch = random_batch(o, step);
      if (step == 1) {  // weights that overflow, and back again
        const std::vector<Replica::Named> tensors = one.replica->tensors();
        const Tensor first = tensors[0].master.slice(0, 0, 1);
        float kept = 0;
        const float bad = std::numeric_limits<float>::quiet_NaN();
        download(&kept, first, *one.stream);
        upload(first, &bad, *one.stream);
        one.replica->resume(1, 1);
        updated.push_back(one.replica->step(batch.tokens, batch.targets).updated);
        (void)one.replica->tensors();  // nothing is under way
        upload(first, &kept, *one.stream);
        one.replica->resume(2, 1);
        continue;
      }
      updated.push_back(one.replica->step(batch.tokens, batch.targets).updated);
    }
    EXPECT_EQ(updated, (std::vector<bool>{true, false, true, true}));
    return whole_state(one);
  };
  const std::vector<char> here = run({});
  EXPECT_TRUE(run(offloaded_to(Offload::host)) == here);
  EXPECT_TRUE(run(offloaded_to(Offload::disk)) == here);
  EXPECT_TRUE(run(updated_there()) == here);
}

// The weights that compute are on the device, and stay what they were: nothing else brings them back.
TEST(OffloadedState, ComputesWithTheSameWeightsAfterASkippedUpdate) {
  for (const Precision precision : {Precision::bf16, Precision::fp32}) {
    Replica::Options o = learning_options(tiny_specs().front().spec, {}, precision);
    const auto losses = [&](const MemorySpec& memory) {
      o.how.memory = memory;
      HostRun run(o);
      run.replica->init_weights();
      std::vector<double> all;
      for (unsigned step = 0; step < 4; ++step) {
        const TokenBatch batch = random_batch(o, step);
        all.push_back(run.replica->compute_gradients(batch.tokens, batch.targets));
        const Tensor gradient = run.replica->tensors()[0].gradient.slice(0, 0, 1);
        const float bad = std::numeric_limits<float>::infinity();
        if (step == 1) upload(gradient, &bad, *run.stream);
        EXPECT_EQ(run.replica->apply_gradients().updated, step != 1);
      }
      return all;
    };
    const std::vector<double> here = losses({});
    EXPECT_EQ(losses(offloaded_to(Offload::host)), here);
    EXPECT_EQ(losses(offloaded_to(Offload::disk)), here);
    EXPECT_EQ(losses(updated_there()), here);
  }
}

}  // namespace
}  // namespace lockstep::tests
