// The steps in flight: begun, so that all their work was given to the stream, and not finished, so that the host has
// not read what became of them.
//
// A step never makes the device wait for the host: the batch and the learning rate go to it by copies, the losses and
// the norm come from it by stores of its own (kernels/host_store.h), in the stream's order. Host memory for these has
// kMost places, used in turn: the host prepares a step while the device works at the one before. One thread uses it;
// setup, state and executor outlive it.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "telemetry/arrivals.h"
#include "tensor/transfer.h"
#include "train/state_hashes.h"
#include "train/step_executor.h"

namespace lockstep {

struct StepResult {
  double loss;                           // mean over the targets that count, not scaled
  double norm;                           // of the gradient, before clipping, not scaled
  bool updated;                          // false: something was not finite, and nothing changed
  double loss_scale = 1;                 // of this step
  bool overflowed = false;               // not updated, but with a smaller scale the next step may be: no bad value
  std::optional<StreamStep> times = {};  // where the stream runs ahead and its times are kept
  // Of a step after which replicas agreed: the root of the mean of |w - mean of w|² over them, before.
  std::optional<double> divergence = {};
  // Where gradients are compressed with feedback: the norm of what this rank has left out over its gradient's.
  std::optional<double> compression_error = {};
  std::vector<Arrival> arrivals = {};      // of an asynchronous step (async_steps.h)
  std::vector<WorkerChange> changes = {};  // of workers, since the step before
  std::optional<double> seconds = {};      // that it took, where it did not begin and end with this rank's part of it
};

// Of a step that has ended with these scalars, which the state then counts.
StepResult counted_step(RankState& state, double loss, std::span<const double> controls);

class StepsInFlight {
 public:
  static constexpr int kMost = BatchBuffers::kPlaces;

  // `hashes`: of state that is guarded (state_hashes.h); none: it is not.
  StepsInFlight(RankSetup& setup, RankState& state, StepExecutor& executor, StateHashes* hashes);

  int count() const { return static_cast<int>(begun_ - finished_); }
  void require_none() const;  // an internal error where there are some
  // Fewer than kMost are in flight.
  void begin(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, double learning_rate);
  // Waits for the oldest. EnvironmentError where state has changed between its update and the one before.
  StepResult finish();

 private:
  void tell_stages(int index);
  double divergence_of(std::span<std::int64_t> squares);

  // The scalars of a step: the learning rate on its way to the device, all of them on their way back.
  struct Place {
    HostBuffer rate, controls;
    HostBuffer left_out, drifted;            // squares (parallel/squares.h)
    bool agrees = false;                     // replicas that take local steps, after it
    HostBuffer hashes_before, hashes_after;  // of guarded state: before the update, and after it
    std::unique_ptr<Event> done;
    bool timed = false;
    // Without a flush: loss, square of the norm, whether updates are halted; and their sum over the stages under way.
    std::array<double, 3> told{};
    Communicator::Started telling;
  };

  RankSetup& setup_;
  RankState& state_;
  StepExecutor& executor_;
  StateHashes* const hashes_;  // none, also where nothing is guarded
  std::array<Place, kMost> places_;
  std::int64_t begun_ = 0, finished_ = 0;  // since this was made
};

}  // namespace lockstep
