// Sparse training as one plain program: whole tensors in doubles, sorts in place of selects, state for every element.
//
// The gradient of the whole batch comes from a model of one rank without a mask, which is given weights that are zero
// where they are masked. The mask, clipping and AdamW are written here from docs/sparsity.md, and share nothing with
// the library. Runs are fp64.
#pragma once
#include "support/learning_ranks.h"

namespace lockstep::tests {

struct SparseLearned {
  Learned learned;
  std::vector<bool> masked;  // by element of all tensors, in the end
};

SparseLearned learn_sparsely(const Replica::Options& options, int steps);

// The names of matrices of blocks.
bool is_block_matrix(const LogicalTensor& tensor);
// By element of such a tensor, whether it is masked from now on. `share`: of the whole.
std::vector<bool> plain_mask(const LogicalTensor& tensor, const std::vector<double>& values,
                             const std::vector<bool>& masked, bool groups_of_four, bool inputs_first, double share);
// The share after a mask step, by the formulas of the page.
double plain_share(const SparsitySpec& sparsity, std::int64_t steps);

}  // namespace lockstep::tests
