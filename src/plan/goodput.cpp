#include "plan/goodput.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "plan/save_cadence.h"

namespace lockstep {

namespace {

constexpr double kNoEvent = std::numeric_limits<double>::infinity();

// One duration, from event to event.
class SimulatedRun {
 public:
  SimulatedRun(const GoodputSpec& spec, std::int64_t repeat)
      : spec_(spec),
        key_(random_key(spec.seed, "goodput")),
        repeat_(static_cast<std::uint64_t>(repeat)),
        nodes_(spec.nodes()),
        node_rate_(spec.failures_per_second() / static_cast<double>(nodes_)),
        available_(nodes_ + spec.spare_nodes),
        active_(nodes_) {
    draw();
  }

  GoodputOutcome run() {
    while (now_ < spec_.duration_seconds) {
      const End end = train();
      if (end != End::duration) recover(end == End::failure);
    }
    result_.goodput = static_cast<double>(result_.steps) * spec_.step_seconds / spec_.duration_seconds;
    return result_;
  }

 private:
  enum class End { done, failure, duration };

  // The next gap, in units of 1/rate: the rate may change before it has passed.
  void draw() {
    const Philox4 words = philox(key_, static_cast<std::uint64_t>(result_.failures), repeat_);
    const std::uint64_t bits = (static_cast<std::uint64_t>(words[1]) << 32 | words[0]) >> 11;
    gap_ = -std::log((static_cast<double>(bits) + 0.5) * 0x1p-53);  // neither 0 nor 1: the gap is finite and above 0
  }

  // Lets so many seconds pass with the active nodes at risk, or fewer if something ends them. Adds them to `spent`.
  End pass(double seconds, double& spent) {
    const double rate = node_rate_ * static_cast<double>(active_);
    const double failure = rate > 0 ? gap_ / rate : kNoEvent, left = spec_.duration_seconds - now_;
    const double passed = std::min({seconds, failure, left});
    spent += passed;
    if (passed == left) {
      now_ = spec_.duration_seconds;
      return End::duration;
    }
    now_ += passed;
    gap_ = std::max(0.0, gap_ - passed * rate);
    if (passed == seconds) return End::done;
    ++result_.failures;
    --available_;
    --active_;
    repairs_.push_back(now_ + spec_.detect_seconds + spec_.repair_seconds);
    draw();
    return End::failure;
  }

  void collect_repaired() {
    for (; !repairs_.empty() && repairs_.front() <= now_; repairs_.pop_front()) ++available_;
  }

  // Nodes that a run can have when this many are available; 0: it has to wait.
  std::int64_t usable(std::int64_t available) const {
    if (available >= nodes_) return nodes_;
    return spec_.shrink ? available / spec_.nodes_per_replica * spec_.nodes_per_replica : 0;
  }

  // When a shrunk run will be able to have more nodes.
  double grows_at() const {
    for (std::size_t i = 0; active_ < nodes_ && i < repairs_.size(); ++i)
      if (usable(available_ + static_cast<std::int64_t>(i) + 1) > active_)
        return repairs_[i] < spec_.duration_seconds ? repairs_[i] : kNoEvent;
    return kNoEvent;
  }

  // Runs steps from the newest checkpoint on disk until a failure, the end, or a save after which it can grow (done).
  End train() {
    collect_repaired();
    const double step = spec_.step_seconds * static_cast<double>(nodes_) / static_cast<double>(active_);
    const SaveCadence cadence{
        .step = step, .every = spec_.save_every, .stall = spec_.save_stall_seconds, .write = spec_.save_write_seconds};
    const double grows = grows_at();
    const std::int64_t last_save = grows < kNoEvent ? cadence.save_at_or_after(grows - now_) : 0;
    double seconds = 0;
    End end = pass(last_save > 0 ? cadence.end_of_save(last_save) : kNoEvent, seconds);
    SaveCadence::Progress at = end == End::done ? cadence.after(last_save) : cadence.at(seconds);
    if (end == End::done) {
      end = pass(spec_.save_write_seconds, at.saving_seconds);
      if (end != End::failure) at.steps_on_disk = at.steps;
    }
    const std::int64_t kept = end == End::failure ? at.steps_on_disk : at.steps;
    if (end == End::failure) result_.saves_lost += at.saves - at.steps_on_disk / spec_.save_every;
    result_.steps += kept;
    result_.lost.saves += at.saving_seconds;
    result_.lost.shrunk += static_cast<double>(kept) * (step - spec_.step_seconds);
    result_.lost.redone += at.computing_seconds - static_cast<double>(kept) * step;
    return end;
  }

  void recover(bool failed) {
    for (;; failed = true, ++result_.recoveries_failed) {
      End end = failed ? pass(spec_.detect_seconds, result_.lost.detection) : End::done;
      if (end == End::done) end = wait_for_nodes();
      if (end == End::done) end = pass(spec_.restart_seconds + spec_.load_seconds, result_.lost.restart);
      if (end != End::failure) return;
    }
  }

  End wait_for_nodes() {
    for (;;) {
      collect_repaired();
      if ((active_ = usable(available_)) > 0) return End::done;
      active_ = available_;
      if (const End end = pass(repairs_.front() - now_, result_.lost.waiting); end != End::done) return end;
    }
  }

  const GoodputSpec& spec_;
  const std::uint64_t key_, repeat_;
  const std::int64_t nodes_;
  const double node_rate_;
  std::int64_t available_;      // nodes that work, spares among them
  std::int64_t active_;         // of these, nodes that the run has
  std::deque<double> repairs_;  // when nodes that failed are back, rising
  double now_ = 0, gap_ = 0;
  GoodputOutcome result_;
};

}  // namespace

GoodputOutcome simulate_run(const GoodputSpec& spec, std::int64_t repeat) {
  validate(spec);
  return SimulatedRun(spec, repeat).run();
}

GoodputForecast simulate_goodput(const GoodputSpec& spec) {
  validate(spec);
  GoodputForecast mean;
  std::vector<double> goodputs;
  const double share = 1 / static_cast<double>(spec.repeats);
  for (std::int64_t repeat = 0; repeat < spec.repeats; ++repeat) {
    const GoodputOutcome run = SimulatedRun(spec, repeat).run();
    goodputs.push_back(run.goodput);
    mean.mean += share * run.goodput;
    mean.steps += share * static_cast<double>(run.steps);
    mean.failures += share * static_cast<double>(run.failures);
    mean.recoveries_failed += share * static_cast<double>(run.recoveries_failed);
    mean.saves_lost += share * static_cast<double>(run.saves_lost);
    for (double LostSeconds::*const cause : {&LostSeconds::redone, &LostSeconds::saves, &LostSeconds::detection,
                                             &LostSeconds::waiting, &LostSeconds::restart, &LostSeconds::shrunk})
      mean.lost.*cause += share * run.lost.*cause;
  }
  std::ranges::sort(goodputs);
  const auto quantile = [&](double q) {  // between two values, in proportion
    const double at = q * static_cast<double>(goodputs.size() - 1);
    const std::size_t below = static_cast<std::size_t>(at), above = std::min(below + 1, goodputs.size() - 1);
    return goodputs[below] + (at - static_cast<double>(below)) * (goodputs[above] - goodputs[below]);
  };
  mean.low = quantile(0.05);
  mean.high = quantile(0.95);
  double squares = 0;
  for (const double goodput : goodputs) squares += (goodput - mean.mean) * (goodput - mean.mean);
  mean.deviation = goodputs.size() > 1 ? std::sqrt(squares / static_cast<double>(goodputs.size() - 1)) : 0;
  return mean;
}

}  // namespace lockstep
