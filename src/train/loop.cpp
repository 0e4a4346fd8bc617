#include "train/loop.h"

#include <chrono>
#include <deque>
#include <exception>
#include <utility>

#include "comm/rethrow.h"
#include "optim/learning_rate.h"
#include "spec/model/model_flops.h"
#include "spec/run/run_toml.h"
#include "train/copying.h"
#include "train/loss_spikes.h"
#include "train/run_events.h"
#include "train/run_trace.h"
#include "train/saving.h"
#include "train/tuning.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

BytesByTag bytes_of(const Ledger& ledger, std::int64_t (Ledger::*which)(Tag) const) {
  BytesByTag bytes;
  for (int t = 0; t < kTags; ++t) {
    const Tag tag = static_cast<Tag>(t);
    if (ledger.peak(tag) > 0) bytes.emplace_back(name_of(tag), (ledger.*which)(tag));
  }
  return bytes;
}

StepRecord record_of(TrainingRun& run, const Progress& progress, const Replica::Result& result, double rate,
                     double seconds) {
  const TrainSpec& t = run.spec().train;
  return {.step = progress.step,
          .loss = result.loss,
          .grad_norm = result.norm,
          .lr = rate,
          .seconds = seconds,
          .tokens_per_s = static_cast<double>(run.tokens_a_step()) / seconds,
          .model_flops_per_s =
              model_flops(run.spec().model, t.global_batch, run.data().sample_work(), run.spec().lora) / seconds,
          .updated = result.updated,
          .loss_scale = run.spec().precision.loss_scale.kind == LossScale::Kind::none
                            ? std::nullopt
                            : std::optional(result.loss_scale),
          .overflow = result.overflowed,
          .divergence = result.divergence,
          .compression_error = result.compression_error,
          .arrivals = result.arrivals,
          .changes = result.changes,
          .bytes = bytes_of(run.ledger(), &Ledger::current),
          .peak_bytes = bytes_of(run.ledger(), &Ledger::peak),
          .time = seconds_since_1970()};
}

// What a step chose by timing joins the resolved run file.
void keep_tuning(TrainingRun& run, Progress& progress, Watcher& watcher) {
  const std::optional<TuningSpec> tuning = new_tuning(run.stream());
  if (!tuning) return;
  RunSpec resolved = run.spec();
  resolved.tuning = *tuning;
  progress.run_file = to_toml(resolved);
  watcher.resolved(progress.run_file);
}

// Rank 0 writes it; a disk that does not take it is no reason to end the run.
void write(const std::optional<Trace>& trace, const RunSpec& spec, Watcher& watcher) {
  if (!trace) return;
  const std::size_t steps = trace->steps();
  const std::filesystem::path file = std::filesystem::path(spec.run.out) / "trace.json";
  try {
    write_trace(file, *trace);
    watcher.note(fmt::format("the timeline of {} step{} is in {}", steps, steps == 1 ? "" : "s", file.string()));
  } catch (const EnvironmentError& error) {
    watcher.note(fmt::format("no timeline: {}", error.what()));
  }
}

bool due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

template <class Body>
std::exception_ptr failure_of(const Body& body) {
  try {
    body();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::string newest_text(const Saving& saving) {
  return saving.newest() >= 0 ? fmt::format("the newest checkpoint is of step {}", saving.newest())
                              : std::string("there is no checkpoint");
}

[[noreturn]] void rethrow_after(const std::exception_ptr& failure, const Progress& progress, const Saving& saving) {
  try {
    std::rethrow_exception(failure);
  } catch (...) {
    rethrow_with([&](const char* what) {
      return fmt::format("{}; after step {}: {}", what, progress.step, newest_text(saving));
    });
  }
}

std::string bad_values_text(const RunSpec& spec, const std::string& bad_value, bool good, const Progress& progress,
                            const Saving& saving) {
  const std::string what =
      bad_value.empty() ? fmt::format("step {}: a weight is not finite", progress.step) : bad_value;
  if (!good)
    return fmt::format(
        "{}; weights that are not finite are not saved, {}: lower optim.lr, and resume from that or start over", what,
        newest_text(saving));
  return fmt::format("{}; {}: lower optim.lr{}, and --resume", what, newest_text(saving),
                     spec.sync.takes_local_steps() || spec.layout.unflushed() ? "" : ", or set train.bad_values=skip");
}

}  // namespace

// `events` hears of what happens; of the end of it, train() tells.
static Ending train_steps(TrainingRun& run, Progress& progress, Watcher& watcher, RunEvents& events,
                          const LoopOptions& options) {
  const TrainSpec& t = run.spec().train;
  Saving saving(run, watcher, events, progress);
  // Where steps overlap, a copy empties the pipeline, which changes what is learned: no measurement chooses when.
  const bool copies = !run.steps_overlap() || t.copy_every != kCopyAuto;
  Copying copying(run, watcher, progress, copies ? options.copies : std::nullopt);
  const auto rate_of = [&](std::int64_t step) {
    return learning_rate(run.spec().schedule, run.spec().optimizer.learning_rate, step, t.steps);
  };
  LossSpikeGuard spikes(t, progress);
  const auto first_sample = [&](std::int64_t of) { return spikes.first_sample(progress, of); };
  // After such a step the weights are checked, so none may be begun before it is finished.
  const auto looked_at = [&](std::int64_t step) {
    return due(t.save_every, step) || due(run.spec().run.check_state, step) || run.spec().sparsity.masks_after(step) ||
           (run.data().has_evaluation() && due(t.eval_every, step));
  };

  // Only state that was found good is saved, so that whoever resumes begins with that.
  std::int64_t checked = -1;
  const auto check_state = [&] {
    if (!run.checks_state() || checked == progress.step) return;
    const Spending checking(run.account(), TimeUse::optimizer);
    run.check_state(progress.step);
    checked = progress.step;
  };
  std::string bad_value;  // what is known of it
  // Where steps overlap, what is saved, copied or evaluated is the state after the last backwards of the steps so far.
  const auto bad_stage_text = [&] {
    return fmt::format("step {}: a value is not finite, and its stage updates nothing more", progress.step);
  };
  const auto drain = [&] {
    if (run.drain()) return true;
    if (bad_value.empty()) bad_value = bad_stage_text();
    return false;
  };
  const auto save = [&](const Progress& at) {
    check_state();
    const Spending held(run.account(), TimeUse::save);
    if (run.doing()) run.doing()->enter(DoingKind::saving);
    saving.save(at);
  };

  RunTrace timeline(run.replica(), {.steps = run.spec().run.trace,
                                    .layout = run.spec().layout,
                                    .ranks = run.uncounted_ranks(),
                                    .clock = &events.clock(),
                                    .messages = &run.messages(),
                                    .ledger = &run.ledger(),
                                    .stream = run.stream().runs_ahead() ? &run.stream() : nullptr});
  Ending ending = Ending::finished;
  std::exception_ptr failure;  // that all ranks know of; thrown when the state is saved
  const std::int64_t first = progress.step, first_updates = progress.updates;
  std::int64_t begun = first;
  auto before = Clock::now();            // when the device could begin with the step that is waited for
  std::deque<Clock::time_point> begins;  // where steps overlap: of those in flight, whose work this thread does
  bool stopping = false;
  // Once per step, all ranks tell each other what they wish before the next one, whose batch each has read by then, and
  // where the time of the last one went.
  TimeAccount* const account = run.account();
  std::exception_ptr unread;
  TrainingRun::Told told;
  bool asked = false;  // of the step that is begun next
  const auto ask = [&](const TimesByUse& times) {
    const bool stop_before = told.any.stop;  // whoever wished it may say so only once
    unread = nullptr;
    if (begun < t.steps) {
      const Spending reading(account, TimeUse::data);
      unread = failure_of([&] { run.load_batch(first_sample(begun)); });
      if (unread && run.tells_late()) std::rethrow_exception(unread);  // the others would hear of it too late
    }
    told = run.tell_ranks({.stop = watcher.wants_stop() || stop_before,
                           .bad_data = unread != nullptr,
                           .save_again = saving.wants_again(),
                           .compare_clocks = events.wants_comparison(),
                           .copy = begun < t.steps && run.agrees_after(begun) && copying.wants(begun)},
                          times, run.agrees_after(begun) ? events.tell() : ToldEvents{});
    events.heard(told);
    asked = true;
  };
  // The step that was finished is a loss spike: back to a saved state, and without its batch from there on.
  std::int64_t recorded = progress.step;  // steps that are done again are not recorded again
  // False: there is none.
  const auto rewind = [&](double loss, double z) {
    const Spending going_back(account, TimeUse::save);
    if (run.doing()) run.doing()->enter(DoingKind::saving);
    const double began = events.now();
    const auto note = [&](const std::string& line) { watcher.note(line); };
    run.finish_save(progress, 0);
    saving.tell();
    const std::string saved_state = find_saved_state(run, progress.step, note);
    if (saved_state.empty()) return false;
    for (; begun > progress.step + 1; --begun) run.finish_step();
    run.replica().settle();
    const std::int64_t spiked = progress.step + 1, first = first_sample(progress.step);
    recorded = std::max(recorded, progress.step);
    progress = go_back(run, progress, saved_state);
    spikes.skip(first, progress);
    progress.spikes = spikes.state();
    copying.go_back(progress.step);
    begun = progress.step;
    asked = false;
    const std::string text = fmt::format(
        "step {}: loss {:.6g} is {:.1f} standard deviations above those before; back to step {}, and samples {} to {} "
        "are left out",
        spiked, loss, z, progress.step, first, first + t.global_batch - 1);
    if (run.is_first_rank())
      events.add(
          {.kind = EventKind::rewind, .step = spiked, .began = began, .seconds = events.now() - began, .text = text});
    watcher.note(text);
    return true;
  };
  if (t.loss_spikes == LossSpikes::rewind && !run.has_saved(progress.step)) save(progress);
  if (account) account->take();  // what came before is no step's
  run.take_sent();
  // A copy in memory may be newer than what the disk has got.
  if (options.copies && options.copies->resumed > 0 && due(t.save_every, progress.step)) save(progress);
  while (progress.step < t.steps) {
    // All ranks begin a step, or none does: each has its part of the batch, and nobody wants to stop.
    while (!stopping && begun < t.steps && begun - progress.step < run.steps_at_once() &&
           (begun == progress.step || !looked_at(begun))) {
      // A step begins where the last one ended, unless something came between.
      if (!asked && begun == progress.step) before = Clock::now();
      if (!asked) ask({});
      if (told.any.copy && begun != progress.step) break;  // what is copied is what those in flight leave
      asked = false;
      const bool saves_again = told.any.save_again && (begun == progress.step || !run.steps_overlap());
      if ((saves_again || told.any.copy) && !drain()) break;
      if (saves_again && run.agrees_after(progress.step)) save(progress);
      if (told.any.bad_data) failure = run.agreed(unread);
      // A run that takes local steps ends, and is saved, where its replicas agree.
      stopping = (told.any.stop && run.agrees_after(begun)) || told.any.bad_data;
      if (stopping) break;
      if (events.compare_if_due(begun, timeline.begins(begun == first)) && begun == progress.step)
        before = Clock::now();
      if (told.any.copy) {
        const Spending held(account, TimeUse::save);
        if (run.doing()) run.doing()->enter(DoingKind::saving);
        check_state();  // no copy that may be wrong takes the place of one that is right
        copying.copy(progress);
      }
      timeline.before(begun, begun == first);
      if (run.doing()) run.doing()->begin_step(begun + 1);
      if (run.steps_overlap()) begins.push_back(Clock::now());
      run.begin_loaded_step(rate_of(begun));
      if (const auto relayout = run.replica().take_relayout())
        events.add({.kind = EventKind::relayout,
                    .step = begun + 1,
                    .seconds = relayout->seconds,
                    .text = fmt::format("{:.4g} of the matrices of blocks masked, and the optimizer's state laid out "
                                        "anew: {} bytes before, {} after",
                                        relayout->share, relayout->before, relayout->after)});
      if (++begun < t.steps) {
        const Spending reading(account, TimeUse::data);  // on a full machine the reader may run in this thread's place
        run.read_ahead(first_sample(begun));
      }
    }
    if (begun == progress.step) break;
    const Replica::Result result = run.finish_step();
    {
      const Spending held(account, TimeUse::save);
      copying.settle();
    }
    const auto now = Clock::now();
    double seconds = std::chrono::duration<double>(now - std::exchange(before, now)).count();
    const double waited = seconds;  // by this host
    const std::optional<TimesByUse> times = run.take_times();
    // Where the stream runs ahead it has the step's time. The host learns of an end late when it is held while it gives
    // out the next step, as it is once more work waits than the device's queue takes.
    if (times && run.stream().runs_ahead())
      seconds = times->total() - (*times)[TimeUse::save] - (*times)[TimeUse::evaluate];
    if (result.seconds) seconds = *result.seconds;
    if (run.steps_overlap()) {
      seconds = std::chrono::duration<double>((begins.size() > 1 ? begins[1] : now) - begins.front()).count();
      begins.pop_front();
    }
    const double rate = rate_of(progress.step);
    std::vector<SentByAxis> sent = run.take_sent();
    for (SentByAxis& along : sent) along.link = options.link;
    if (run.doing()) run.doing()->enter(DoingKind::between_steps);
    const std::optional<double> spike = result.updated ? spikes.spike_of(result.loss) : std::nullopt;
    if (spike && spikes.may_rewind() && rewind(result.loss, *spike)) continue;
    if (spike)
      watcher.note(
          fmt::format("step {}: loss {:.6g} is {:.1f} standard deviations above those before, and its batch stays: {}",
                      progress.step + 1, result.loss, *spike,
                      spikes.may_rewind() ? std::string("there is no saved state to go back to")
                                          : fmt::format("train.most_rewinds = {} were made", t.most_rewinds)));
    const std::int64_t batch = first_sample(progress.step);
    const bool again = progress.step < recorded;
    for (const WorkerChange& change : result.changes) events.changed(progress.step + 1, change);
    if (!again) events.stepped(progress.step + 1, seconds);

    if (timeline.is_due()) write(timeline.collect(), run.spec(), watcher);
    keep_tuning(run, progress, watcher);
    copying.stepped(progress, waited);
    ++progress.step;
    progress.samples = batch + t.global_batch;
    progress.updates = run.replica().steps_done();
    progress.loss_scale = run.loss_scale();
    StepRecord record = record_of(run, progress, result, rate, seconds);
    record.loss_z = spikes.add(result.loss);
    progress.spikes = spikes.state();
    if (progress.spikes) record.skipped = std::ssize(progress.spikes->skipped);
    if (options.peak_flops) record.mfu = record.model_flops_per_s / *options.peak_flops;
    record.times_follow = times.has_value();
    if (!again) watcher.stepped(record);

    if (due(run.spec().run.check_state, progress.step)) check_state();
    if (result.overflowed) {
      watcher.note(fmt::format("step {}: gradients overflowed with loss scale {:.0f}, nothing was updated; {:.0f} next",
                               progress.step, result.loss_scale, result.loss_scale / 2));
    } else if (!result.updated) {
      // Steps begun after it did not update either when the run is to stop; they are waited for and forgotten.
      const bool stop = t.bad_values == BadValues::stop;
      std::int64_t later = 0;
      for (; stop && begun > progress.step; --begun, ++later) run.finish_step();
      if (begun == progress.step) check_state();  // a flipped bit may be why
      bad_value = run.steps_overlap()
                      ? bad_stage_text()
                      : fmt::format("step {}: a value is not finite, nothing was updated", progress.step);
      if (begun == progress.step && !run.steps_overlap())
        bad_value +=
            "; the first was " + run.find_bad_value(batch, later).value_or("the norm itself: every gradient is finite");
      if (!stop) watcher.note(bad_value);  // else it is why the run ends
      if (run.is_first_rank()) events.add({.kind = EventKind::fault, .step = progress.step, .text = bad_value});
      if (stop) {
        ending = Ending::bad_values;
        break;
      }
    }
    if (times) {
      ask(*times);
      if (!again) watcher.timed(progress.step, told.times, sent);
    }
    if ((looked_at(progress.step) || progress.step == t.steps) && !drain()) break;
    if (run.data().has_evaluation() && !again &&
        (due(t.eval_every, progress.step) || (t.eval_every > 0 && progress.step == t.steps))) {
      asked = false;
      const Spending evaluating(account, TimeUse::evaluate);
      if (run.doing()) run.doing()->enter(DoingKind::evaluating);
      try {
        const double began = events.now();
        const auto [loss, accuracy] = run.evaluate();
        watcher.evaluated({progress.step, loss, seconds_since_1970(), accuracy});
        events.add({.kind = EventKind::evaluation,
                    .step = progress.step,
                    .seconds = events.now() - began,
                    .text = fmt::format("loss {:.6g}", loss)});
      } catch (const AgreedFailure& unread) {
        failure = unread.why;
        break;
      }
    }
    if (due(t.save_every, progress.step)) {
      asked = false;
      save(progress);
    }
    saving.tell();
  }
  if (stopping && ending == Ending::finished && progress.step < t.steps) ending = Ending::stopped;
  write(timeline.collect(), run.spec(), watcher);  // of a run that has ended before
  if (!drain()) ending = Ending::bad_values;
  run.replica().settle();
  check_state();
  if (run.doing()) run.doing()->enter(DoingKind::saving);
  const bool good = saving.finish(progress, progress.updates == first_updates);
  if (failure) rethrow_after(failure, progress, saving);
  if (!good) ending = Ending::bad_values;
  if (ending == Ending::bad_values) watcher.ended_by(bad_values_text(run.spec(), bad_value, good, progress, saving));
  return ending;
}

Ending train(TrainingRun& run, Progress& progress, Watcher& watcher, const LoopOptions& options) {
  RunEvents events(run, watcher, progress.step);
  try {
    const Ending ending = train_steps(run, progress, watcher, events, options);
    constexpr const char* kHow[] = {"finished", "stopped", "bad values"};
    events.finish(progress.step, kHow[static_cast<int>(ending)]);
    return ending;
  } catch (const std::exception& error) {
    events.failed(progress.step, error);
    throw;
  }
}

}  // namespace lockstep
