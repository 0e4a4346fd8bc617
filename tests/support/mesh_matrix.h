// The layouts that everything is held to at once: every pair of axes, every three and all four, up to 16 ranks, with
// every schedule, ZeRO stage, kind and order of context, odd sizes, few micro-batches, over every model.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spec/model/document_pairs.h"
#include "spec/run/run_spec.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {

struct MeshCase {
  NamedSpec model;
  LayoutSpec layout;
  std::int64_t T = 0, B = 0;  // as small as the layout allows, and tokens an odd multiple

  std::string words() const { return model.name + ", " + to_text(layout); }
  RunSpec run(Precision precision) const;  // of ten steps
};

// Always the same, in the same order.
std::vector<MeshCase> mesh_matrix();
// So many of them by a seed, without a second one.
std::vector<MeshCase> mesh_sample(std::size_t count, unsigned seed);

// Ten steps against one rank: in fp64 every loss and gradient to 1e-11 and weight to 1e-10; in fp32 losses, norms, the
// first step's gradient tensors and all weights to 1e-5, and two steps, tensor by tensor, but for rounding
// (train/rounding_check.h).
void expect_learns_as_one_rank(const MeshCase& one);
// Every rank's ledger, what it offloads, and messages of a step are what meta says of that rank. Samples without
// padding have as many tokens as are expected.
void expect_costs_as_on_meta(const MeshCase& one, const MemorySpec& memory = {},
                             const std::shared_ptr<const DocumentPairs>& documents = {}, bool varlen = false);

}  // namespace lockstep::tests
