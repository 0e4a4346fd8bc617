// What a batch of documents teaches, and what its documents teach one by one, in plain batches of one sample.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "support/host_run.h"

namespace lockstep::tests {

// What a batch gives: its loss, its logits and every gradient.
struct Found {
  double loss = 0;
  std::vector<double> logits;
  std::vector<std::pair<std::string, std::vector<double>>> gradients;
};
Found run_batch(const Replica::Options& options, const TokenBatch& batch);

struct PlacedDocument {
  std::size_t begin, count;  // in the batch
};
std::vector<PlacedDocument> documents_of(const TokenBatch& batch, std::int64_t T);  // no padding is one

// Of its documents: the mean over all targets.
Found run_one_by_one(const Replica::Options& options, const TokenBatch& batch);

double norm(std::span<const double> values);
// Of two lists of numbers, over the norm of the second, or over `least`.
double relative(std::span<const double> a, std::span<const double> b, double least = 0);
void expect_same(const Found& packed, const Found& alone, double tolerance, const std::string& what);

}  // namespace lockstep::tests
