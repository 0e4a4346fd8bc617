// The groups of the mesh: along each axis the ranks whose places differ in that axis alone.
#include "parallel/mesh_groups.h"

#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "parallel/members.h"

namespace lockstep::tests {
namespace {

TEST(MeshGroups, AreTheRanksThatDifferInOneAxis) {
  for (const LayoutSpec& layout :
       {LayoutSpec{}, LayoutSpec{.dp = 5}, LayoutSpec{.tp = 3}, LayoutSpec{.pp = 3}, LayoutSpec{.cp = 3},
        LayoutSpec{.dp = 3, .tp = 2}, LayoutSpec{.dp = 2, .pp = 3}, LayoutSpec{.pp = 2, .cp = 3},
        LayoutSpec{.dp = 2, .pp = 3, .tp = 2}, LayoutSpec{.dp = 3, .pp = 2, .cp = 2, .tp = 2}})
    each_rank(static_cast<int>(layout.ranks()), [&](Communicator& world) {
      MeshGroups groups(world, layout);
      // rank = ((dp · PP + pp) · CP + cp) · TP + tp, counted out by hand.
      struct Place {
        int dp, pp, cp, tp;
      };
      std::vector<Place> places;
      for (int dp = 0; dp < layout.dp; ++dp)
        for (int pp = 0; pp < layout.pp; ++pp)
          for (int cp = 0; cp < layout.cp; ++cp)
            for (int tp = 0; tp < layout.tp; ++tp) places.push_back({dp, pp, cp, tp});
      const Place& own = places[static_cast<std::size_t>(world.rank())];
      const auto those = [&](auto&& are) {
        Members ranks;
        for (std::size_t r = 0; r < places.size(); ++r)
          if (are(places[r])) ranks.push_back(static_cast<int>(r));
        return ranks;
      };
      EXPECT_EQ(members(world, groups.tensor()),
                those([&](const Place& p) { return p.dp == own.dp && p.pp == own.pp && p.cp == own.cp; }));
      EXPECT_EQ(members(world, groups.context()),
                those([&](const Place& p) { return p.dp == own.dp && p.pp == own.pp && p.tp == own.tp; }));
      EXPECT_EQ(members(world, groups.pipeline()),
                those([&](const Place& p) { return p.dp == own.dp && p.cp == own.cp && p.tp == own.tp; }));
      EXPECT_EQ(members(world, groups.replicas()),
                those([&](const Place& p) { return p.pp == own.pp && p.tp == own.tp; }));
      groups.check();
    });
}

}  // namespace
}  // namespace lockstep::tests
