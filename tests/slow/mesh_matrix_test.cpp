// Every layout of the matrix of which tests/train/mesh_matrix_test.cpp runs a sample.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/golden_meshes.h"
#include "support/mesh_matrix.h"

namespace lockstep::tests {
namespace {

TEST(WholeMeshMatrix, LearnsWhatOneRankLearns) {
  const std::vector<MeshCase> all = mesh_matrix();
  for (const MeshCase& one : all) expect_learns_as_one_rank(one);
  std::printf("%zu layouts\n", all.size());
}

TEST(WholeMeshMatrix, CostsWhatMetaSays) {
  for (const MeshCase& one : mesh_matrix()) expect_costs_as_on_meta(one);
}

TEST(WholeMeshMatrix, IsWithinToleranceOfTheGoldenRuns) {
  for (const char* folder : kGoldenFolders)
    for (const char* layout : kGoldenMeshes) expect_golden(folder, layout);
}

}  // namespace
}  // namespace lockstep::tests
