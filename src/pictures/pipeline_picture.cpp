#include "pictures/pipeline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pictures/timeline_grid.h"

namespace lockstep {

namespace {

constexpr int kShades = 4;
// Of the 256 that terminals have: backgrounds on which black can be read.
constexpr int kColours[4][kShades] = {{75, 117, 153, 189},    // forward: blue
                                      {114, 151, 157, 194},   // backward: green
                                      {80, 116, 123, 159},    // its inputs: turquoise
                                      {215, 222, 229, 230}};  // its weights: orange
constexpr int kMarkColumns = 10;                              // between two times of the axis, at least

class TextPicture {
 public:
  TextPicture(const PipelineTimeline& line, const TextPictureOptions& options)
      : line_(line), options_(options), grid_(line) {
    label_ = std::max(fmt::format("stage {} ", line.stages.size() - 1).size(), options.unit.size() + 1);
    const int room = std::max(options.width - static_cast<int>(label_), 10);
    column_ = std::max(grid_.makespan, options.horizon) / room;
    if (options.horizon > 0 || grid_.unit <= 0) return;
    const double units = std::round(grid_.makespan / grid_.unit);
    if (units > room) return;
    // What the shortest step needs for its label; with colours and a blank, which keep numbers apart, if there is room.
    const int digits = static_cast<int>(fmt::format_int(grid_.most_micro).size());
    const int needed = std::max(1, static_cast<int>(std::ceil((digits + 1) * grid_.unit / grid_.shortest - 1e-6)));
    column_ = grid_.unit / std::min(needed, static_cast<int>(room / units));
  }

  std::string text() const {
    std::string out;
    for (std::size_t s = 0; s < line_.stages.size(); ++s)
      out += fmt::format("{:<{}}{}\n", fmt::format("stage {}", s), label_, row(line_.stages[s]));
    return out + axis() + legend();
  }

 private:
  int at(double time) const { return column_ > 0 ? static_cast<int>(std::round((time - grid_.first) / column_)) : 0; }

  std::string row(const std::vector<ChunkSpan>& spans) const {
    std::string out;
    int here = 0;
    for (const ChunkSpan& span : spans) {
      const int begin = std::max(at(span.begin), here), end = at(span.end);
      if (end <= begin) continue;  // too short to be seen
      out += idle(begin - here) + cell(span.action, end - begin);
      here = end;
    }
    return out + idle(at(grid_.first + grid_.makespan) - here);
  }

  std::string idle(int columns) const {
    const std::string dots(static_cast<std::size_t>(std::max(columns, 0)), '.');
    return options_.colour && !dots.empty() ? "\033[2m" + dots + "\033[0m" : dots;
  }

  std::string cell(const ChunkAction& a, int columns) const {
    const auto room = static_cast<std::size_t>(columns);
    const std::string number = fmt::format("{}", a.micro);
    if (options_.colour) return painted(a.step, grid_.nth(a.chunk), number.size() <= room ? number : "", columns);
    const char letter = letter_of(a.step);
    const std::string head(1, grid_.nth(a.chunk) % 2 == 0 ? letter : static_cast<char>(letter - 'A' + 'a'));
    return fmt::format("{:-<{}}", number.size() < room ? head + number : head, columns);
  }

  std::string painted(ChunkStep step, int nth, const std::string& words, int columns) const {
    const int shade = grid_.chunks == 1 ? 0 : nth * (kShades - 1) / (grid_.chunks - 1);
    return fmt::format("\033[30;48;5;{}m{:<{}}\033[0m", kColours[static_cast<int>(step)][shade], words, columns);
  }

  std::string axis() const {
    std::string out = fmt::format("{:<{}}", options_.unit.empty() ? "time" : options_.unit, label_);
    if (!(column_ > 0)) return out + "\n";
    const double interval = round_interval(kMarkColumns * column_ * options_.scale);
    const int end = at(grid_.first + grid_.makespan);
    for (int i = 0;; ++i) {
      const int column = at(grid_.first + i * interval / options_.scale);
      const std::string mark = fmt::format("|{:g}", i * interval);
      if (column + static_cast<int>(mark.size()) > std::max(end, 2)) return out + "\n";
      out.resize(label_ + static_cast<std::size_t>(column), ' ');
      out += mark;
    }
  }

  std::string legend() const {
    std::string out(label_, ' ');
    for (const ChunkStep step : kChunkSteps) {
      if (!grid_.has[static_cast<int>(step)]) continue;
      const std::string letter(1, letter_of(step));
      if (!options_.colour) out += letter;
      for (int nth = 0; options_.colour && nth < std::min(grid_.chunks, kShades); ++nth)
        out += painted(step, nth * (grid_.chunks - 1) / std::max(1, std::min(grid_.chunks, kShades) - 1),
                       nth == 0 ? letter : "", 1);
      out += fmt::format(" {}  ", words_of(step));
    }
    out += idle(1) + " idle";
    if (grid_.chunks > 1)
      out += options_.colour ? "  (lighter: a later chunk)" : "  (lower case: every second chunk of a stage)";
    return out + "\n";
  }

  const PipelineTimeline& line_;
  const TextPictureOptions& options_;
  TimelineGrid grid_;
  std::size_t label_ = 0;
  double column_ = 0;  // how long one takes
};

}  // namespace

std::string text_picture(const PipelineTimeline& line, const TextPictureOptions& options) {
  return TextPicture(line, options).text();
}

}  // namespace lockstep
