#include "telemetry/metrics_file.h"

#include "telemetry/step_lines.h"

namespace lockstep {

MetricsFile::MetricsFile(std::filesystem::path path, std::int64_t last_step)
    : file_(path, open_step_lines(path, last_step)) {}

}  // namespace lockstep
