// Gradients of which each rank of a layer has a part: summed over the ranks that have the same elements, and no others.
#include "parallel/partial_gradients.h"

#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "support/noted_ranks.h"

namespace lockstep::tests {
namespace {

StoredParameter vector_of(const std::string& name, std::int64_t elements, std::int64_t partial_over) {
  ParameterPiece piece{{name, {elements}}};
  piece.partial_over = partial_over;
  return {.shape = {elements}, .pieces = {piece}};
}

TEST(PartialGradients, AreSummedOverTheRanksThatHaveThem) {
  struct Case {
    int ranks, few;  // `few` consecutive ranks share a key/value head
  };
  for (const auto& [ranks, few] : {Case{2, 2}, {3, 3}, {5, 5}, {4, 2}, {6, 2}, {6, 3}})
    each_rank(ranks, [ranks = ranks, few = few](Communicator& group) {
      UnitLayout none("none"), unit("unit");
      none.add(vector_of("own", 70, 1));
      const int own = unit.add(vector_of("own", 300, 1)), heads = unit.add(vector_of("heads", 20, few)),
                norm1 = unit.add(vector_of("norm1", 256, ranks)), norm2 = unit.add(vector_of("norm2", 90, ranks));
      std::vector<std::string> notes;
      NotedRanks noted(group, notes);
      PartialGradients partial({&none, &unit}, noted, Algorithm::canonical);

      Row flat(DType::f32, unit.elements(), [](std::int64_t) { return 0; });
      const auto part = [&](int p) { return flat.part(unit.offset(p), unit.parameters()[p].elements()); };
      for (const int p : {own, heads, norm1, norm2})
        for (std::int64_t i = 0; i < part(p).elements(); ++i)
          part(p).data<float>()[i] = static_cast<float>(whole(group.rank() + p, i));
      partial.sum(0, flat);
      EXPECT_EQ(noted.started(), 0) << "nothing of that unit is partial";
      partial.sum(1, flat);
      // Neighbours of the same ranks are one message: the norms, and the heads too where all ranks have the same one.
      EXPECT_EQ(noted.started(), 1);

      const auto expect = [&](int p, int first, int count) {
        for (std::int64_t i = 0; i < part(p).elements(); ++i) {
          double want = 0;
          for (int r = first; r < first + count; ++r) want += whole(r + p, i);
          ASSERT_EQ(part(p).data<float>()[i], want) << ranks << " ranks, parameter " << p << ", element " << i;
        }
      };
      expect(own, group.rank(), 1);
      expect(heads, group.rank() / few * few, few);
      expect(norm1, 0, ranks);
      expect(norm2, 0, ranks);
    });
}

}  // namespace
}  // namespace lockstep::tests
