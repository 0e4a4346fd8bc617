// The state of 16 bits of a tensor's element does not depend on how tensor parallelism and ZeRO split the model: the
// same gradient gives the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/step_control.h"
#include "model/model.h"
#include "parallel/zero_shards.h"
#include "spec/layout/tensor_split.h"
#include "support/step_controls.h"
#include "support/tensor_box.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

using ElementStates = std::map<std::pair<std::string, std::int64_t>, std::vector<double>>;

// Three updates of every shard of every unit, by (tensor, element): weight and moments.
ElementStates updated(const ModelSpec& spec, const StorageTypes& types, std::int64_t tp, std::int64_t shards) {
  ElementStates states;
  for (std::int64_t rank = 0; rank < tp; ++rank) {
    const Model model(spec, 1, 8, types.compute, {.split = {.rank = rank, .size = tp}});
    for (int u = 0; u < model.units(); ++u)
      for (std::int64_t s = 0; s < shards; ++s) {
        TensorBox box;
        CpuDevice cpu;
        const UnitLayout& layout = model.unit(u).layout();
        ZeroShard shard(layout, {.types = types, .optimizer = {}, .shard = {.index = s, .count = shards}}, cpu.memory(),
                        cpu.stream());
        const Tensor gradient = box.make(types.gradient, {shard.own_master().elements()}, constant(0));
        const auto each = [&](auto&& visit) {
          shard.each_piece([&](const ZeroShard::Piece& piece) {
            for (const lockstep::Run& run : piece.runs)
              for (std::int64_t i = 0; i < run.elements(); ++i)
                visit(piece.tensor.name, run.there.at(i), piece.offset + run.here.at(i));
          });
        };
        each([&](const std::string& name, std::int64_t element, std::int64_t place) {
          const auto seed = static_cast<double>(random_key(1, name) % 1000);
          box.write(shard.own_master(), place, std::sin(seed + 0.7 * static_cast<double>(element)));
          box.write(gradient, place, std::cos(seed + 1.3 * static_cast<double>(element)));
        });
        for (const int step : {1, 2, 3})
          shard.update(gradient,
                       box.make(DType::f64, {kStepControls}, step_controls({.rate = 0.01, .step = step, .scale = 0.5})),
                       cpu.stream());
        each([&](const std::string& name, std::int64_t element, std::int64_t place) {
          std::vector<double> state{box.read(shard.own_master(), place)};
          for (const auto& [_, kept] : shard.optimizer_state()) state.push_back(box.read(kept, place));
          const auto [at, fresh] = states.try_emplace({name, element}, state);
          EXPECT_TRUE(fresh || at->second == state) << "ranks that hold the same: " << name << " " << element;
        });
      }
  }
  return states;
}

TEST(RoundingOfSplitModels, IsThatOfTheWholeModel) {
  const PrecisionSpec moments(Precision::bf16, StateType::full, StateType::bf16),
      all(Precision::bf16, StateType::bf16, StateType::bf16, StateType::bf16);
  const std::vector<NamedSpec> models = cut_specs();
  // Llama, with biases, GPT-2; the first and the last with 8 heads, which share key/value heads.
  for (const NamedSpec& model : {models[0], models[2], models[6], models[8], models[14]})
    for (const PrecisionSpec& precision : {moments, all}) {
      const StorageTypes types = storage_types(precision);
      const ElementStates one = updated(model.spec, types, 1, 1);
      for (const auto& [tp, shards] : {std::pair{model.spec.heads % 3 == 0 ? 3 : 2, 1}, {2, 3}, {1, 5}}) {
        if (!heads_divide(model.spec.heads, model.spec.kv_heads, tp)) continue;
        EXPECT_TRUE(updated(model.spec, types, tp, shards) == one)
            << model.name << ", tp=" << tp << ", " << shards << " shards";
      }
    }
}

}  // namespace
}  // namespace lockstep::tests
