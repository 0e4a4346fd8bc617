// The checker of the lists of all ranks against a machine that runs them: both accept the same worlds.
#include <gtest/gtest.h>

#include "spec/scattered_world.h"
#include "spec/world_mutations.h"
#include "spec/world_verdicts.h"

namespace lockstep::tests {
namespace {

struct Verdicts {
  int accepted = 0, refused = 0;
};

// From each world a walk: what an edit leaves right is where the next one begins, so that all orders are come by.
TEST(WorldAgreement, CheckerAndMachineAgreeOnEditedWorlds) {
  std::mt19937 random(11);
  Verdicts verdicts;
  for (int w = 0; w < 250; ++w) {
    WorldLists world = one_in(random, 3) ? scattered_world(random) : random_world(random);
    const Reference reference(world);
    if (!both_accept(reference, world, random())) continue;
    for (int i = 0; i < 60; ++i) {
      const WorldLists edited = Mutator(world, random).mutated();
      if (edited.ranks == world.ranks) continue;
      const bool right = both_accept(reference, edited, random());
      if (HasFailure()) return;
      ++(right ? verdicts.accepted : verdicts.refused);
      if (right) world = edited;
    }
  }
  EXPECT_GE(verdicts.accepted, 1000);
  EXPECT_GE(verdicts.refused, 5000);
}

TEST(WorldAgreement, CheckerAndMachineAgreeOnScatteredWorlds) {
  std::mt19937 random(5);
  Verdicts verdicts;
  for (int w = 0; w < 1500; ++w) {
    const WorldLists world = scattered_world(random);
    const bool right = both_accept(Reference(world), world, random());
    if (HasFailure()) return;
    ++(right ? verdicts.accepted : verdicts.refused);
  }
  EXPECT_GE(verdicts.accepted, 300);
  EXPECT_GE(verdicts.refused, 300);
}

}  // namespace
}  // namespace lockstep::tests
