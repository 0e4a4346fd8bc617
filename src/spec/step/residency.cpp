#include "spec/step/residency.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
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
    find_runs();
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
  struct Run {
    std::size_t first, last;               // readers
    std::map<int, std::size_t> last_read;  // by unit of the bundle
  };

  // What a phase reads, and what the next ones do that read other bundles, each of them one more.
  std::set<int> bundles_at(std::size_t r, std::size_t all) const {
    std::set<int> bundles;
    for (const int u : readers_[r].units) bundles.insert(shape_.bundle_of(u));
    int ahead = 0;
    for (std::size_t next = r + 1; next < readers_.size() && ahead < shape_.prefetch && bundles.size() < all; ++next) {
      bool another = false;
      for (const int u : readers_[next].units) another |= bundles.insert(shape_.bundle_of(u)).second;
      ahead += another;
    }
    return bundles;
  }

  // Phases that read units of a bundle, with none among them that could do without it: the bundle is gathered for all
  // of them at once.
  void find_runs() {
    std::set<int> all;
    for (const Reader& reader : readers_)
      for (const int u : reader.units) all.insert(shape_.bundle_of(u));
    for (std::size_t r = 0; r < readers_.size(); ++r) bundles_.push_back(bundles_at(r, all.size()));
    for (std::size_t r = 0; r < readers_.size(); ++r)
      for (const int u : readers_[r].units) {
        const int bundle = shape_.bundle_of(u);
        std::vector<Run>& runs = runs_[bundle];
        const bool goes_on =
            !runs.empty() && (runs.back().last + 1 >= r || bundles_[runs.back().last + 1].contains(bundle));
        if (!goes_on) runs.push_back({.first = r, .last = r, .last_read = {}});
        runs.back().last = r;
        runs.back().last_read[u] = r;
      }
  }
  // The run that a phase is in, or that comes next after it; null: there is none.
  const Run* run_at(std::size_t r, int bundle) const {
    const std::vector<Run>& runs = runs_.at(bundle);
    const auto run = std::ranges::lower_bound(runs, r, {}, &Run::last);
    return run == runs.end() ? nullptr : &*run;
  }

  // All of the bundle that this run reads and has not read for the last time.
  Units needed_at(std::size_t r) const {
    Units units(static_cast<std::size_t>(shape_.units), false);
    for (const int bundle : bundles_[r])
      if (const Run* run = run_at(r, bundle))
        for (const auto& [unit, last_read] : run->last_read)
          if (last_read >= r) units[static_cast<std::size_t>(unit)] = true;
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

  // From what is whole now to what is to be whole at a reader, or after the last of them. What is needed first comes
  // first, and units of a bundle follow each other.
  void change(Units& now, std::size_t reader, std::vector<Action>& out) const {
    const Units then = reader < whole_.size() ? whole_[reader] : Units(now.size(), false);
    std::map<std::pair<std::size_t, int>, std::vector<int>> gathered;  // by the bundle's next reader, and the bundle
    for (int u = 0; u < shape_.units; ++u) {
      if (now[u] && !then[u]) out.push_back({ActionKind::release, u});
      if (now[u] || !then[u]) continue;
      const int bundle = shape_.bundle_of(u);
      gathered[{std::max(reader, run_at(reader, bundle)->first), bundle}].push_back(u);
    }
    for (const auto& [when, units] : gathered)
      for (const int u : units) out.push_back({ActionKind::gather, u});
    now = then;
  }

  const StepShape& shape_;
  std::vector<Reader> readers_;
  std::vector<std::set<int>> bundles_;    // by reader: those that are whole
  std::map<int, std::vector<Run>> runs_;  // by bundle
  std::vector<Units> whole_;              // by reader
};

}  // namespace

std::vector<int> kept_units(const StepShape& shape) {
  std::vector<int> kept;
  for (int u = shape.last() - 1; u >= 0 && std::ssize(kept) < shape.kept_units; --u)
    if (shape.has(u)) kept.push_back(u);
  return kept;
}

std::vector<Action> with_bundled_reductions(const std::vector<Action>& list, const StepShape& shape) {
  if (shape.bundles.empty()) return list;
  std::map<std::pair<int, int>, int> left;  // by bundle and micro-batch
  for (const Action& a : list)
    if (a.kind == ActionKind::reduce) ++left[{shape.bundle_of(a.unit), a.micro}];
  std::map<std::pair<int, int>, std::vector<Action>> held;
  std::vector<Action> out;
  for (const Action& a : list) {
    if (a.kind != ActionKind::reduce) {
      out.push_back(a);
      continue;
    }
    const std::pair key(shape.bundle_of(a.unit), a.micro);
    held[key].push_back(a);
    if (--left[key] > 0) continue;
    out.insert(out.end(), held[key].begin(), held[key].end());
  }
  return out;
}

std::vector<Action> with_gathers(const std::vector<Action>& list, const StepShape& shape) {
  return Residency(list, shape).woven_into(list);
}

}  // namespace lockstep
