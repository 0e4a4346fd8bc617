#include "spec/step/residency.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace lockstep {

namespace {

// Which units are whole during each of the phases that read weights, and the gathers and releases that make it so.
class Residency {
 public:
  Residency(const std::vector<Action>& list, const StepShape& shape) : shape_(shape) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!is_phase(list[i].kind)) continue;
      std::vector<int> units = units_read(list[i], shape);
      if (!units.empty()) readers_.push_back({i, list[i].micro, std::move(units)});
    }
    whole_.reserve(readers_.size());
    for (std::size_t r = 0; r < readers_.size(); ++r) whole_.push_back(needed_at(r));
    keep();
  }

  std::vector<Action> woven_into(const std::vector<Action>& list) const {
    std::vector<Action> out;
    std::vector<bool> now(static_cast<std::size_t>(shape_.units), false);
    std::size_t r = 0;
    if (!readers_.empty()) change(now, 0, out);
    for (std::size_t i = 0; i < list.size(); ++i) {
      out.push_back(list[i]);
      if (r < readers_.size() && readers_[r].at == i) change(now, ++r, out);
    }
    return out;
  }

 private:
  using Units = std::vector<bool>;
  struct Reader {
    std::size_t at;
    int micro;
    std::vector<int> units;
  };

  bool reads(std::size_t reader, int unit) const {
    const std::vector<int>& units = readers_[reader].units;
    return std::find(units.begin(), units.end(), unit) != units.end();
  }

  // What a phase reads, and what the next one does that reads anything else.
  Units needed_at(std::size_t r) const {
    Units units(static_cast<std::size_t>(shape_.units), false);
    for (const int u : readers_[r].units) units[u] = true;
    for (std::size_t next = r + 1; next < readers_.size(); ++next) {
      bool another = false;
      for (const int u : readers_[next].units) another |= !reads(r, u);
      if (!another) continue;
      for (const int u : readers_[next].units) units[u] = true;
      break;
    }
    return units;
  }

  void keep() {
    if (shape_.kept_units == 0) return;
    std::map<std::pair<int, int>, std::pair<std::size_t, std::size_t>> read;  // by unit and micro-batch: first and last
    for (std::size_t r = 0; r < readers_.size(); ++r)
      for (const int u : readers_[r].units) read.try_emplace({u, readers_[r].micro}, r, r).first->second.second = r;
    for (const int u : kept_units(shape_)) {
      std::size_t filled = 0;  // readers before it are done with
      for (auto one = read.lower_bound({u, 0}); one != read.end() && one->first.first == u; ++one) {
        const auto& [begin, end] = one->second;
        for (std::size_t r = std::max(begin, filled); r <= end; ++r) whole_[r][u] = true;
        filled = std::max(filled, end + 1);
      }
    }
  }

  // From what is whole now to what is to be whole at a reader, or after the last of them. What it needs itself first.
  void change(Units& now, std::size_t reader, std::vector<Action>& out) const {
    const Units then = reader < whole_.size() ? whole_[reader] : Units(now.size(), false);
    for (int u = 0; u < shape_.units; ++u)
      if (now[u] && !then[u]) out.push_back({ActionKind::release, u});
    for (const bool needed : {true, false})
      for (int u = 0; u < shape_.units; ++u)
        if (!now[u] && then[u] && reads(reader, u) == needed) out.push_back({ActionKind::gather, u});
    now = then;
  }

  const StepShape& shape_;
  std::vector<Reader> readers_;
  std::vector<Units> whole_;  // by reader
};

}  // namespace

std::vector<int> kept_units(const StepShape& shape) {
  std::vector<int> kept;
  for (int u = shape.last() - 1; u >= 0 && std::ssize(kept) < shape.kept_units; --u)
    if (shape.has(u)) kept.push_back(u);
  return kept;
}

std::vector<Action> with_gathers(const std::vector<Action>& list, const StepShape& shape) {
  return Residency(list, shape).woven_into(list);
}

}  // namespace lockstep
