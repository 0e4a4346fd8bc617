#include "pictures/step_picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

namespace {

class Picture {
 public:
  explicit Picture(const StepShape& shape)
      : shape_(shape), rows_(shape.units), whole_(shape.units, false), sent_(shape.units, '\0') {}

  void draw(const Action& a) {
    switch (a.kind) {
      case ActionKind::forward:
        return column(a, 'F');
      case ActionKind::backward_input:
        return column(a, 'I');
      case ActionKind::backward_weight:
        return column(a, 'W');
      case ActionKind::gather:
      case ActionKind::release:
        whole_[a.unit] = a.kind == ActionKind::gather;
        return;
      case ActionKind::reduce:
        if (drawn(a)) sent_[a.unit] = 's';
        return;
      case ActionKind::norm:
        return everywhere('N');
      case ActionKind::update:
        return column(a, 'U');
      case ActionKind::publish:
        sent_[a.unit] = 'p';
        return;
      default:
        if (is_handed_on(a.kind)) sent_[a.unit] = is_send(a.kind) ? '>' : '<';
        return;
    }
  }

  std::string text(std::span<const std::string> names) const {
    std::size_t width = 0;
    for (const std::string& name : names) width = std::max(width, name.size());
    std::string text;
    for (int u = 0; u < shape_.units; ++u)
      if (shape_.has(u) || shape_.has_copy(u)) text += fmt::format("{:<{}}  {}\n", names[u], width, rows_[u]);
    return text;
  }

 private:
  bool drawn(const Action& a) const { return a.micro <= 0 || a.micro == shape_.micro - 1; }

  void column(const Action& a, char letter) {
    if (!drawn(a)) return;
    if (a.micro != micro_ && micro_ >= 0) everywhere(a.micro < 0 ? ' ' : '|');
    micro_ = a.micro;
    for (int u = 0; u < shape_.units; ++u) {
      const char other = sent_[u] ? sent_[u] : whole_[u] ? '=' : '.';
      rows_[u] += u == a.unit ? letter : other;
      sent_[u] = '\0';
    }
  }
  void everywhere(char letter) {
    for (std::string& row : rows_) row += letter;
    if (letter == 'N') micro_ = -1;
  }

  StepShape shape_;
  std::vector<std::string> rows_;
  std::vector<bool> whole_;
  std::vector<char> sent_;  // in the column to come
  int micro_ = -1;
};

}  // namespace

std::string picture_of(const std::vector<Action>& actions, const StepShape& shape,
                       std::span<const std::string> unit_names) {
  Picture picture(shape);
  for (const Action& action : actions) picture.draw(action);
  return picture.text(unit_names);
}

}  // namespace lockstep
