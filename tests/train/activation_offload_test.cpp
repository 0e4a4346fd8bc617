// Offloading activations changes where bytes are, and not a bit of what is learned.
//
// Between two memories of the host here, which is what a GPU does with its own and the host's, and on a disk.
#include <gtest/gtest.h>

#include "comm/meta/communicator.h"
#include "model/kept_bytes.h"
#include "spec/layout/layout_toml.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/mesh_matrix.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

MemorySpec moved_blocks(Offload where, std::int64_t blocks = 0, MemorySpec rest = {}) {
  rest.offload_activations = where;
  rest.offload_blocks = blocks;
  return rest;
}

std::string offload_text(const MemorySpec& memory) {
  return fmt::format("{}, {} blocks, recompute {}, every {}", name_of(memory.offload_activations),
                     memory.offload_blocks, name_of(memory.recompute), memory.recompute_every);
}

// A rank on meta, alone or of many, and what it takes and moves.
struct CountedRank {
  explicit CountedRank(const Replica::Options& o, int rank = 0, Memory* rooms = nullptr)
      : ranks(rank, static_cast<int>(o.layout.ranks())),
        memory(make_memory(Device::meta, ledger)),
        offload(make_memory(Device::meta, offloaded)),
        stream(*memory, cpu::kScratchBytes),
        replica(o, {ranks, ranks}, *memory, stream, offload.get(), rooms) {
    replica.init_weights();
  }
  void step(const Replica::Options& o) {
    const TokenBatch all = random_batch(o, 0);
    const Share given = replica.given();
    const auto part = [&](const std::vector<std::int32_t>& whole) {
      return std::span(whole).first(static_cast<std::size_t>(given.count * o.T));
    };
    replica.step(part(all.tokens), part(all.targets));
  }
  std::int64_t moved() const { return replica.moved_activations().from_device; }

  Ledger ledger, offloaded;
  meta::Communicator ranks;
  std::unique_ptr<Memory> memory, offload;
  meta::Stream stream;
  Replica replica;
};

struct MovedRun {
  std::vector<double> losses;
  std::vector<char> weights;
  Ledger::Rows device, offloaded;
  ActivationOffload::Traffic moved, moved_by_evaluation;
};

// `rooms`: as under a GPU.
MovedRun learn_moved(const Replica::Options& o, Memory* rooms = nullptr) {
  HostRun run(o);
  if (rooms) {
    run.replica.reset();
    run.replica = std::make_unique<Replica>(o, *run.memory, *run.stream, run.offload.get(), rooms);
  }
  run.replica->init_weights();
  MovedRun learned;
  for (unsigned step = 0; step < 3; ++step) {
    const TokenBatch batch = random_batch(o, step);
    learned.losses.push_back(run.replica->step(batch.tokens, batch.targets).loss);
    if (step != 1) continue;
    const ActivationOffload::Traffic before = run.replica->moved_activations();
    learned.losses.push_back(run.replica->evaluate(batch.tokens, batch.targets));
    const ActivationOffload::Traffic after = run.replica->moved_activations();
    learned.moved_by_evaluation = {after.to_device - before.to_device, after.from_device - before.from_device};
  }
  learned.moved = run.replica->moved_activations();
  learned.weights = weight_bytes(run);
  learned.device = run.ledger.rows();
  learned.offloaded = run.offloaded.rows();
  return learned;
}

class OffloadedBlocks : public ::testing::TestWithParam<std::tuple<NamedSpec, Precision>> {};

TEST_P(OffloadedBlocks, ChangeNoBitAndTakeWhatMetaSays) {
  const auto& [named, precision] = GetParam();
  Replica::Options o{.spec = named.spec, .B = 4, .T = 17, .layout = {.micro = 2}, .precision = precision, .seed = 3};
  o.spec.layers = 4;
  o.optimizer.clip = 0.1;
  const MovedRun here = learn_moved(o);
  EXPECT_EQ(here.moved, ActivationOffload::Traffic{});
  const MemorySpec every{.recompute = Recompute::full, .recompute_every = 2};
  for (const MemorySpec& memory :
       {moved_blocks(Offload::host), moved_blocks(Offload::host, 2), moved_blocks(Offload::disk),
        moved_blocks(Offload::host, 0, {Recompute::elementwise}),
        moved_blocks(Offload::host, 0, {Recompute::projections}), moved_blocks(Offload::host, 0, {Recompute::full}),
        moved_blocks(Offload::host, 0, every), moved_blocks(Offload::disk, 3, every)}) {
    o.how.memory = memory;
    const MovedRun there = learn_moved(o);
    EXPECT_EQ(there.losses, here.losses) << offload_text(memory);
    EXPECT_TRUE(there.weights == here.weights) << offload_text(memory) << ": other weights";
    EXPECT_GT(there.moved.from_device, 0) << offload_text(memory);
    EXPECT_EQ(there.moved.from_device, there.moved.to_device) << offload_text(memory);
    EXPECT_EQ(there.moved_by_evaluation, ActivationOffload::Traffic{}) << offload_text(memory);

    CountedRank counted(o);
    for (int step = 0; step < 3; ++step) counted.step(o);
    const TokenBatch batch = random_batch(o, 0);
    counted.replica.evaluate(batch.tokens, batch.targets);
    EXPECT_EQ(counted.replica.moved_activations(), there.moved) << offload_text(memory);
    EXPECT_EQ(counted.ledger.rows(), there.device) << offload_text(memory);
    EXPECT_EQ(counted.offloaded.rows(), there.offloaded) << offload_text(memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadedBlocks,
                         ::testing::Combine(::testing::ValuesIn(tiny_specs()),
                                            ::testing::Values(Precision::fp32, Precision::bf16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name_of(std::get<1>(info.param)));
                         });

// By themselves, and beside state, gradients and weights in the same file.
TEST(OffloadedActivations, PassThroughRoomOnTheHostToADiskAsUnderAGpu) {
  for (const NamedSpec& named : tiny_specs())
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      Replica::Options o{.spec = named.spec, .B = 4, .T = 17, .layout = {}, .precision = precision, .seed = 3};
      o.layout.zero = 3;
      o.layout.micro = 2;
      o.spec.layers = 4;
      o.optimizer.clip = 0.1;
      const MovedRun here = learn_moved(o);
      for (const bool others : {false, true}) {
        MemorySpec memory = moved_blocks(Offload::disk);
        if (others) memory.offload_optimizer = memory.offload_gradients = memory.offload_parameters = Offload::disk;
        o.how.memory = memory;
        Ledger on_host, on_meta;
        const auto rooms = make_host_memory(Device::cpu, on_host), no_room = make_memory(Device::meta, on_meta);
        const MovedRun there = learn_moved(o, rooms.get());
        EXPECT_EQ(there.losses, here.losses) << named.name;
        EXPECT_TRUE(there.weights == here.weights) << named.name << ": other weights";
        EXPECT_GT(there.moved.from_device, 0) << named.name;
        CountedRank counted(o, 0, no_room.get());
        for (int step = 0; step < 3; ++step) counted.step(o);
        EXPECT_EQ(counted.replica.moved_activations(), there.moved) << named.name;
        EXPECT_GT(on_host.peak(), 0);
        EXPECT_EQ(on_meta.peak(), on_host.peak()) << named.name;
      }
    }
}

// A model with enough blocks for every stage and chunk.
ModelSpec deep_offload_spec() {
  const std::vector<NamedSpec> specs = cut_specs();
  ModelSpec spec = std::ranges::find_if(specs, [](const NamedSpec& s) { return s.spec.kv_heads % 2 == 0; })->spec;
  spec.layers = 8;
  return spec;
}

TEST(OffloadedActivations, AreTheSameUnderEveryLayout) {
  for (const char* text : {"dp=4,micro=2", "dp=4,zero=1,micro=2", "dp=4,zero=2,micro=2", "dp=4,zero=3,micro=2",
                           "dp=3,dp_kind=central,micro=2", "pp=2,micro=4,schedule=afab", "pp=2,micro=4",
                           "pp=2,micro=4,schedule=interleaved", "pp=2,micro=4,schedule=zb-h1",
                           "pp=2,micro=4,schedule=zb-v", "tp=2,micro=2", "tp=2,micro=2,sp=off", "cp=2,micro=2",
                           "cp=2,cp_kind=ulysses,micro=2", "dp=2,pp=2,zero=1,micro=2", "dp=2,tp=2,zero=3,micro=2"})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      Replica::Options o = learning_options(deep_offload_spec(), parse_layout(text), precision);
      // Ranks that do not update have no masters, and bf16 weights are another copy than those.
      if (o.layout.dp_kind == DpKind::central && precision == Precision::bf16) continue;
      o.T = 12;  // for two segments of either order
      const Learned here = learn(o, 2);
      for (const MemorySpec& memory : {moved_blocks(Offload::host), moved_blocks(Offload::disk, 1),
                                       moved_blocks(Offload::host, 2, {Recompute::full})}) {
        o.how.memory = memory;
        expect_equal(learn(o, 2), here, std::string(text) + ", " + offload_text(memory));
        for (int rank = 0; rank < o.layout.ranks(); ++rank) {
          CountedRank counted(o, rank);
          counted.step(o);
          EXPECT_GT(counted.moved(), 0) << text << ", " << offload_text(memory) << ", rank " << rank;
        }
      }
    }
}

// Over layouts of all axes, every schedule and ZeRO stage, and models with dropout.
TEST(OffloadedActivations, ChangeNoBitInASampleOfAllLayouts) {
  bool dropout = false, later = false, sharded = false;
  for (const MeshCase& one : mesh_sample(12, 33)) {
    Replica::Options o = learning_options(one.model.spec, one.layout, Precision::fp32);
    o.B = one.B;
    o.T = one.T;
    const Learned kept = learn(o, 2);
    for (const MemorySpec& memory : {moved_blocks(Offload::host), moved_blocks(Offload::host, 1, {Recompute::full})}) {
      o.how.memory = memory;
      expect_equal(learn(o, 2), kept, one.words() + ", " + offload_text(memory));
    }
    dropout |= one.model.spec.dropout > 0 && one.model.spec.attention_dropout > 0;
    later |= one.layout.schedule == ScheduleKind::zb_h1 || one.layout.schedule == ScheduleKind::zb_v;
    sharded |= one.layout.zero == 3;
  }
  EXPECT_TRUE(dropout && later && sharded) << "or the sample says too little";
}

TEST(OffloadedActivations, CostWhatMetaSaysInASampleOfAllLayouts) {
  for (const MeshCase& one : mesh_sample(12, 34)) {
    expect_costs_as_on_meta(one, moved_blocks(Offload::host));
    const Offload other = one.layout.ranks() <= 4 ? Offload::disk : Offload::host;  // files reserve many addresses
    expect_costs_as_on_meta(one, moved_blocks(other, 1, {Recompute::full}));
  }
}

// What is moved: all that the first blocks of a stage keep, once for each micro-batch; not what a block keeps whose
// backward follows its forward at once.
TEST(OffloadedActivations, AreWhatTheFirstBlocksKeep) {
  Replica::Options o = learning_options(deep_offload_spec(), {.micro = 3}, Precision::bf16);
  o.spec.layers = 6;
  for (const Recompute level : {Recompute::none, Recompute::elementwise, Recompute::projections, Recompute::full})
    for (const std::int64_t blocks : {0, 1, 2, 5, 6}) {
      o.how.memory = moved_blocks(Offload::none, 0, {level});
      const CountedRank kept(o);
      o.how.memory = moved_blocks(Offload::host, blocks, {level});
      CountedRank counted(o);
      counted.step(o);
      std::int64_t bytes = 0;
      for (int unit = 1; unit <= (blocks == 0 ? 5 : std::min<std::int64_t>(blocks, 5)); ++unit)
        bytes += kept_bytes(kept.replica.model(), unit);
      EXPECT_EQ(counted.moved(), 3 * bytes) << offload_text(o.how.memory);
    }
}

TEST(OffloadedActivations, AreThoseOfTheFirstBlocksOfEachStage) {
  for (const char* text : {"pp=2,micro=4", "pp=2,micro=4,schedule=interleaved", "pp=4,micro=4,stages=2+2+2+2"}) {
    Replica::Options o = learning_options(deep_offload_spec(), parse_layout(text), Precision::fp32);
    const std::int64_t block = kept_bytes(CountedRank(o).replica.model(), 1);
    o.how.memory = moved_blocks(Offload::host, 1);
    for (int rank = 0; rank < o.layout.pp; ++rank) {
      CountedRank counted(o, rank);
      counted.step(o);
      EXPECT_EQ(counted.moved(), 4 * block) << text << ", rank " << rank;
    }
  }
}

// The device holds what two or three blocks keep, however many there are; the others' are elsewhere.
TEST(OffloadedActivations, OnTheDeviceDoNotGrowWithDepth) {
  for (const Recompute level : {Recompute::none, Recompute::elementwise, Recompute::full}) {
    struct Taken {
      std::int64_t in_use, device, elsewhere, kept;
    };
    const auto taken = [&](std::int64_t layers, Offload where) {
      Replica::Options o = learning_options(deep_offload_spec(), {.micro = 2}, Precision::bf16);
      o.spec.layers = layers;
      o.how.memory = moved_blocks(where, 0, {level});
      const CountedRank counted(o);
      const RankStep& step = counted.replica.rank_step();
      return Taken{std::ranges::max(live_bytes(counted.replica.model().slots(), step.actions, step.shape)),
                   counted.ledger.peak(Tag::activation), counted.offloaded.peak(Tag::activation),
                   kept_bytes(counted.replica.model(), 1)};
    };
    const Taken eight = taken(8, Offload::host), twelve = taken(12, Offload::host), here = taken(12, Offload::none);
    EXPECT_EQ(twelve.in_use, eight.in_use) << name_of(level);
    EXPECT_LE(twelve.device, 1.1 * static_cast<double>(eight.in_use)) << name_of(level) << ": or places are lost";
    EXPECT_GE(twelve.elsewhere, 11 * here.kept) << name_of(level);
    EXPECT_LE(twelve.device, here.device - 8 * here.kept) << name_of(level);
  }
}

// A step that is run to find a bad value finds the same.
TEST(OffloadedActivations, AreSearchedForBadValues) {
  Replica::Options o = learning_options(deep_offload_spec(), {.micro = 2}, Precision::fp32);
  const auto named = [&](const MemorySpec& memory) {
    o.how.memory = memory;
    HostRun run(o);
    run.replica->init_weights();
    for (const Replica::Named& t : run.replica->tensors())
      if (t.tensor.name.find("5.") != std::string::npos && t.tensor.name.ends_with(".weight") &&
          t.tensor.elements() == o.spec.width) {  // a norm of block 5: what it multiplies overflows
        const std::vector<float> bad(static_cast<std::size_t>(t.tensor.elements()), std::numeric_limits<float>::max());
        upload(t.master.slice(0, t.runs[0].here.begin, t.tensor.elements()), bad.data(), *run.stream);
        break;
      }
    run.replica->resume(0, 0);
    const TokenBatch batch = random_batch(o, 0);
    EXPECT_FALSE(run.replica->step(batch.tokens, batch.targets).updated);
    return run.replica->find_bad_value(batch.tokens, batch.targets).value_or("nothing");
  };
  const std::string kept = named({});
  EXPECT_NE(kept.find("activation"), std::string::npos) << kept;
  for (const Offload where : {Offload::host, Offload::disk}) EXPECT_EQ(named(moved_blocks(where)), kept);
}

}  // namespace
}  // namespace lockstep::tests
