// What units cost, by which a pipeline is cut: layers alike, and a head by its vocabulary.
#include "model/unit_costs.h"

#include <gtest/gtest.h>

#include "spec/layout/stage_cut.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

std::vector<double> costs_of(const NamedSpec& like, std::int64_t vocabulary, std::int64_t layers = 6) {
  ModelSpec spec = like.spec;
  spec.layers = layers;
  spec.vocabulary = vocabulary;
  return unit_costs(Model(spec, 2, 8, DType::f32), Device::cpu);
}

TEST(UnitCosts, AreThoseOfTheUnitsThemselves) {
  for (const NamedSpec& model : tiny_specs()) {
    const std::vector<double> small = costs_of(model, 64), large = costs_of(model, 6400);
    ASSERT_EQ(small.size(), 8u);
    for (std::size_t u = 1; u < 7; ++u) {
      EXPECT_EQ(small[u], small[1]) << model.name << ": layers are alike";
      EXPECT_EQ(large[u], small[u]) << model.name << ": and know no vocabulary";
    }
    EXPECT_LT(small[0], small[1]) << model.name << ": a lookup is cheap";
    EXPECT_GT(large[7], 50 * small[7]) << model.name << ": the head is its vocabulary";
  }
}

TEST(UnitCosts, GiveFewerLayersToTheStageOfAHeavyHead) {
  for (const NamedSpec& model : tiny_specs()) {
    const int light = cut_by_cost(costs_of(model, 16), 2)[1], heavy = cut_by_cost(costs_of(model, 6400), 2)[1];
    EXPECT_LT(light, heavy) << model.name;
  }
}

}  // namespace
}  // namespace lockstep::tests
