// A pipeline's timeline drawn: a row a stage, time to the right.
//
// As text, for a terminal. Where every step begins and ends at a multiple of one unit of time, as they do when steps
// take equal times, and a column a unit fits the width, the picture is exact: a unit is one column, or several if the
// labels need them and there is room. Otherwise time is scaled to the width, and beginnings and ends are rounded.
//
//   stage 0 F0F1F2F3............B0--F4B1--    without colours: the step's letter and the micro-batch's number, the
//   stage 1 ..F0F1F2......B0--F3B1--..F4B2    letter alone where there is no room; '-' continues a step, '.' is idle
//
//   F forward, B backward, I its half for the inputs, W that for the weights. Of a stage with several chunks every
//   second one is in lower case. With colours the colour is the step, its shade the chunk, and the number the
//   micro-batch's, where it fits. A line of times and one that explains the letters follow.
//
// As SVG, a file that needs no other: a rectangle (class "step") a step, which says what it is when pointed at, in
// colours that can be read on light and dark; several timelines below each other on one axis.
#pragma once
#include <span>
#include <string>

#include "spec/pipeline/clock.h"

namespace lockstep {

struct TextPictureOptions {
  int width = 100;  // of all of it, in columns
  bool colour = false;
  double horizon = 0;     // what the width stands for, so that pictures can be compared; 0: as fits best
  std::string unit = {};  // of time, "" for none
  double scale = 1;       // units in one of the timeline's
};
std::string text_picture(const PipelineTimeline& line, const TextPictureOptions& options);

struct PicturePanel {
  PipelineTimeline line;  // begins at 0
  std::string caption;    // "" for none
};
struct SvgPictureOptions {
  std::string title = {}, subtitle = {};  // any text; it is escaped
  std::string unit = {};
  double scale = 1;
};
std::string svg_picture(std::span<const PicturePanel> panels, const SvgPictureOptions& options);

}  // namespace lockstep
