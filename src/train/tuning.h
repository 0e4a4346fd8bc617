// How a run's stream chooses algorithms, and how the choices come into the resolved run file.
//
// A form in [tuning] of the run file, where that is for this GPU and library, uses the algorithm given there. Any other
// form uses the table built into the program, if it has one for this GPU and library; with `autotune` it is timed
// instead. What is timed is written to the resolved run file when the step that met it is done, and to every checkpoint
// after that. So a run from that file, and a run that resumes from a checkpoint, use exactly the same algorithms
// (docs/design.md, rule 9).
#pragma once
#include <optional>
#include <string>

#include "spec/run/run_spec.h"
#include "tensor/stream.h"

namespace lockstep {

// Before the stream's first product. Does nothing on cpu and meta.
void tune_products(const RunSpec& spec, Stream& stream);

// A line for a person when the run has a [tuning] that is not for this GPU and library, and so does nothing.
std::optional<std::string> ignored_tuning(const TuningSpec& tuning, Stream& stream);

// The run's current [tuning], if products were timed since the last call.
std::optional<TuningSpec> new_tuning(Stream& stream);
TuningSpec tuning_of(Stream& stream);

}  // namespace lockstep
