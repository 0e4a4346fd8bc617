// A step as it was measured, drawn as SVG: a row per rank with what it did, and below it what the memory of one of them
// was used for, on the same axis of time.
//
// The file needs no other. What a rectangle stands for is shown when it is pointed at.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class MeasuredKind : std::uint8_t { forward, backward, update, message, wait };
inline constexpr int kMeasuredKinds = 5;
std::string_view name_of(MeasuredKind kind);

struct MeasuredSpan {
  MeasuredKind kind;
  double begin, end;  // seconds from the step's beginning
  std::string what;   // "block.3 forward, micro-batch 1"
};

struct MeasuredStepPicture {
  std::string title, subtitle;
  std::vector<std::vector<MeasuredSpan>> ranks;
  // Of `memory_rank`: from times[i] to times[i + 1] each band has bytes[i].
  struct Band {
    std::string name;
    std::vector<std::int64_t> bytes;
  };
  int memory_rank = 0;
  std::vector<double> times;
  std::vector<Band> bands;  // the first one at the bottom
  std::int64_t held = 0;    // bytes that the run has taken, whatever is in use
};

std::string svg_picture(const MeasuredStepPicture& picture);

}  // namespace lockstep
