// What ranks tell each other between two steps.
#include <algorithm>
#include <utility>

#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::size_t kEventWords = 2 + 4 * kEventsATell, kToldWords = 1 + kTimeUses + kEventWords;

std::array<double, kEventWords> event_words_of(const ToldEvents& told) {
  std::array<double, kEventWords> words{told.error.value_or(-1), told.step_seconds};
  for (std::size_t i = 0; i < kEventsATell; ++i) {
    const RankEvent& event = told.events[i];
    const double kind = event.kind ? static_cast<double>(*event.kind) : -1;
    std::ranges::copy(std::array{kind, static_cast<double>(event.step), event.time, event.seconds},
                      words.begin() + static_cast<std::ptrdiff_t>(2 + 4 * i));
  }
  return words;
}

ToldEvents told_events_of(std::span<const double, kEventWords> words) {
  ToldEvents told{.error = words[0] < 0 ? std::nullopt : std::optional(words[0]), .step_seconds = words[1]};
  for (std::size_t i = 0; i < kEventsATell; ++i) {
    const std::span<const double> of = words.subspan(2 + 4 * i, 4);
    if (of[0] < 0) continue;
    told.events[i] = {.kind = static_cast<EventKind>(of[0]),
                      .step = static_cast<std::int64_t>(of[1]),
                      .time = of[2],
                      .seconds = of[3]};
  }
  return told;
}

}  // namespace

TrainingRun::Told TrainingRun::tell_ranks(const Wishes& mine, const TimesByUse& times, const ToldEvents& events) {
  if (replica_->is_asynchronous() && !replica_->async().met()) {
    if (mine.stop) replica_->async().wish_to_meet();
    return {{.stop = mine.stop}, {times}, {ToldEvents{}}};
  }
  if (!raw_ranks_) return {mine, {times}, {events}};
  Telling now = begin_telling(mine, times, events);
  if (!tells_late()) return end_telling(now);
  std::optional<Telling> before = std::exchange(telling_, std::move(now));
  if (before) return end_telling(*before);
  const auto ranks = static_cast<std::size_t>(size());
  return {.any = {}, .times = std::vector<TimesByUse>(ranks), .events = std::vector<ToldEvents>(ranks)};
}

// Copies and saves that the run itself tries again are made at the step that all ranks have heard of.
bool TrainingRun::tells_late() const { return steps_overlap() && raw_ranks_ && !copy_writer_ && (writer_ || !saves()); }

TrainingRun::Telling TrainingRun::begin_telling(const Wishes& mine, const TimesByUse& times, const ToldEvents& events) {
  Telling telling{.own = std::vector<double>(kToldWords),
                  .all = std::vector<double>(kToldWords * static_cast<std::size_t>(size())),
                  .pending = {}};
  telling.own[0] = static_cast<double>(mine.stop + 2 * mine.bad_data + 4 * mine.save_again + 8 * mine.compare_clocks +
                                       16 * mine.copy);
  std::ranges::copy(times.seconds, telling.own.begin() + 1);
  std::ranges::copy(event_words_of(events), telling.own.begin() + 1 + kTimeUses);
  telling.pending = raw_ranks_->all_gather(
      Tensor(telling.all.data(), DType::f64, raw_ranks_->device(), {std::ssize(telling.all)}),
      ConstTensor(telling.own.data(), DType::f64, raw_ranks_->device(), {std::ssize(telling.own)}));
  return telling;
}

TrainingRun::Told TrainingRun::end_telling(Telling& telling) {
  {
    const Spending waiting(account(), wait_in(raw_ranks_->name()));
    const InCall held(doing(), "world", "all_gather", ++tellings_);
    telling.pending->wait();
  }
  Told told;
  const std::vector<double>& all = telling.all;
  for (auto rank = all.begin(); rank != all.end(); rank += kToldWords) {
    const int votes = static_cast<int>(*rank);
    told.any.stop |= (votes & 1) != 0;
    told.any.bad_data |= (votes & 2) != 0;
    told.any.save_again |= (votes & 4) != 0;
    told.any.compare_clocks |= (votes & 8) != 0;
    told.any.copy |= (votes & 16) != 0;
    told.events.push_back(told_events_of(std::span<const double, kEventWords>(&*rank + 1 + kTimeUses, kEventWords)));
    std::copy_n(rank + 1, kTimeUses, told.times.emplace_back().seconds.begin());
  }
  return told;
}

}  // namespace lockstep
