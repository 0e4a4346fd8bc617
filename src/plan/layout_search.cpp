#include "plan/layout_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "spec/run/run_extent.h"
#include "train/run_data.h"

namespace lockstep {

namespace {

constexpr std::int64_t kFewBlocks = 40'000;    // combinations times blocks of which all are timed in full
constexpr std::int64_t kMostTokens = 1 << 17;  // of a micro-batch of several samples: products gain nothing by more
constexpr double kRoom = 1.15;                 // composed bytes may be that much too many

std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

// Schedules of a pipeline, with the chunks of each that the layers allow.
std::vector<std::pair<ScheduleKind, std::int64_t>> schedules_of(std::int64_t pp, std::int64_t layers) {
  if (pp == 1) return {{ScheduleKind::one_f_one_b, 1}};
  std::vector<std::pair<ScheduleKind, std::int64_t>> all{{ScheduleKind::one_f_one_b, 1}, {ScheduleKind::zb_h1, 1}};
  if (2 * pp <= layers + 2) all.emplace_back(ScheduleKind::zb_v, 2);
  for (std::int64_t chunks = 2; chunks <= 8 && chunks * pp <= layers + 2; chunks *= 2)
    all.emplace_back(ScheduleKind::interleaved, chunks);
  return all;
}

std::string limit_of(const StepPrediction& p) {
  std::string limit = "computing";
  double most = 0.03 * p.step_seconds;  // less is no limit
  for (const MeshAxis axis : kMeshAxes) {
    const double waited = p.exposed[static_cast<std::size_t>(axis)];
    if (waited <= most) continue;
    most = waited;
    limit = axis == MeshAxis::pp ? "the bubble" : fmt::format("messages of {}", name_of(axis));
  }
  if (p.offload >= 0.999 * p.step_seconds) return "the link to the host";
  return limit;
}

// Each number once, on the cores that there are. The first failure is thrown, when all threads are done.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failed;
  std::mutex failing;
  const auto some = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(failing);
      if (!failed) failed = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 1; t < std::min(8u, std::thread::hardware_concurrency()); ++t) threads.emplace_back(some);
    some();
  }
  if (failed) std::rethrow_exception(failed);
}

// Of the fastest that gather weights (ZeRO 3): the same with several blocks in one call, and with more of them ahead.
std::vector<LayoutChoice> fewer_calls(const std::vector<std::optional<TimedLayout>>& results) {
  constexpr std::size_t kTried = 3;
  std::vector<const TimedLayout*> gathering;
  for (const auto& result : results)
    if (result && result->fits && result->choice.layout.zero == 3) gathering.push_back(&*result);
  std::ranges::stable_sort(gathering, {}, [](const TimedLayout* t) { return t->predicted.step_seconds; });
  std::vector<LayoutChoice> others;
  for (std::size_t i = 0; i < gathering.size() && i < kTried; ++i) {
    LayoutChoice choice = gathering[i]->choice;
    choice.layout.prefetch = 2;
    others.push_back(choice);
    for (const std::int64_t mebibytes : {256, 1024}) {
      choice.layout.prefetch = 1;
      choice.layout.wrap = WrapRule::of_size(mebibytes);
      others.push_back(choice);
    }
  }
  return others;
}

// Whether the same choice with its state on the device, which layout_choices lists shortly before it, has room.
bool fits_without(const std::vector<LayoutChoice>& choices, const ComposedSpace& space, std::size_t index,
                  const MachineSpec& machine) {
  LayoutChoice without = choices[index];
  without.offload = false;
  for (std::size_t i = index; i-- > 0 && index - i <= 4;)
    if (choices[i] == without)
      return space.steps[i] && static_cast<double>(space.steps[i]->bytes) < 0.9 * static_cast<double>(machine.memory);
  return false;
}

}  // namespace

LayoutTimer::LayoutTimer(const RunSpec& run, const MachineSpec& machine, const RunData& data)
    : run_(run), machine_(machine), data_(data) {}

std::optional<TimedLayout> LayoutTimer::time(const LayoutChoice& choice) {
  const RunSpec spec = with_choice(run_, choice);
  if (!is_possible(spec)) return std::nullopt;
  const std::vector<Plan> stages = plan_stages(spec, data_);
  const Plan& full = fullest(stages);
  TimedLayout timed{.choice = choice,
                    .predicted = predict_step(spec, machine_, data_, stages),
                    .peak = full.peak + full.outside,
                    .host = full.host,
                    .limit = {}};
  const std::int64_t ranks = machine_.kind == MachineSpec::Kind::threads ? spec.layout.ranks() : 1;
  timed.fits = (machine_.memory <= 0 || timed.peak * ranks <= machine_.memory) &&
               (machine_.host_memory <= 0 || !choice.offload || timed.host <= machine_.host_memory);
  timed.limit = limit_of(timed.predicted);
  ++timed_;
  return timed;
}

std::vector<std::optional<TimedLayout>> LayoutTimer::time_all(const std::vector<LayoutChoice>& choices) {
  std::vector<std::optional<TimedLayout>> all(choices.size());
  in_parallel(choices.size(), [&](std::size_t i) { all[i] = time(choices[i]); });
  return all;
}

std::vector<LayoutChoice> layout_choices(const RunSpec& run, const MachineSpec& machine) {
  std::vector<LayoutChoice> all;
  const std::int64_t devices = machine.devices(), batch = run.train.global_batch;
  for (const std::int64_t tp : divisors_of(devices)) {
    if (tp > machine.devices_per_node || run.model.heads % tp != 0) continue;
    for (const std::int64_t cp : divisors_of(devices / tp)) {
      if (cp > 64 || (cp > 1 && run.data.seq / (2 * cp) < 256)) continue;
      for (const std::int64_t pp : divisors_of(devices / tp / cp)) {
        if (pp > run.model.layers + 2) continue;
        const std::int64_t dp = devices / tp / cp / pp;
        if (dp > batch || batch % dp != 0) continue;
        for (const std::int64_t samples : {1, 2, 4, 8, 16}) {
          if (batch / dp % samples != 0) continue;
          if (samples > 1 && samples * run.data.seq / cp > kMostTokens) continue;
          for (const auto& [schedule, chunks] : schedules_of(pp, run.model.layers))
            for (std::int64_t zero = 0; zero <= (dp * cp > 1 ? 3 : 0); ++zero)
              for (const Recompute recompute : kRecomputes)
                for (const bool offload : {false, true})
                  for (const Switch sp : {Switch::on, Switch::off}) {
                    if (tp == 1 && sp == Switch::on) continue;
                    if (offload && (machine.host_memory <= 0 || run.run.device != RunDevice::cuda)) continue;
                    LayoutSpec l = run.layout;
                    l.dp = dp, l.pp = pp, l.cp = cp, l.tp = tp, l.sp = sp;
                    l.micro = batch / dp / samples;
                    l.schedule = schedule, l.chunks = chunks;
                    l.zero = zero, l.grad_sync = LayoutSpec::usual_sync(zero);
                    all.push_back({.layout = l, .recompute = recompute, .offload = offload});
                  }
        }
      }
    }
  }
  return all;
}

ComposedSpace compose_all(const RunSpec& run, const MachineSpec& machine, UnitPrices& prices) {
  ComposedSpace space{.choices = layout_choices(run, machine), .steps = {}};
  space.steps.resize(space.choices.size());
  // A shape of units that cannot be is not asked for again.
  std::mutex mutex;
  std::set<std::pair<std::int64_t, std::int64_t>> impossible;  // tp and cp
  in_parallel(space.choices.size(), [&](std::size_t i) {
    const LayoutChoice& choice = space.choices[i];
    const std::pair shape(choice.layout.tp, choice.layout.cp);
    {
      const std::lock_guard lock(mutex);
      if (impossible.contains(shape)) return;
    }
    try {
      space.steps[i] = compose(run, choice, prices);
    } catch (const UserError&) {
      const std::lock_guard lock(mutex);
      impossible.insert(shape);
    }
  });
  space.shapes = static_cast<std::int64_t>(prices.shapes());
  return space;
}

std::vector<std::size_t> smallest_of(const ComposedSpace& space) {
  constexpr std::ptrdiff_t kMost = 8;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < space.choices.size(); ++i)
    if (space.steps[i]) all.push_back(i);
  const auto few = std::min(kMost, std::ssize(all));
  std::ranges::partial_sort(all, all.begin() + few, {},
                            [&](std::size_t i) { return std::pair(space.steps[i]->bytes, i); });
  all.resize(static_cast<std::size_t>(few));
  return all;
}

LayoutSearch search_layouts(LayoutTimer& timer, const ComposedSpace& space, const SearchOptions& options) {
  const RunSpec& run = timer.run();
  const MachineSpec& machine = timer.machine();
  LayoutSearch search;
  struct Ranked {
    double seconds;
    std::int64_t bytes;
    std::size_t index;
  };
  const std::vector<LayoutChoice>& choices = space.choices;
  search.combinations = static_cast<std::int64_t>(choices.size());
  std::vector<Ranked> ranked;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (!space.steps[i]) {
      ++search.impossible;
      continue;
    }
    const ComposedStep& step = *space.steps[i];
    if (machine.memory > 0 && static_cast<double>(step.bytes) > kRoom * static_cast<double>(machine.memory))
      ++search.too_large;
    else
      ranked.push_back({step.seconds, step.bytes, i});
  }
  search.shapes = space.shapes;
  std::ranges::stable_sort(ranked, {}, &Ranked::seconds);

  std::vector<LayoutChoice> timed = options.also;
  const bool few = std::ssize(ranked) * run.model.layers <= kFewBlocks;
  const std::size_t most = few ? ranked.size() : static_cast<std::size_t>(options.most_timed);
  // Of choices that differ in the state that is sharded or moved alone, the memory decides: the first few of each mesh.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, int> of_mesh;
  for (const Ranked& r : ranked) {
    if (timed.size() >= most + options.also.size()) break;
    const LayoutChoice& c = choices[r.index];
    if (c.offload && fits_without(choices, space, r.index, machine)) continue;
    int& count = of_mesh[{c.layout.dp, c.layout.pp, c.layout.cp, c.layout.tp}];
    if (!few && ++count > options.most_timed / 4) continue;
    if (is_possible(with_choice(run, c)))
      timed.push_back(c);
    else
      ++search.impossible;
  }
  std::vector<std::optional<TimedLayout>> results = timer.time_all(timed);
  // Composed bytes are estimates: where what was timed is too large, those that need less are.
  const auto fitting = [&] { return std::ranges::count_if(results, [](const auto& r) { return r && r->fits; }); };
  if (fitting() < options.wanted && !few) {
    std::vector<LayoutChoice> smaller;
    for (const Ranked& r : ranked) {
      if (std::ssize(smaller) >= options.most_timed) break;
      const bool roomy = static_cast<double>(r.bytes) < 0.9 * static_cast<double>(machine.memory);
      if (!roomy || std::ranges::find(timed, choices[r.index]) != timed.end()) continue;
      if (choices[r.index].offload && fits_without(choices, space, r.index, machine)) continue;
      if (is_possible(with_choice(run, choices[r.index]))) smaller.push_back(choices[r.index]);
    }
    for (auto& result : timer.time_all(smaller)) results.push_back(std::move(result));
  }
  if (fitting() == 0) {
    std::vector<LayoutChoice> least_bytes;
    for (const std::size_t i : smallest_of(space)) least_bytes.push_back(choices[i]);
    for (auto& result : timer.time_all(least_bytes)) results.push_back(std::move(result));
  }
  for (auto& result : timer.time_all(fewer_calls(results))) results.push_back(std::move(result));
  for (const auto& result : results)
    if (result && result->fits) search.best.push_back(*result);
  std::ranges::stable_sort(search.best, {}, [](const TimedLayout& t) { return t.predicted.step_seconds; });
  const auto same = [](const TimedLayout& a, const TimedLayout& b) { return a.choice == b.choice; };
  search.best.erase(std::unique(search.best.begin(), search.best.end(), same), search.best.end());
  if (std::ssize(search.best) > options.wanted) search.best.resize(static_cast<std::size_t>(options.wanted));
  // Plain dp: what fits with the least of ZeRO, then of recomputation.
  for (std::int64_t zero = 0; zero <= 3 && !search.plain_dp; ++zero)
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      if (machine.devices() > run.train.global_batch || run.train.global_batch % machine.devices() != 0) break;
      LayoutSpec l = run.layout;
      l.dp = machine.devices(), l.pp = l.cp = l.tp = 1;
      l.sp = Switch::off, l.schedule = ScheduleKind::one_f_one_b, l.chunks = 1;
      l.zero = machine.devices() > 1 ? zero : 0, l.grad_sync = LayoutSpec::usual_sync(l.zero);
      l.micro = run.train.global_batch / l.dp;
      const std::optional<TimedLayout> plain = timer.time({.layout = l, .recompute = recompute});
      if (plain && plain->fits) search.plain_dp = plain;
      if (search.plain_dp || machine.devices() == 1) break;
    }
  search.timed = timer.timed();
  return search;
}

}  // namespace lockstep
