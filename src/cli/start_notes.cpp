#include "cli/start_notes.h"

#include <fmt/format.h>

#include "spec/model/fp8_fit.h"

namespace lockstep {

std::vector<std::string> start_notes(const RunSpec& spec, TrainingRun& run) {
  std::vector<std::string> notes;
  const std::int64_t samples = run.data().training_samples(), batch = spec.train.global_batch;
  if (batch > samples)
    notes.push_back(
        fmt::format("the data has {} sample{} of {} tokens to train on and a step takes {}: every step has some of "
                    "them several times; use train.global_batch={} or less, a shorter data.seq, or more data",
                    samples, samples == 1 ? "" : "s", spec.data.seq, batch, samples));
  if (spec.precision.compute == Precision::fp8) {
    const Model& model = run.replica().model();
    if (std::string left = left_in_bf16(spec.model, model.B() * model.T(), spec.layout.tensor_split(0)); !left.empty())
      notes.push_back(std::move(left));
  }
  return notes;
}

}  // namespace lockstep
