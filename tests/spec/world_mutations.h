// Worlds of many shapes, and small edits of their lists: most break them, some do not.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <vector>

#include "spec/pipeline/stage_step.h"
#include "spec/step/world_faults.h"

namespace lockstep::tests {

// std's distributions differ between libraries.
inline int below(std::mt19937& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
inline bool one_in(std::mt19937& random, int n) { return below(random, n) == 0; }

// Chunks dealt out at random, as many to each stage.
inline std::vector<int> random_stages(const PipelineShape& shape, std::mt19937& random) {
  std::vector<int> stage_of;
  for (int k = 0; k < shape.stages * shape.chunks; ++k) stage_of.push_back(k % shape.stages);
  for (int k = static_cast<int>(stage_of.size()); k > 1; --k) std::swap(stage_of[k - 1], stage_of[below(random, k)]);
  return stage_of;
}

// A schedule that nobody would write: whatever can run next, somewhere. Micro-batches of each step come in turn.
inline PipelineSchedule random_schedule(const PipelineShape& shape, const std::vector<int>& stage_of,
                                        std::mt19937& random) {
  const int chunks = static_cast<int>(stage_of.size());
  PipelineSchedule schedule{.shape = shape, .stage_of = stage_of, .stages = {}};
  schedule.stages.resize(static_cast<std::size_t>(shape.stages));
  std::vector<std::array<int, 3>> done(static_cast<std::size_t>(chunks), {0, 0, 0});  // forward, input, weight
  for (int left = 3 * chunks * shape.micro; left > 0;) {
    const int k = below(random, chunks);
    auto& [f, i, w] = done[k];
    const auto add = [&](ChunkStep step, int m) {
      schedule.stages[schedule.stage_of[k]].push_back({step, k, m}), --left;
    };
    const bool forward = f < shape.micro && (k == 0 || done[k - 1][0] > f);
    const bool input = i < f && (k == chunks - 1 || done[k + 1][1] > i);
    switch (below(random, 3)) {
      case 0:
        if (forward) add(ChunkStep::forward, f++);
        break;
      case 1:
        if (input && i == w && one_in(random, 2))
          add(ChunkStep::backward, i++), ++w, --left;
        else if (input)
          add(ChunkStep::backward_input, i++);
        break;
      case 2:
        if (w < i) add(ChunkStep::backward_weight, w++);
        break;
    }
  }
  return schedule;
}

// Chunks of one to three units; often of one, where most that can happen does so within a few actions.
inline StepShape random_shape(int micro, const std::vector<int>& stage_of, std::mt19937& random) {
  StepShape shape{.micro = micro,
                  .publishes = one_in(random, 3),
                  .reduces_each = one_in(random, 2),
                  .gathers = one_in(random, 2),
                  .stages = {.begins = {}, .stage_of = stage_of}};
  const int most = one_in(random, 2) ? 1 : stage_of.size() > 4 ? 2 : 3;
  shape.units = 0;
  for (std::size_t k = 0; k < stage_of.size(); ++k) {
    shape.stages.begins.push_back(shape.units);
    shape.units += 1 + below(random, most);
  }
  if (shape.gathers) shape.kept_units = below(random, 3);
  if (shape.units > 1 && !one_in(random, 3)) {
    shape.tie_owner = one_in(random, 2) ? 0 : below(random, shape.last());
    shape.tie_borrower = shape.last();
  }
  return shape;
}

inline WorldLists world_of(const PipelineSchedule& schedule, const StepShape& like, int dp, int tp, bool ahead) {
  WorldLists world{.shape = like, .dp = dp, .tp = tp, .ranks = {}};
  for (int d = 0; d < dp; ++d)
    for (int s = 0; s < schedule.shape.stages; ++s) {
      StepShape shape = like;
      shape.stage = s;
      world.ranks.insert(world.ranks.end(), static_cast<std::size_t>(tp), pipeline_step(schedule, shape, ahead));
    }
  return world;
}

// Of a named schedule, or of none.
inline WorldLists random_world(std::mt19937& random) {
  const bool named = !one_in(random, 4);
  const ScheduleKind kind = kScheduleKinds[below(random, std::ssize(kScheduleKinds))];
  const int stages = 1 + below(random, 4);
  int chunks = usual_chunks(kind);
  if (!named || kind == ScheduleKind::interleaved) chunks = 1 + below(random, stages > 2 ? 2 : 3);
  const PipelineShape shape{stages, 1 + below(random, 5), chunks};
  const PipelineSchedule schedule =
      named ? make_schedule(kind, shape) : random_schedule(shape, random_stages(shape, random), random);
  const int dp = 1 + below(random, 2), tp = 1 + below(random, 2);
  WorldLists world =
      world_of(schedule, random_shape(shape.micro, schedule.stage_of, random), dp, tp, one_in(random, 2));
  if (named && one_in(random, 2))
    for (int s = 0; s < stages; ++s) world.most_in_flight.push_back(most_in_flight(kind, shape, s));
  return world;
}

class Mutator {
 public:
  Mutator(const WorldLists& world, std::mt19937& random) : world_(world), random_(random) {}

  // One edit, of one rank, of those that do something together with it, or of all of its stage.
  WorldLists mutated() {
    if (one_in(random_, 6) && swap_messages()) return world_;
    const std::size_t r = random_() % world_.ranks.size();
    const std::vector<Action> list = world_.ranks[r];
    const int a = pick(list), b = near(a, static_cast<int>(list.size()));
    const int which = below(random_, 4);
    const Edit edit{.kind = below(random_, 20), .changed = retargeted(list[a]), .lent = lent(r)};
    for (std::size_t other = 0; other < world_.ranks.size(); ++other) {
      if (!together(r, other, which)) continue;
      std::vector<Action>& edited = world_.ranks[other];
      const std::optional<int> at = find(edited, list, a), to = find(edited, list, b);
      if (at && to) run(edit, edited, *at, *to);
    }
    return world_;
  }

 private:
  struct Edit {
    int kind;
    Action changed;
    std::array<Action, 2> lent;
  };
  static void run(const Edit& edit, std::vector<Action>& list, int at, int to) {
    const Action a = list[at];
    switch (edit.kind) {
      case 0:
        list.erase(list.begin() + at);
        return;
      case 1:
        list.insert(list.begin() + to, a);
        return;
      case 2:
        list[at] = edit.changed;
        return;
      case 3:
        list.insert(list.begin() + to, edit.changed);
        return;
      case 4:
        list.insert(list.begin() + at, edit.lent.begin(), edit.lent.end());
        return;
      case 5:
      case 6:
      case 7:
        std::swap(list[at], list[to]);
        return;
      default:  // moved
        list.erase(list.begin() + at);
        list.insert(list.begin() + to, a);
        return;
    }
  }

  // Messages and what is near the norm rather than phases: there are few of them, and much depends on them.
  int pick(const std::vector<Action>& list) {
    const int size = static_cast<int>(list.size());
    const int norm = static_cast<int>(std::ranges::find(list, ActionKind::norm, &Action::kind) - list.begin());
    if (one_in(random_, 5)) return std::clamp(norm - 4 + below(random_, 9), 0, size - 1);
    int at = below(random_, size);
    for (int tries = 0; tries < 2 && is_phase(list[at].kind); ++tries) at = below(random_, size);
    return at;
  }
  int near(int at, int size) {
    const int far = one_in(random_, 4) ? size : 1 + below(random_, 6);
    return std::clamp(at + below(random_, 2 * far + 1) - far, 0, size - 1);
  }
  Action retargeted(Action a) {
    switch (below(random_, 3)) {
      case 0:
        a.kind = static_cast<ActionKind>(below(random_, static_cast<int>(ActionKind::receive_tied_weight) + 1));
        break;
      case 1:
        a.unit = below(random_, world_.shape.units + 2) - 1;
        break;
      case 2:
        a.micro = below(random_, world_.shape.micro + 2) - 1;
        break;
    }
    return a;
  }
  // Of a unit, mostly one that the rank has: whole for a moment, or not.
  std::array<Action, 2> lent(std::size_t r) {
    const std::vector<Action>& list = world_.ranks[r];
    const int unit = list[random_() % list.size()].unit;
    std::array<Action, 2> both{{{ActionKind::gather, unit}, {ActionKind::release, unit}}};
    if (one_in(random_, 2)) std::swap(both[0], both[1]);
    return both;
  }
  bool together(std::size_t r, std::size_t other, int which) const {
    const std::size_t tp = static_cast<std::size_t>(world_.tp), line = tp * stages();
    switch (which) {
      case 0:
        return other == r;
      case 1:
        return other / tp == r / tp;
      case 2:
        return other % line == r % line;
      default:
        return other % line / tp == r % line / tp;
    }
  }
  // Where the same action is, the first, second, … of its like.
  static std::optional<int> find(const std::vector<Action>& in, const std::vector<Action>& list, int at) {
    auto nth = std::count(list.begin(), list.begin() + at, list[at]);
    for (int i = 0; i < static_cast<int>(in.size()); ++i)
      if (in[i] == list[at] && nth-- == 0) return i;
    return std::nullopt;
  }

  // Two messages that follow each other change places where they are sent, or where they are received, or both.
  bool swap_messages() {
    const std::size_t tp = static_cast<std::size_t>(world_.tp), r = random_() % world_.ranks.size();
    const int count = static_cast<int>(stages()), here = static_cast<int>(r / tp) % count;
    if (count == 1) return false;
    const int there = (here + 1 + below(random_, count - 1)) % count;
    const std::size_t other = r + static_cast<std::size_t>(there) * tp - static_cast<std::size_t>(here) * tp;
    const std::vector<int> sent = places(r, is_send, there), received = places(other, is_receive, here);
    const int messages = static_cast<int>(std::min(sent.size(), received.size()));
    if (messages < 2) return false;
    const int i = below(random_, messages - 1), ends = below(random_, 4);
    if (ends != 0) std::swap(world_.ranks[r][sent[i]], world_.ranks[r][sent[i + 1]]);
    if (ends != 1) std::swap(world_.ranks[other][received[i]], world_.ranks[other][received[i + 1]]);
    return true;
  }
  std::vector<int> places(std::size_t r, bool (*kind)(ActionKind), int stage) const {
    std::vector<int> all;
    for (int i = 0; i < static_cast<int>(world_.ranks[r].size()); ++i)
      if (const Action& a = world_.ranks[r][i]; kind(a.kind) && other_end(a, world_.shape) == stage) all.push_back(i);
    return all;
  }
  std::size_t stages() const { return static_cast<std::size_t>(world_.shape.stages.count()); }

  WorldLists world_;
  std::mt19937& random_;
};

}  // namespace lockstep::tests
