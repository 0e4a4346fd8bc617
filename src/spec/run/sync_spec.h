// What changes the numbers of a run on purpose, to wait less or to send less ([sync] in the run file).
//
// By default nothing does: every step is synchronous and exact, and the layout changes no result (docs/design.md, rule
// 2). Whatever is chosen here is outside that claim; each technique is defined by a serial model of itself in the
// tests, and its page in docs/ says what it costs.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "spec/run/compression.h"

namespace lockstep {

// Which ranks agree on the weights, and when.
enum class SyncKind {
  full,     // all, in every step
  partial,  // all, after every `every` steps: local SGD, DiLoCo
  async,    // none: gradients are applied when they come, at most `staleness` updates late
  mixed,    // those of a group in every step, the groups after every `every` steps
};
inline constexpr std::array kSyncKinds{SyncKind::full, SyncKind::partial, SyncKind::async, SyncKind::mixed};

constexpr std::string_view name_of(SyncKind kind) {
  constexpr std::string_view kNames[] = {"full", "partial", "async", "mixed"};
  return kNames[static_cast<std::size_t>(kind)];
}

// What a synchronization makes of the replicas' weights: their mean, or a step of Nesterov's momentum along their mean
// difference from the last synchronization (DiLoCo).
enum class OuterStep { average, nesterov };
inline constexpr std::array kOuterSteps{OuterStep::average, OuterStep::nesterov};

constexpr std::string_view name_of(OuterStep outer) { return outer == OuterStep::average ? "average" : "nesterov"; }

inline constexpr std::int64_t kNoStalenessBound = -1;

struct SyncSpec {
  SyncKind kind = SyncKind::full;
  std::int64_t every = 1;                // partial, mixed: steps between synchronizations
  OuterStep outer = OuterStep::average;  // partial, mixed
  double outer_lr = 0.7;                 // nesterov
  double outer_momentum = 0.9;
  std::int64_t group = 1;  // mixed: dp ranks that are synchronous among themselves
  // async: updates that a gradient's weights may be behind. 0: workers wait for each other, as synchronous ones do.
  std::int64_t staleness = kNoStalenessBound;
  std::string replay;                // async: the arrivals (telemetry/arrivals.h) to repeat; empty: as they come
  Compression compress;              // of gradients
  bool feedback = true;              // what compression leaves out of a gradient is added to the next one
  Compression compress_weights;      // of ZeRO-3's gathers
  Compression compress_activations;  // between pipeline stages, and of their gradients
  bool operator==(const SyncSpec&) const = default;

  // partial, mixed: dp ranks that are synchronous in every step; 0: all are. And how many such groups there are.
  std::int64_t together() const { return kind == SyncKind::partial ? 1 : kind == SyncKind::mixed ? group : 0; }
  std::int64_t groups(std::int64_t dp) const { return together() > 0 ? dp / together() : 1; }
  bool takes_local_steps() const { return kind == SyncKind::partial || kind == SyncKind::mixed; }
  // Whether servers apply each worker's gradient by itself, when it comes (train/async_steps.h).
  bool is_asynchronous() const { return kind == SyncKind::async && staleness != 0; }
  // Whether all ranks agree on the weights after this many steps.
  bool agrees_after(std::int64_t steps) const { return !takes_local_steps() || steps % every == 0; }

  // Whether a run learns something else than one rank would; RunSpec::changes_numbers() asks the layout too.
  bool changes_numbers() const {
    return takes_local_steps() || is_asynchronous() || compress || compress_weights || compress_activations;
  }
};

}  // namespace lockstep
