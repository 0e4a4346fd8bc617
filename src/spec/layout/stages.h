// Which stage of a pipeline has which units of the model.
//
// The units are split into chunks, runs in the order of the forward pass, and every chunk belongs to one stage. By
// default there is one stage, which has everything.
#pragma once
#include <algorithm>
#include <vector>

namespace lockstep {

struct Stages {
  std::vector<int> begins = {0};    // by chunk: its first unit, ascending
  std::vector<int> stage_of = {0};  // by chunk
  bool operator==(const Stages&) const = default;

  int chunks() const { return static_cast<int>(begins.size()); }
  int count() const { return *std::ranges::max_element(stage_of) + 1; }
  int chunk_of(int unit) const {
    return static_cast<int>(std::upper_bound(begins.begin(), begins.end(), unit) - begins.begin()) - 1;
  }
  int of(int unit) const { return stage_of[static_cast<std::size_t>(chunk_of(unit))]; }
  int first(int chunk) const { return begins[static_cast<std::size_t>(chunk)]; }
  int end(int chunk, int units) const { return chunk + 1 < chunks() ? first(chunk + 1) : units; }
};

}  // namespace lockstep
