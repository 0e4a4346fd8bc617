// The order in which the stages of a pipeline work: the schedules by name, and those written by hand.
//
// The model is split by layers into stages · chunks chunks, in the order of the forward pass; each stage has one or
// several. A stage's work is a list of steps, each of one chunk and one micro-batch. Messages and everything else
// beside the steps follow from that list (spec/pipeline/stage_step.h). All schedules add up weight gradients in the
// order of micro-batches.
//
//   afab         all forwards, then all backwards (GPipe)
//   1f1b         as few forwards before the first backward as keep the later stages busy, then one of each in turn
//   interleaved  the same with several chunks per stage, dealt out in rounds: a shorter way through the pipeline
//   zb-h1        1f1b with each backward in two: the gradient that the stage before waits for, and later that of the
//                weights, which nobody waits for and which fills what were gaps
//   zb-v         the same with two chunks per stage, laid out as a V: the first stage is also the last
//
// Two more do not empty the pipeline at the end of a step, and change what is learned: pipedream and pipedream-2bw
// (spec/pipeline/pipedream.h). Between two points where it is emptied their stages work in the order of 1f1b.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class ScheduleKind { afab, one_f_one_b, interleaved, zb_h1, zb_v, pipedream, pipedream_2bw };
// Those that change no result.
inline constexpr std::array kScheduleKinds{ScheduleKind::afab, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                           ScheduleKind::zb_h1, ScheduleKind::zb_v};
inline constexpr std::array kAllScheduleKinds{
    ScheduleKind::afab, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,  ScheduleKind::zb_h1,
    ScheduleKind::zb_v, ScheduleKind::pipedream,   ScheduleKind::pipedream_2bw};
constexpr std::string_view name_of(ScheduleKind kind) {
  constexpr std::string_view kNames[] = {"afab", "1f1b", "interleaved", "zb-h1", "zb-v", "pipedream", "pipedream-2bw"};
  return kNames[static_cast<int>(kind)];
}
// Whether a step begins and ends with an empty pipeline.
constexpr bool flushes(ScheduleKind kind) { return kind < ScheduleKind::pipedream; }

enum class ChunkStep : std::uint8_t { forward, backward, backward_input, backward_weight };  // backward: both

struct ChunkAction {
  ChunkStep step;
  int chunk;
  int micro;
  bool operator==(const ChunkAction&) const = default;
};

struct PipelineShape {
  int stages = 1;
  int micro = 1;
  int chunks = 1;  // of each stage
  bool operator==(const PipelineShape&) const = default;
};

struct PipelineSchedule {
  PipelineShape shape;
  std::vector<int> stage_of;                     // by chunk
  std::vector<std::vector<ChunkAction>> stages;  // what each stage does, in order
};

// Chunks per stage by default: what the schedule is made for.
constexpr int usual_chunks(ScheduleKind kind) {
  return kind == ScheduleKind::interleaved || kind == ScheduleKind::zb_v ? 2 : 1;
}
// Whether there is such a schedule; if not, `fail` is given the problem and a remedy, and throws.
using ScheduleFault = std::function<void(const std::string& problem, const std::string& remedy)>;
void check_schedule(ScheduleKind kind, const PipelineShape& shape, const ScheduleFault& fail);

// Of a shape that check_schedule lets pass. Without a flush: of all micro-batches between two points where the pipeline
// is empty.
PipelineSchedule make_schedule(ScheduleKind kind, const PipelineShape& shape);

// The most micro-batches of a chunk (of any of its chunks, each counted) whose activations a stage of the named
// schedule keeps at a time: from the beginning of a forward to the end of the backward of the weights.
int most_in_flight(ScheduleKind kind, const PipelineShape& shape, int stage);
// The same, counted in a list.
int in_flight(const std::vector<ChunkAction>& stage);

// A schedule as text, one line per stage, "F0 F1 B0 B1": F forward, B backward, or I and W, its halves; the number is
// the micro-batch. Where stages have several chunks, "F0@3": of chunk 3. '#' begins a comment.
std::string to_text(const PipelineSchedule& schedule);
// UserError (usage) naming the line where the text is no schedule: a step that is missing, doubled, or waits for what
// never comes; sums out of the order of micro-batches; a chunk in two stages. `where` names the source.
PipelineSchedule parse_schedule(std::string_view text, const std::string& where);

// The first reason why the stages could not work so, or nothing.
std::string schedule_fault(const PipelineSchedule& schedule);

}  // namespace lockstep
