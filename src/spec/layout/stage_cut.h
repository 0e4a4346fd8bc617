// Where the chunks of a pipeline end: splits the units of a model (the embedding, its layers, the head) into runs.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// The first unit of each of `chunks` runs, none of them empty, such that the dearest run costs as little as can be;
// among several such cuts, one of least variance.
std::vector<int> cut_by_cost(std::span<const double> unit_costs, int chunks);
// Layers as even as can be; the embedding goes with the first run and the head with the last, so that those that have
// one layer more than others are in the middle.
std::vector<int> cut_evenly(std::int64_t layers, int chunks);
// The layers of each run.
std::vector<int> cut_by_hand(std::span<const std::int64_t> layers);

}  // namespace lockstep
