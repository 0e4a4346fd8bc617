// The golden runs over every axis: of each folder every third layout, so that all come up; `make test-slow` has them
// all.
#include "support/golden_meshes.h"

namespace lockstep::tests {
namespace {

TEST(GoldenMesh, IsWithinToleranceOverEveryAxis) {
  for (std::size_t f = 0; f < std::size(kGoldenFolders); ++f)
    for (std::size_t i = f % 3; i < std::size(kGoldenMeshes); i += 3)
      expect_golden(kGoldenFolders[f], kGoldenMeshes[i]);
}

}  // namespace
}  // namespace lockstep::tests
