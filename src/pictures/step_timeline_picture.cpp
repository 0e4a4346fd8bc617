#include "pictures/step_timeline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "pictures/svg_page.h"
#include "pictures/timeline_grid.h"

namespace lockstep {

namespace {

using Kind = TimelineSpan::Kind;

constexpr double kLeft = 150, kGap = 5, kMarkPixels = 70, kNarrowest = 1.2, kTellApart = 4, kTouching = 0.8;
constexpr Kind kAxes[] = {Kind::tp, Kind::cp, Kind::pp, Kind::dp};

std::string fill_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return std::string(fills::blue);
    case Kind::backward_input:
      return std::string(fills::green);
    case Kind::backward_weight:
      return lighter(fills::green, 0.5);
    case Kind::update:
      return std::string(fills::yellow);
    case Kind::tp:
      return std::string(fills::pink);
    case Kind::cp:
      return std::string(fills::purple);
    case Kind::pp:
      return std::string(fills::teal);
    case Kind::dp:
      return std::string(fills::orange);
  }
  return {};
}

std::string_view words_of(Kind kind) {
  constexpr std::string_view kWords[] = {
      "forward", "backward, inputs", "backward, weights", "norm and update", "tp", "cp", "pp", "dp"};
  return kWords[static_cast<int>(kind)];
}

class Drawing {
 public:
  Drawing(std::span<const TimelineRow> rows, const StepTimelineOptions& options) : rows_(rows), o_(options) {
    for (const TimelineRow& row : rows)
      for (const TimelineSpan& span : row.spans) {
        has_[static_cast<std::size_t>(span.kind)] = true;
        horizon_ = std::max(horizon_, span.end);
      }
  }

  std::string text() {
    page_.longest = kLeft + o_.width - SvgPage::kMargin;
    page_.title(o_.title);
    page_.subtitle(o_.subtitle);
    legend();
    page_.y += 16;
    const double top = page_.y;
    grid(top, top + height());
    for (const TimelineRow& row : rows_) draw(row);
    axis();
    page_.reach(kLeft + o_.width + 8, page_.y);
    return page_.str();
  }

 private:
  double x(double time) const { return kLeft + (horizon_ > 0 ? time / horizon_ * o_.width : 0); }
  bool has(Kind kind) const { return has_[static_cast<std::size_t>(kind)]; }
  double interval() const { return round_interval(kMarkPixels / o_.width * horizon_ * 1e3); }  // ms
  double row_height() const {
    double all = o_.compute_height;
    for (const Kind axis : kAxes)
      if (has(axis)) all += o_.message_height + 1;
    return all;
  }
  double height() const {
    double all = 0;
    for (const TimelineRow& row : rows_) all += row.gap_before + row_height() + kGap;
    return all;
  }

  void grid(double top, double bottom) {
    for (int i = 0; horizon_ > 0 && i * interval() <= horizon_ * 1e3; ++i)
      page_.line(x(i * interval() / 1e3), top - 4, x(i * interval() / 1e3), bottom + 2, "mark");
  }

  void draw(const TimelineRow& row) {
    page_.y += row.gap_before;
    const bool two_lines = !row.detail.empty();
    const double middle = page_.y + row_height() / 2;
    page_.text(SvgPage::kMargin, two_lines ? middle - 1 : middle + 4, "ink bold", row.label);
    if (two_lines) page_.text(SvgPage::kMargin, middle + 13, "soft small", row.detail);
    page_.rect({kLeft, page_.y, o_.width, o_.compute_height}, "rest");
    const auto computes = [](const TimelineSpan& span) { return !is_message(span.kind); };
    cells(row, computes, page_.y, o_.compute_height);
    labels(row);
    double y = page_.y + o_.compute_height + 1;
    for (const Kind axis : kAxes) {
      if (!has(axis)) continue;
      page_.rect({kLeft, y, o_.width, o_.message_height}, "rest");
      cells(
          row, [&](const TimelineSpan& span) { return span.kind == axis; }, y, o_.message_height);
      y += o_.message_height + 1;
    }
    page_.y += row_height() + kGap;
  }

  // One label for a run of spans that have it in common and go the same way.
  void labels(const TimelineRow& row) {
    const TimelineSpan* first = nullptr;
    double end = 0;
    const auto flush = [&] {
      if (!first || first->label.empty()) return;
      const double width = text_width(first->label, 11) + 6, middle = (x(first->begin) + x(end)) / 2;
      if (x(end) - x(first->begin) < width) return;
      page_.rect({middle - width / 2, page_.y + 1, width, o_.compute_height - 2}, "thin", fill_of(first->kind));
      page_.text(middle, page_.y + o_.compute_height / 2 + 4, "in", first->label);
    };
    for (const TimelineSpan& span : row.spans) {
      if (is_message(span.kind)) continue;
      const bool same =
          first && first->label == span.label && (first->kind == Kind::forward) == (span.kind == Kind::forward);
      if (!same) flush(), first = &span;
      end = span.end;
    }
    flush();
  }

  // Those narrower than can be told apart are drawn as one with the next of their kind where they touch it.
  template <class Which>
  void cells(const TimelineRow& row, const Which& which, double y, double height) {
    std::optional<TimelineSpan> narrow;
    const auto flush = [&] {
      if (narrow) page_.rect({x(narrow->begin), y, wide(*narrow), height}, "thin", fill_of(narrow->kind));
      narrow.reset();
    };
    for (const TimelineSpan& span : row.spans) {
      if (!which(span)) continue;
      const bool is_narrow = x(span.end) - x(span.begin) < kTellApart;
      if (narrow && is_narrow && narrow->kind == span.kind && x(span.begin) - x(narrow->end) < kTouching) {
        narrow->end = span.end;
        continue;
      }
      flush();
      if (is_narrow)
        narrow = span;
      else
        page_.cell({x(span.begin), y, wide(span), height}, fill_of(span.kind), is_message(span.kind) ? span.label : "",
                   fmt::format("{}: {:.3f} to {:.3f} ms", span.tip, span.begin * 1e3, span.end * 1e3));
    }
    flush();
  }
  double wide(const TimelineSpan& span) const {
    return std::max(x(span.end) - x(span.begin), is_message(span.kind) ? kNarrowest : 0);
  }

  void axis() {
    for (int i = 0; horizon_ > 0 && i * interval() <= horizon_ * 1e3; ++i)
      page_.text(x(i * interval() / 1e3), page_.y + 14, "soft mid", fmt::format("{:g}", i * interval()));
    page_.text(SvgPage::kMargin, page_.y + 14, "soft", "ms");
    page_.y += 18;
  }

  void legend() {
    page_.y += 8;
    page_.begin_keys(SvgPage::kMargin);
    bool messages = false;
    for (int k = 0; k < kTimelineKinds; ++k) {
      const Kind kind = static_cast<Kind>(k);
      if (!has(kind)) continue;
      if (is_message(kind) && !std::exchange(messages, true)) page_.remark("messages:");
      page_.key(fill_of(kind), words_of(kind));
    }
  }

  std::span<const TimelineRow> rows_;
  const StepTimelineOptions& o_;
  std::array<bool, kTimelineKinds> has_{};
  double horizon_ = 0;
  SvgPage page_;
};

// The length of what the spans cover together.
double covered(std::vector<std::pair<double, double>> spans) {
  std::ranges::sort(spans);
  double sum = 0, until = 0;
  for (const auto& [begin, end] : spans) {
    sum += std::max(end - std::max(begin, until), 0.0);
    until = std::max(until, end);
  }
  return sum;
}

}  // namespace

std::string step_timeline_picture(std::span<const TimelineRow> rows, const StepTimelineOptions& options) {
  return Drawing(rows, options).text();
}

MessageTime message_time(const TimelineRow& row) {
  std::vector<std::pair<double, double>> computing, sending, both;
  for (const TimelineSpan& span : row.spans) {
    (is_message(span.kind) ? sending : computing).emplace_back(span.begin, span.end);
    both.emplace_back(span.begin, span.end);
  }
  return {.exposed = covered(both) - covered(computing), .all = covered(sending)};
}

}  // namespace lockstep
