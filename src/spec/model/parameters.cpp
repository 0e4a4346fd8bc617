#include "spec/model/parameters.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

namespace {
std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}
}  // namespace

std::int64_t LogicalTensor::elements() const { return product(shape); }
std::int64_t StoredParameter::elements() const { return product(shape); }

Run joined(Run run) {
  if (run.here.apart() || run.there.apart()) return run;
  return Run::flat(run.here.begin, run.there.begin, run.elements());
}

std::vector<Run> clipped(const Run& run, std::int64_t begin, std::int64_t end) {
  std::vector<Run> all;
  const std::int64_t pitch = std::max(run.here.pitch, run.row());
  // Rows [first, last) and of each the elements [from, to).
  const auto add = [&](std::int64_t first, std::int64_t last, std::int64_t from, std::int64_t to) {
    if (first >= last || from >= to) return;
    all.push_back(joined(
        {.here = {run.here.begin + first * pitch + from, to - from, run.here.pitch, last - first},
         .there = {run.there.begin + first * run.there.pitch + from, to - from, run.there.pitch, last - first}}));
  };
  begin = std::max(begin - run.here.begin, std::int64_t{0});
  end = std::min(end - run.here.begin, run.rows() * pitch);
  if (begin >= end || run.elements() == 0) return all;
  const std::int64_t first = begin / pitch, last = (end - 1) / pitch;  // rows that are touched
  const std::int64_t from = std::min(begin - first * pitch, run.row()), to = std::min(end - last * pitch, run.row());
  if (first == last) {
    add(first, first + 1, from, to);
    return all;
  }
  const std::int64_t whole_from = from == 0 ? first : first + 1, whole_to = to == run.row() ? last + 1 : last;
  if (from > 0) add(first, first + 1, from, run.row());
  add(whole_from, whole_to, 0, run.row());
  if (to < run.row()) add(last, last + 1, 0, to);
  return all;
}

std::vector<Run> StoredParameter::runs_of(std::size_t piece) const {
  if (pieces[piece].runs) return *pieces[piece].runs;
  std::int64_t here = 0;
  for (std::size_t p = 0; p < piece; ++p) here += pieces[p].elements();
  return {Run::flat(here, 0, pieces[piece].elements())};
}

int UnitLayout::add(StoredParameter parameter) {
  std::int64_t inside = 0, cut = 0;
  for (std::size_t p = 0; p < parameter.pieces.size(); ++p)
    for (const Run& run : parameter.runs_of(p)) {
      LOCKSTEP_CHECK(run.here.begin >= 0 && run.here.end() <= parameter.elements(), "{}: {} has a run outside", name_,
                     parameter.pieces[p].name);
      inside += run.elements();
    }
  for (const ParameterPiece& piece : parameter.pieces) cut += piece.runs ? 1 : 0;
  const std::int64_t elements = parameter.tied ? 0 : parameter.elements();
  LOCKSTEP_CHECK(cut > 0 ? inside <= elements : inside == elements,
                 "{}: a parameter of {} elements made of pieces of {}", name_, parameter.elements(), inside);
  parameters_.push_back(std::move(parameter));
  place();
  return static_cast<int>(parameters_.size()) - 1;
}

void UnitLayout::place() {
  offsets_.assign(parameters_.size(), 0);
  std::int64_t next = 0;
  const auto place_those = [&](auto&& chosen) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (chosen(parameters_[i])) {
        offsets_[i] = next;
        next += round_up(parameters_[i].elements(), kParameterAlignment);
      }
    return next;
  };
  decayed_ = place_those([](const StoredParameter& p) { return !p.frozen && !p.tied && p.shape.size() >= 2; });
  owned_ = place_those([](const StoredParameter& p) { return !p.frozen && !p.tied && p.shape.size() < 2; });
  elements_ = place_those([](const StoredParameter& p) { return !p.frozen && p.tied; });
  next = 0;
  frozen_ = place_those([](const StoredParameter& p) { return p.frozen && !p.tied; });
}

}  // namespace lockstep
