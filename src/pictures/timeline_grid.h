// What drawings of a timeline need to know of it, whatever they are drawn with.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "spec/pipeline/clock.h"

namespace lockstep {

constexpr char letter_of(ChunkStep step) { return "FBIW"[static_cast<int>(step)]; }
constexpr std::string_view words_of(ChunkStep step) {
  constexpr std::string_view kWords[] = {"forward", "backward", "backward, inputs", "backward, weights"};
  return kWords[static_cast<int>(step)];
}
inline constexpr ChunkStep kChunkSteps[] = {ChunkStep::forward, ChunkStep::backward, ChunkStep::backward_input,
                                            ChunkStep::backward_weight};

struct TimelineGrid {
  explicit TimelineGrid(const PipelineTimeline& line);

  // The largest time of which every beginning and end is a multiple; 0 where only tiny ones are.
  double unit = 0;
  double first = 0, makespan = 0, shortest = 0;  // the first beginning; the shortest step that takes time
  int most_micro = 0;                            // the largest number of a micro-batch
  std::size_t most_steps = 0;                    // of a stage
  int chunks = 1;                                // the most that a stage has
  bool has[4] = {};                              // by ChunkStep: whether it occurs

  // Which of its stage's chunks this is, from 0 on, in the order of the model.
  int nth(int chunk) const { return nth_[static_cast<std::size_t>(chunk)]; }

 private:
  std::vector<int> nth_;
};

// 1, 2 or 5 times a power of ten, at least `least`: where an axis has its marks.
double round_interval(double least);

}  // namespace lockstep
