// How a run's stream comes to its choices of algorithms, and how they come into the resolved run file.
//
// The forms in [tuning] of the run file, where it is for this GPU and library, have those algorithms. The others have
// what the table built into the program says, if it has one for this GPU and library; with `autotune` they are timed
// instead. What is timed goes into the resolved run file when the step that met it is done, and into
// every checkpoint after that: the file, given to `train` again, and a run that goes on from a checkpoint, use the same
// algorithms to the last one (docs/design.md, rule 9).
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

// The run's [tuning] as it stands, when products were timed since this was last asked.
std::optional<TuningSpec> new_tuning(Stream& stream);
TuningSpec tuning_of(Stream& stream);

}  // namespace lockstep
